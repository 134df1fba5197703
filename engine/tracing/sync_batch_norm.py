"""Kernels of ``nn.SyncBatchNorm`` for fake tensors: PyTorch has them for CUDA alone.

Sizes are those of native/cuda/Normalization.cu. What its reductions over channels-last inputs put
aside while they run, some numbers for each channel, is not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten
_HALVES = (torch.float16, torch.bfloat16)


def _stats(input: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and inverse deviation of each channel of this process, in the format of its sums."""
    return _each_channel(input, input.shape[1]), _each_channel(input, input.shape[1])


def _gather_stats(
    input: torch.Tensor, mean: torch.Tensor, *rest: Any, **named: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same of all processes, from what each has sent."""
    return _each_channel(mean, mean.shape[1]), _each_channel(mean, mean.shape[1])


def _each_channel(like: torch.Tensor, channels: int) -> torch.Tensor:
    dtype = torch.float32 if like.dtype in _HALVES else like.dtype
    return like.new_empty(channels, dtype=dtype)


def _normalised(input: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    return torch.empty_like(input)


def _backward_reduce(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    weight: torch.Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[torch.Tensor | None, ...]:
    """Sums for the gradient of the input, and the gradients of weight and bias."""
    of_weight = mean if weight is None else weight
    return (
        torch.empty_like(mean) if input_g else None,
        torch.empty_like(mean) if input_g else None,
        of_weight.new_empty(input.shape[1]) if weight_g else None,
        of_weight.new_empty(input.shape[1]) if bias_g else None,
    )


def _backward_input(grad_out: torch.Tensor, input: torch.Tensor, *rest: Any) -> torch.Tensor:
    return torch.empty_like(input)


SYNC_BATCH_NORM: dict[Any, Callable[..., Any]] = {
    _aten.batch_norm_stats.default: _stats,
    _aten.batch_norm_gather_stats_with_counts.default: _gather_stats,
    _aten.batch_norm_elemt.default: _normalised,
    _aten.batch_norm_backward_reduce.default: _backward_reduce,
    _aten.batch_norm_backward_elemt.default: _backward_input,
}
