"""GPUs, formats and a pass's kept tensors, for tests of CUDA's behaviour on fake tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from engine.tracing.lowering import CudaBehaviour, cuda_behaviour, cuda_lowering

A10 = cuda_behaviour(8.6)
H100 = cuda_behaviour(9.0)
T4 = cuda_behaviour(7.5)
HALF = torch.float16
BRAIN = torch.bfloat16
FULL = torch.float32


def saved(run: Callable[[], object]) -> list[torch.Tensor]:
    """The tensors that a forward pass saves for backward."""
    kept: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    with (
        FakeTensorMode(),
        cuda_lowering(A10),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        run()
    return kept


def operators(run: Callable[[], object], behaviour: CudaBehaviour = A10) -> set[str]:
    """The operators that run on such a GPU, by name."""
    names = _Names()
    with FakeTensorMode(), cuda_lowering(behaviour), names:
        run()
    return names.found


class _Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch has no types here
        self.found: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.found.add(func._overloadpacket.__name__)
        return func(*args, **kwargs or {})
