"""bitsandbytes' optimizers in a script that is traced: paged state, and updates by its library.

Of tensors of 100,000 numbers or more it is in CUDA's managed memory, which PyTorch's allocator does
not know (``get_paged`` in bitsandbytes/functional.py, 0.50): it is on the GPU while there is room,
and on the host otherwise. So it takes none of what is counted.

Releases such as 0.45 update weights by calls of its library, which ends the process where there is
no GPU; 0.50 does it by operators of PyTorch. An update writes to tensors that are there, and makes
none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from ...versions.patches import patch_for_good
from ..devices.cuda_device import CPU, put_in_managed_memory
from ..on_import import when_imported

_MODULE = "bitsandbytes.functional"
_UPDATES = (
    "optimizer_update_32bit",
    "optimizer_update_8bit",  # not in 0.50
    "optimizer_update_8bit_blockwise",
)

PAGED = (
    "The state of the script's paged optimizer is in CUDA's managed memory and not counted on the "
    "GPU: it fills what is left there, and the host holds the rest. Step times assume that all of "
    "it is on the GPU; what is not crosses the link to the host in every step."
)

_note: Callable[[str], None] | None = None  # while a script is traced


@contextmanager
def paged_state(note: Callable[[str], None]) -> Iterator[None]:
    """Let paged optimizers have their state without a GPU, for as long as the context lasts.

    Args:
        note: Receives :data:`PAGED` where one does.
    """
    global _note
    _follow()
    before, _note = _note, note
    try:
        yield
    finally:
        _note = before


@cache
def _follow() -> None:
    when_imported({_MODULE: _change})


def _change() -> None:
    """Replace what asks CUDA for managed memory; outside of a trace it does what it did."""
    functional: Any = sys.modules[_MODULE]
    get, fill, prefetch = functional.get_paged, functional.fill, functional.prefetch_tensor

    def get_paged(*shape: int, dtype: torch.dtype = torch.float32, **given: Any) -> torch.Tensor:
        if _note is None:
            found: torch.Tensor = get(*shape, dtype=dtype, **given)
            return found
        _note(PAGED)
        made: Any = torch.empty(shape, dtype=dtype, device=CPU)
        put_in_managed_memory(made)
        made.is_paged, made.page_deviceid = True, 0
        return made  # type: ignore[no-any-return]  # it has attributes of bitsandbytes

    def unless_traced(function: Callable[..., None]) -> Callable[..., None]:
        return lambda *given, **named: function(*given, **named) if _note is None else None

    def unless_past_operators(name: str) -> Callable[..., None]:
        update = getattr(functional, name)

        def updated(*given: Any, **named: Any) -> None:
            if _note is None or hasattr(torch.ops.bitsandbytes, name):
                update(*given, **named)

        return updated

    for name, stand_in in (
        ("get_paged", get_paged),
        ("fill", unless_traced(fill)),
        ("prefetch_tensor", unless_traced(prefetch)),
    ):
        patch_for_good(functional, name, stand_in, why="it asks CUDA for managed memory")
    for name in filter(vars(functional).__contains__, _UPDATES):
        patch_for_good(
            functional,
            name,
            unless_past_operators(name),
            why="its library ends the process where there is no GPU",
        )
