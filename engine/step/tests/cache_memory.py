"""Memory that the CPU's allocator gives out while a cache reads tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import Cache

PROMPT, WAITING = 100, 3
"""Tokens of the prompts, and of those after them that wait before the next one packs all."""

BATCH, HEADS, WIDTH = 2, 4, 64

READ = "read "


def held_and_peaks(cache: Cache, dtype: torch.dtype) -> list[tuple[int, int]]:
    """Bytes that a cache comes to hold more, and the most at once, as it reads.

    Args:
        cache: Quantized, of one layer.
        dtype: Of what it reads.

    Returns:
        For the prompts, for a token that waits, and for the one that packs all.
    """
    cache.layers[0].residual_length = WAITING + 1
    # All in one profile: PyTorch keeps the size of a block that was allocated in a profile and
    # freed after it, and reports that when the next profile sees another block of its address go
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        for number, length in enumerate([PROMPT, *[1] * (WAITING + 1)]):
            keys, values = (
                torch.linspace(-1, 1, BATCH * HEADS * length * WIDTH)
                .reshape(BATCH, HEADS, length, WIDTH)
                .to(dtype)
                for _ in range(2)
            )
            with record_function(f"{READ}{number}"):
                cache.update(keys, values, 0)
    return [_allocated(found, f"{READ}{number}") for number in (0, WAITING, WAITING + 1)]


def _allocated(found: profile, read: str) -> tuple[int, int]:
    events: Any = found.profiler.kineto_results.events()  # type: ignore[union-attr]
    start, end = next((e.start_ns(), e.end_ns()) for e in events if e.name() == read)
    live = peak = 0
    for event in events:
        if event.name() == "[memory]" and start <= event.start_ns() <= end:
            live += event.nbytes()
            peak = max(peak, live)
    return live, peak
