"""Memory that CUDA's kernels take besides their results, which fake tensors cannot show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from engine.tracing.lowering import CudaBehaviour
from engine.tracing.operations import is_matrix_product
from engine.tracing.recorder import Temporary

_aten = torch.ops.aten
_SUMMING_IN_FP32 = (
    _aten._scaled_dot_product_flash_attention_backward.default,
    _aten._scaled_dot_product_cudnn_attention_backward.default,
)


class CudaTemporaries:
    """Workspaces and scratch of one process on one GPU.

    cuBLAS takes one workspace for each thread that calls it, at that thread's first matrix
    product, and keeps it (``getCurrentCUDABlasHandle``, torch 2.11 to 2.14); autograd's thread is
    the second. Attention kernels take scratch for their backward and return it.

    Left out is what does not reach the peak, or is not told by the source: partial sums of layer
    norm's backward, 8 MiB at most and only beyond 65,536 rows (``max_grid_size`` in
    cuda/layer_norm_kernel.cu); sums by segment of an embedding's backward beyond 3,072 indices,
    ``indices / 10 + min(indices, rows)`` rows of fp32 (cuda/EmbeddingBackwardKernel.cu), taken
    when the activations of the layers above have gone; cuDNN's workspaces for convolutions.

    Args:
        behaviour: Of the GPU.
    """

    def __init__(self, behaviour: CudaBehaviour) -> None:
        self._workspace = behaviour.cublas_workspace_bytes
        self._threads: set[str] = set()

    def __call__(self, phase: str, func: Any, args: tuple[Any, ...]) -> Iterable[Temporary]:
        """What this operator takes besides its result."""
        if is_matrix_product(func):
            thread = "backward" if phase == "backward" else "main"
            if thread not in self._threads:
                self._threads.add(thread)
                yield Temporary(self._workspace, kept=True)
        elif func is _aten._scaled_dot_product_efficient_attention_backward.default:
            yield from _efficient_attention_backward(*args[1:4])
        elif func in _SUMMING_IN_FP32:
            yield from _flash_attention_backward(*args[1:3])


def _efficient_attention_backward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> Iterable[Temporary]:
    """Scratch of the memory-efficient kernel, (B, H, S, D).

    In fp32 it first multiplies the gradient with the output, then takes a workspace of
    ``B·H·ceil(S/64)·ceil(D/64)·(16 + 4·64·64)`` bytes, for tiles of 64 by 64
    (cuda/mem_eff_attention/kernel_backward.h).
    """
    batch, heads, length, width = query.shape
    if query.dtype is torch.float32:
        yield Temporary(4 * batch * heads * length * value.shape[-1])
    tiles = -(-length // 64) * -(-width // 64)
    yield Temporary(batch * heads * tiles * (16 + 4 * 64 * 64))


def _flash_attention_backward(query: torch.Tensor, key: torch.Tensor) -> Iterable[Temporary]:
    """FlashAttention sums the query's gradient in fp32, its length and width padded.

    Of grouped queries it first makes the gradients of key and value for every head of the query.
    Source: ``mha_bwd`` in cuda/flash_attn/flash_api.cpp (``softmax_d`` and ``dq_accum``,
    ``dk_expanded`` and ``dv_expanded``). cuDNN does not say what it takes; the same is assumed.
    """
    batch, heads, length, width = query.shape
    padded, unit = -(-length // 128) * 128, 32 if width <= 128 else 64
    scratch = 4 * batch * heads * padded * (-(-width // unit) * unit + 1)
    if key.shape[1] != heads:
        scratch += 2 * batch * heads * key.shape[2] * width * query.element_size()
    yield Temporary(scratch)
