"""CUDA's behaviour on fake CPU tensors, wherever it decides what is kept in memory.

Fake CUDA tensors need a GPU; fake CPU tensors run anywhere, but the CPU keeps other things for
backward: a float mask for dropout, all of the attention matrix, activations in other number formats
under autocast. While :func:`cuda_lowering` is active, those operators are replaced at the
dispatcher, where the replacement holds in forward, backward and recomputation alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..gpus import Gpu
from ..gpus.fixed_costs import cublas_workspace_bytes, fixed_costs
from ..versions.software import minor
from .attention import (
    AttentionCall,
    AttentionKernel,
    attention,
    chosen_kernel,
    keeping_attention_kernels,
)
from .attention_build import installed_build
from .autocast import autocast_operators
from .column_sums import resident_threads
from .convolutions import workspaces as convolution_workspaces
from .decompositions import workspace_bytes
from .group_norm import copied_bytes, group_norm_operators
from .operations import is_matrix_product
from .packed_sequences import packing_operators
from .recorded import Temporary
from .recurrent_cells import cell_kernels, cell_operators
from .recurrent_layers import layer_kernels, layer_operators
from .recurrent_layers import workspace_bytes as layers_workspace_bytes
from .reductions import column_sum
from .registration import register

_aten = torch.ops.aten


@dataclass(frozen=True)
class CudaBehaviour:
    """Differences between GPUs in the memory of a training step.

    Attributes:
        compute_capability: CUDA compute capability, such as 8.6.
        cublas_workspace_bytes: Workspace of a cuBLAS handle.
        resident_threads: Number of threads that it runs at once.
    """

    compute_capability: float
    cublas_workspace_bytes: int
    resident_threads: int

    def attention_kernel(self, call: AttentionCall) -> AttentionKernel | None:
        """The attention kernel that PyTorch picks; ``None`` if it has none to offer."""
        return chosen_kernel(self.compute_capability, call, installed_build())

    def copies_for_convolutions(self, item_bytes: int) -> bool:
        """Whether cuDNN copies images to convolve numbers of that size, as it does on an H100.

        Earlier GPUs are left without: published runs of fp32 networks on an RTX 3060 and 4060
        (``benchmarks/data/xmem.csv``) come out up to 10% too high with copies.
        """
        return self.compute_capability >= 9.0 and item_bytes <= 4

    def multiplies_in_groups(self) -> bool:
        """Whether PyTorch has one product for all experts of a mixture, as transformers asks.

        PyTorch 2.8 has it on Hopper alone, later releases from Ampere on (``_can_use_grouped_mm``
        in ``transformers/integrations/moe.py``).
        """
        if not hasattr(torch, "_grouped_mm"):
            return False
        if minor(torch.__version__) >= (2, 9):
            return self.compute_capability >= 8.0
        return 9.0 <= self.compute_capability < 10.0


def cuda_behaviour(compute_capability: float) -> CudaBehaviour:
    """The behaviour of GPUs of one compute capability."""
    return CudaBehaviour(
        compute_capability=compute_capability,
        cublas_workspace_bytes=cublas_workspace_bytes(compute_capability),
        resident_threads=resident_threads(compute_capability),
    )


def behaviour_of(gpu: Gpu) -> CudaBehaviour:
    """The behaviour of a GPU, with the workspaces that a self-check of it measured, if any."""
    workspace = fixed_costs(gpu).cublas_workspace_bytes
    return replace(cuda_behaviour(gpu.compute_capability), cublas_workspace_bytes=workspace)


@contextmanager
def cuda_lowering(behaviour: CudaBehaviour) -> Iterator[None]:
    """Replace the operators that differ, for as long as the context lasts."""
    library = torch.library.Library("aten", "IMPL")
    replacements: list[tuple[str, Callable[..., Any], str]] = [
        ("dropout", _dropout, "AutogradCPU"),
        ("scaled_dot_product_attention", attention(behaviour.attention_kernel), "AutogradCPU"),
        *((name, function, "AutogradCPU") for name, function in cell_operators()),
        *((name, function, "AutogradCPU") for name, function in layer_operators()),
        *((name, function, "AutogradCPU") for name, function in packing_operators()),
        *((name, function, "AutogradCPU") for name, function in group_norm_operators()),
        *((name, function, "Meta") for name, function in cell_kernels()),
        *((name, function, "Meta") for name, function in layer_kernels()),
        *((name, function, "AutocastCPU") for name, function in autocast_operators()),
    ]
    with warnings.catch_warnings():
        # PyTorch warns of every kernel that is overridden; that is what this is for.
        warnings.simplefilter("ignore", UserWarning)
        for name, function, key in replacements:
            register(library, name, function, key)
    try:
        with keeping_attention_kernels():
            yield
    finally:
        library._destroy()


def _dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """CUDA keeps a mask of one byte an element (``dropout`` in native/Dropout.cpp)."""
    if not train or p == 0 or input.numel() == 0:
        return input
    dropped: torch.Tensor = _aten.native_dropout(input, p, train)[0]
    return dropped


_SUMMING_IN_FP32 = (
    _aten._scaled_dot_product_flash_attention_backward.default,
    _aten._scaled_dot_product_cudnn_attention_backward.default,
)
_TAKEN_WHILE_RUNNING = (workspace_bytes, layers_workspace_bytes, copied_bytes)
"""Each gives the bytes that an operator takes, given its arguments; 0 of those it is not about."""


class CudaTemporaries:
    """Workspaces and scratch of one process on one GPU.

    cuBLAS takes one workspace for each thread that calls it, at that thread's first matrix
    product, and keeps it (``getCurrentCUDABlasHandle``, torch 2.11 to 2.14); autograd's thread is
    the second. Attention kernels take scratch for their backward and return it.

    Left out is what does not reach the peak, or what the source does not say: partial sums of layer
    norm's backward, 8 MiB at most and only beyond 65,536 rows (``max_grid_size`` in
    cuda/layer_norm_kernel.cu); sums by segment of an embedding's backward beyond 3,072 indices,
    ``indices / 10 + min(indices, rows)`` rows of fp32 (cuda/EmbeddingBackwardKernel.cu), taken
    when the activations of the layers above have gone.

    Args:
        behaviour: Behaviour of the GPU.
    """

    def __init__(self, behaviour: CudaBehaviour) -> None:
        self._workspace = behaviour.cublas_workspace_bytes
        self._copies_for_convolutions = behaviour.copies_for_convolutions
        self._resident_threads = behaviour.resident_threads
        self._threads: set[str] = set()

    def __call__(self, phase: str, func: Any, args: tuple[Any, ...]) -> Iterable[Temporary]:
        """Memory that this operator takes besides its result."""
        for size in convolution_workspaces(func, args, self._copies_for_convolutions):
            yield Temporary(size)
        if is_matrix_product(func):
            thread = "backward" if phase == "backward" else "main"
            if thread not in self._threads:
                self._threads.add(thread)
                yield Temporary(self._workspace, kept=True)
        elif func is _aten._scaled_dot_product_efficient_attention_backward.default:
            yield from _efficient_attention_backward(*args[1:4])
        elif func is _aten._ctc_loss_backward.Tensor:
            yield Temporary(args[6].nbytes)  # log_beta, like log_alpha (cuda/LossCTC.cu)
        elif func in _SUMMING_IN_FP32:
            yield from _flash_attention_backward(*args[1:3])
        elif (sums := column_sum(func, args, self._resident_threads)) is not None:
            yield Temporary(sums.scratch_bytes, sums=sums)
        elif (size := sum(taken(func, args) for taken in _TAKEN_WHILE_RUNNING)) > 0:
            yield Temporary(size)


def _efficient_attention_backward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> Iterable[Temporary]:
    """Scratch of the memory-efficient kernel, (B, H, S, D).

    In fp32 it first multiplies the gradient with the output, then takes a workspace of
    ``B·H·ceil(S/64)·ceil(D/64)·(16 + 4·64·64)`` bytes, for tiles of 64 by 64
    (cuda/mem_eff_attention/kernel_backward.h). Of grouped queries, which it takes from torch 2.14
    on, it makes the gradients of key and value for every head of the query, then adds them up.
    """
    batch, heads, length, width = query.shape
    if query.dtype is torch.float32:
        yield Temporary(4 * batch * heads * length * value.shape[-1])
    tiles = -(-length // 64) * -(-width // 64)
    scratch = batch * heads * tiles * (16 + 4 * 64 * 64)
    if key.shape[1] != heads:
        widths = width + value.shape[-1]
        scratch += batch * heads * key.shape[2] * widths * query.element_size()
    yield Temporary(scratch)


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
