"""Products of mixtures of experts, which transformers chooses by the GPU and PyTorch's release."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import torch

from ..versions.patches import patched

_MODULE = "transformers.integrations.moe"


@contextmanager
def grouped_products(in_groups: Callable[[], bool]) -> Iterator[None]:
    """Let experts multiply as on a GPU: fake tensors are on the CPU, which has its own rule.

    Where there is no grouped product, transformers multiplies expert by expert, and reads from the
    GPU how many samples each has. Here each has an even share, which changes no memory.

    Args:
        in_groups: Whether the GPU has one product for all experts; asked where there are some.
    """
    if find_spec(_MODULE) is None:  # before transformers 5
        yield
        return
    module = import_module(_MODULE)
    grouped: Callable[..., torch.Tensor] | None = getattr(module, "_grouped_mm", None)

    def multiply(samples: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        if grouped is not None and in_groups():
            return grouped(samples, weight, offs=offs)
        return _by_expert(samples, weight, offs)

    with (
        patched(
            module,
            "_can_use_grouped_mm",
            lambda *_: in_groups(),
            why="fake tensors are on the CPU, where PyTorch has other grouped products",
            is_missing_in_some=True,
        ),
        patched(
            module,
            "_grouped_mm",
            multiply,
            why="one product for each expert needs to know how many samples each has",
            is_missing_in_some=True,
        ),
    ):
        yield


def _by_expert(samples: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    samples = samples.to(weight.dtype)
    product: torch.Tensor = _ByExpert.apply(samples, weight, offs)  # type: ignore[no-untyped-call]  # PyTorch has no type for it
    return product


class _ByExpert(torch.autograd.Function):
    """``_grouped_mm_fallback``, and its backward pass, with an even share for each expert.

    Samples are ``(S, inputs)``, sorted by expert, and weights ``(experts, inputs, outputs)``.
    """

    @staticmethod
    def forward(
        ctx: Any, samples: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(samples, weight)
        ctx.offs = offs
        output = samples.new_zeros(len(samples), weight.shape[2])
        for expert, (begin, end) in enumerate(_shares(len(samples), len(weight))):
            if begin < end:
                torch.mm(samples[begin:end], weight[expert], out=output[begin:end])
        return output

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        samples, weight = ctx.saved_tensors
        of_samples, of_weight = torch.zeros_like(samples), torch.zeros_like(weight)
        for expert, (begin, end) in enumerate(_shares(len(samples), len(weight))):
            if begin < end:
                part = gradient[begin:end]
                torch.mm(part, weight[expert].T, out=of_samples[begin:end])
                torch.mm(samples[begin:end].T, part, out=of_weight[expert])
        return of_samples, of_weight, None


def _shares(count: int, experts: int) -> list[tuple[int, int]]:
    """Where the samples of each expert begin and end."""
    return list(pairwise(count * expert // experts for expert in range(experts + 1)))
