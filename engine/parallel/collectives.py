"""Collective operators on fake tensors: they are done at once, and return what they were given.

PyTorch has kernels for that since 2.11, and in a module that has to be imported from 2.7 to 2.10.
Whatever is missing, as in 2.6, is filled in here; so is what FSDP calls of a stream of the CPU.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

import torch
from torch.distributed import Work

from ..versions.patches import patch_for_good

_MODULE = "torch.distributed._tools.fake_collectives"
_IN_PLACE = (
    "broadcast_", "allreduce_", "allgather_", "_allgather_base_", "reduce_scatter_",
    "_reduce_scatter_base_", "scatter_", "alltoall_",
)  # fmt: skip
"""Operators that return their first argument too."""

_OTHERS = ("reduce_", "gather_", "alltoall_base_", "barrier", "send", "recv_", "recv_any_source_")


class _Done(Work):
    """The work of a collective that nobody has to wait for."""

    def wait(self, *_: Any) -> bool:
        return True


_DONE = _Done()  # C++ keeps no reference to the Python half of it


def _returning_the_first(*given: Any) -> tuple[Any, Any]:
    return given[0], _DONE.boxed()


def _returning_nothing(*given: Any) -> Any:
    return _DONE.boxed()


_kernels = torch.library.Library("c10d", "IMPL")


if find_spec(_MODULE) is not None:
    importlib.import_module(_MODULE)
for _names, _kernel in ((_IN_PLACE, _returning_the_first), (_OTHERS, _returning_nothing)):
    for _name in _names:
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"c10d::{_name}", "Meta"):
            _kernels.impl(_name, _kernel, "Meta")
if not hasattr(torch.cpu.Stream, "record_event"):  # in 2.6, where FSDP calls it all the same
    for _name in ("record_event", "wait_event"):
        patch_for_good(
            torch.cpu.Stream, _name, lambda *_: None, why="FSDP calls it, and torch 2.6 has none"
        )
