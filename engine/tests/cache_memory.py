"""What the CPU's allocator gives out while a cache reads tokens."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import Cache

PROMPT, WAITING = 100, 3
"""Tokens of the prompts, and of those after them that wait before the next one packs all."""

BATCH, HEADS, WIDTH = 2, 4, 64


def held_and_peaks(cache: Cache, dtype: torch.dtype) -> list[tuple[int, int]]:
    """Bytes that a cache comes to hold more, and the most at once, as it reads.

    Args:
        cache: Quantized, of one layer.
        dtype: Of what it reads.

    Returns:
        For the prompts, for a token that waits, and for the one that packs all.
    """
    cache.layers[0].residual_length = WAITING + 1
    found = []
    for number, length in enumerate([PROMPT, *[1] * (WAITING + 1)]):
        keys, values = (
            torch.linspace(-1, 1, BATCH * HEADS * length * WIDTH)
            .reshape(BATCH, HEADS, length, WIDTH)
            .to(dtype)
            for _ in range(2)
        )
        if number in (0, WAITING, WAITING + 1):
            found.append(_allocated(partial(cache.update, keys, values, 0)))
        else:
            cache.update(keys, values, 0)
    return found


def _allocated(run: Callable[[], object]) -> tuple[int, int]:
    gc.collect()
    gc.disable()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
            run()
    finally:
        gc.enable()
    live = peak = 0
    for event in found.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return live, peak
