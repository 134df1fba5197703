"""GPU memory that a process holds beside PyTorch's own: the CUDA context and libraries.

On one H100 (PyTorch 2.11, CUDA 13.0, driver 580) 122 trials of 2026-11-26 held 750.8 MiB with
cuBLAS alone and 766.8 to 770.8 MiB with cuDNN, in any number format and at any batch size. cuDNN
computes convolutions, and attention in 16 bits from compute capability 9.0 up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from . import Gpu, SelfChecked

MIB = 2**20

CUDNN_BYTES = 18 * MIB
"""cuDNN with its kernels, measured on that H100: between 16 and 20 MiB."""

UNSURE_BELOW, UNSURE_ABOVE = 0.15, 0.40
"""Limits below and above the catalogue's of a context that nobody here measured, as shares of it.
The H100's was derived from an A100 and CUDA 12: 563 MiB, and is 751 MiB with CUDA 13."""


@dataclass(frozen=True)
class FixedCosts:
    """Memory that a process holds outside PyTorch's caching allocator, and in it for good.

    Attributes:
        context_bytes: The CUDA context, and cuBLAS with its kernels in both threads of a step;
            every training process holds these.
        cudnn_bytes: cuDNN with its kernels, on top, in steps that use it.
        cublas_workspace_bytes: Workspace of each thread that multiplies matrices, within the
            caching allocator.
        measured: Whether the context was measured on such a GPU, and not taken from elsewhere.
    """

    context_bytes: int
    cudnn_bytes: int
    cublas_workspace_bytes: int
    measured: bool

    @property
    def unsure_bytes(self) -> tuple[int, int]:
        """Number of bytes fewer and more that the context may take."""
        if self.measured:
            return 0, 0
        return round(UNSURE_BELOW * self.context_bytes), round(UNSURE_ABOVE * self.context_bytes)


def fixed_costs(gpu: Gpu) -> FixedCosts:
    """Fixed costs of a GPU: of the catalogue, or as a self-check measured them."""
    checked = gpu.checked or SelfChecked("")
    workspace = checked.cublas_workspace_bytes
    if workspace is None:
        workspace = gpu.workspace_bytes
    if workspace is None:
        workspace = cublas_workspace_bytes(gpu.compute_capability)
    return FixedCosts(
        context_bytes=gpu.context_bytes,
        cudnn_bytes=CUDNN_BYTES if checked.cudnn_bytes is None else checked.cudnn_bytes,
        cublas_workspace_bytes=workspace,
        measured=gpu.sources["context_bytes"].startswith("measured"),
    )


def cublas_workspace_bytes(compute_capability: float) -> int:
    """Workspace of a cuBLAS handle.

    It is 32 MiB from compute capability 9.0 up, else ``:4096:2:16:8``, 8,519,680 bytes
    (``parseChosenWorkspaceSize`` in aten/src/ATen/cuda/CublasHandlePool.cpp).
    """
    return 32 * MIB if compute_capability >= 9.0 else 8_519_680


def uses_cudnn(operators: Iterable[str]) -> bool:
    """Whether a step with these operators, such as ``aten.convolution``, loads cuDNN."""
    return any("convolution" in name or "cudnn" in name for name in operators)
