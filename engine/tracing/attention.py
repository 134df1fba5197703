"""The attention kernel that PyTorch picks on CUDA, and the tensors made around it.

What a kernel keeps for backward decides the memory of a transformer: all scores, or one number for
each row of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

import torch

from .attention_build import AttentionBuild, installed_build

_aten = torch.ops.aten
_LOW_PRECISION = (torch.float16, torch.bfloat16)


class AttentionKernel(StrEnum):
    """Kernels behind ``scaled_dot_product_attention``; they differ in what they keep."""

    MATH = "math"
    FLASH = "flash"
    EFFICIENT = "efficient"
    CUDNN = "cudnn"


class NoKernel(RuntimeError):
    """None of the attention kernels that are enabled takes these tensors, as PyTorch says it."""

    def __init__(self) -> None:
        super().__init__("No available kernel. Aborting execution.")


_DEFAULT_PRIORITY = (
    AttentionKernel.FLASH,
    AttentionKernel.EFFICIENT,
    AttentionKernel.MATH,
    AttentionKernel.CUDNN,
)


@dataclass(frozen=True, kw_only=True)
class AttentionCall:
    """The facts that decide the choice of an attention kernel, besides the GPU.

    Attributes:
        dtype: Number format of query, key and value; ``None`` where they differ.
        has_mask: Whether there is an attention mask.
        learns_mask: Whether the mask has a gradient.
        dropout: Its probability.
        head_width, value_width: Width of a query and key, and of a value.
        length, key_length: Length of the query, and of key and value.
        is_causal: Whether the mask is the causal one.
        has_gradient: Whether query, key or value has a gradient.
        grouped: Whether several heads of the query share a key and value.
        fusible: Whether the tensors have four dimensions, their last one contiguous, and sizes
            that belong together; the mask too.
        kernels: The enabled kernels, by priority.
    """

    dtype: torch.dtype | None
    has_mask: bool = False
    learns_mask: bool = False
    dropout: float = 0.0
    head_width: int = 64
    value_width: int = 64
    length: int = 128
    key_length: int = 128
    is_causal: bool = False
    has_gradient: bool = True
    grouped: bool = False
    fusible: bool = True
    kernels: tuple[AttentionKernel, ...] = _DEFAULT_PRIORITY


def chosen_kernel(
    compute_capability: float, call: AttentionCall, build: AttentionBuild
) -> AttentionKernel | None:
    """The kernel that PyTorch picks: the first enabled one that takes the tensors, if one does.

    Source: ``select_sdp_backend`` in aten/src/ATen/native/transformers/cuda/sdp_utils.cpp.
    """
    kernels = call.kernels
    by_default = kernels == tuple(kernel for kernel in _DEFAULT_PRIORITY if kernel in kernels)
    if by_default and build.prefers_cudnn(compute_capability):
        kernels = tuple(sorted(kernels, key=AttentionKernel.CUDNN.__ne__))
    takes = {
        AttentionKernel.MATH: lambda *_: True,
        AttentionKernel.FLASH: _flash_takes,
        AttentionKernel.EFFICIENT: _efficient_takes,
        AttentionKernel.CUDNN: _cudnn_takes,
    }
    return next(
        (kernel for kernel in kernels if takes[kernel](compute_capability, call, build)), None
    )


def _flash_takes(compute_capability: float, call: AttentionCall, _build: AttentionBuild) -> bool:
    """Half precision without a mask, from compute capability 8.0 up, heads up to 256 wide."""
    # Backward has too little shared memory for wide heads on some GPUs.
    small = 8.6 <= compute_capability <= 8.9 or compute_capability >= 12.0
    wide = call.head_width > 192 and (call.head_width <= 224 or call.dropout > 0)
    return (
        call.fusible
        and call.dtype in _LOW_PRECISION
        and compute_capability >= 8.0
        and not call.has_mask
        and call.head_width == call.value_width <= 256
        and not (small and wide and call.has_gradient)
        and (not call.is_causal or call.length == call.key_length)
    )


def _efficient_takes(compute_capability: float, call: AttentionCall, build: AttentionBuild) -> bool:
    """Any mask, and fp32 too, grouped queries in newer builds, only widths that fill its tiles."""
    formats = {torch.float32, torch.float16}
    if compute_capability >= 8.0:
        formats.add(torch.bfloat16)
    return (
        call.fusible
        and call.dtype in formats
        and (build.efficient_takes_groups or not call.grouped)
        and call.head_width % _tile(compute_capability, call) == 0
        and call.value_width % _tile(compute_capability, call) == 0
    )


def _tile(compute_capability: float, call: AttentionCall) -> int:
    """Elements to which a row must be aligned (``minimum_gemm_alignment``)."""
    half = call.dtype in _LOW_PRECISION
    if compute_capability >= 8.0 or (compute_capability >= 7.0 and half):
        return 8 if half else 4
    return 1


def _cudnn_takes(compute_capability: float, call: AttentionCall, build: AttentionBuild) -> bool:
    """Half precision, masks that learn nothing, a dropout that is a multiple of 1/16."""
    return (
        call.fusible
        and call.dtype in _LOW_PRECISION
        and compute_capability >= 8.0
        and not call.learns_mask
        and call.dropout * 16 % 1 == 0
        and build.cudnn_takes_widths(
            compute_capability, call.head_width, call.value_width, call.has_gradient
        )
        and call.key_length > 1
        and (call.length > 1 or call.dropout == 0)
    )


def attention(
    pick: Callable[[AttentionCall], AttentionKernel | None],
) -> Callable[..., torch.Tensor]:
    """``scaled_dot_product_attention`` as it is composed on CUDA.

    Source: aten/src/ATen/native/transformers/attention.cpp.

    Args:
        pick: The kernel for a call; ``None`` if there is none.

    Returns:
        The operator. It raises :class:`NoKernel` where no kernel takes its tensors.
    """

    def scaled_dot_product_attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        call = _attention_call(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
        bias = _additive(attn_mask, query)
        attended: torch.Tensor
        match pick(call):
            case AttentionKernel.FLASH:
                width = query.shape[-1]
                scale = width**-0.5 if scale is None else scale
                attended = _aten._scaled_dot_product_flash_attention(
                    *map(_padded_heads, (query, key, value)), dropout_p, is_causal, scale=scale
                )[0]
                if attended.shape[-1] != width:
                    attended = attended[..., :width]
            case AttentionKernel.CUDNN:
                attended = _aten._scaled_dot_product_cudnn_attention(
                    query, key, value, bias, call.has_gradient, dropout_p, is_causal, scale=scale
                )[0]
            case AttentionKernel.EFFICIENT:
                if bias is not None:
                    bias = _aligned(bias).expand(*query.shape[:-1], key.shape[-2])
                attended = _aten._scaled_dot_product_efficient_attention(
                    query, key, value, bias, call.has_gradient, dropout_p, is_causal, scale=scale
                )[0]
            case AttentionKernel.MATH:
                attended = _aten._scaled_dot_product_attention_math(
                    query, key, value, bias, dropout_p, is_causal, scale=scale,
                    enable_gqa=enable_gqa,
                )[0]  # fmt: skip
            case None:
                raise NoKernel
        return attended

    return scaled_dot_product_attention


def _attention_call(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    is_causal: bool,
    enable_gqa: bool,
) -> AttentionCall:
    tensors = (query, key, value)
    alike = query.dtype if len({tensor.dtype for tensor in tensors}) == 1 else None
    four = all(tensor.dim() == 4 for tensor in tensors)
    heads = [tensor.shape[-3] for tensor in tensors] if four else []
    return AttentionCall(
        dtype=alike,
        has_mask=mask is not None,
        learns_mask=mask is not None and mask.requires_grad,
        dropout=dropout,
        head_width=query.shape[-1],
        value_width=value.shape[-1],
        length=query.shape[-2],
        key_length=key.shape[-2],
        is_causal=is_causal,
        has_gradient=torch.is_grad_enabled() and any(one.requires_grad for one in tensors),
        grouped=len(set(heads)) > 1,
        fusible=four
        and all(tensor.stride(-1) == 1 for tensor in tensors)
        and len({tensor.shape[0] for tensor in tensors}) == 1
        and heads[1] == heads[2]
        and (heads[0] == heads[1] or _shares_keys(heads[0], heads[1], enable_gqa))
        and (mask is None or _is_fusible(mask, query, key)),
        kernels=_enabled_kernels(),
    )


def _shares_keys(query_heads: int, key_heads: int, enable_gqa: bool) -> bool:
    """Whether a fused kernel takes several heads of a query with one of a key."""
    if key_heads == 1 and installed_build().broadcasts_single_heads:
        return True
    return enable_gqa and query_heads % key_heads == 0


def _is_fusible(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> bool:
    """Whether a fused kernel reads a mask: contiguous along keys, and one number for each score.

    T5's position bias is not contiguous, nor is a mask made of it: its heads came last.
    Source: ``check_attn_mask_shape`` and ``check_last_dim_stride_equals_1_dense`` in
    aten/src/ATen/native/transformers/sdp_utils_cpp.h.
    """
    scores = (*query.shape[:-1], key.shape[-2])
    sizes = scores if mask.dim() == len(scores) else scores[2:]
    return (
        mask.stride(-1) == 1
        and mask.dim() == len(sizes)
        and all(size in (1, whole) for size, whole in zip(mask.shape, sizes, strict=True))
    )


def _enabled_kernels() -> tuple[AttentionKernel, ...]:
    """The kernels that nobody has switched off (``sdpa_kernel``, ``enable_flash_sdp``, ...)."""
    enabled = {
        AttentionKernel.MATH: torch.backends.cuda.math_sdp_enabled(),
        AttentionKernel.FLASH: torch.backends.cuda.flash_sdp_enabled(),
        AttentionKernel.EFFICIENT: torch.backends.cuda.mem_efficient_sdp_enabled(),
        AttentionKernel.CUDNN: torch.backends.cuda.cudnn_sdp_enabled(),
    }
    numbered = list(AttentionKernel)  # as PyTorch numbers them; one more is for other devices
    priority = (numbered[number] for number in _priority() if number < len(numbered))
    return tuple(kernel for kernel in priority if enabled[kernel])


def _priority() -> list[int]:
    order: list[int] = torch._C._get_sdp_priority_order()
    return order


@contextmanager
def keeping_attention_kernels() -> Iterator[None]:
    """Undo what code inside does to PyTorch's choice of attention kernels, which is global."""
    cuda = torch.backends.cuda
    switches = (
        (cuda.enable_math_sdp, cuda.math_sdp_enabled()),
        (cuda.enable_flash_sdp, cuda.flash_sdp_enabled()),
        (cuda.enable_mem_efficient_sdp, cuda.mem_efficient_sdp_enabled()),
        (cuda.enable_cudnn_sdp, cuda.cudnn_sdp_enabled()),
    )
    priority = _priority()
    try:
        yield
    finally:
        for switch, enabled in switches:
            switch(enabled)
        torch._C._set_sdp_priority_order(priority)


def _additive(mask: torch.Tensor | None, query: torch.Tensor) -> torch.Tensor | None:
    """The mask as the kernels take it: added to the scores, in the query's number format."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    lowest = torch.scalar_tensor(float("-inf"), dtype=query.dtype)
    return _aten.where.ScalarSelf(mask, 0.0, lowest)  # type: ignore[no-any-return]  # operators are not typed


_MASK_ALIGNMENT = 8
_HEAD_ALIGNMENT = 8


def _aligned(mask: torch.Tensor) -> torch.Tensor:
    """The mask itself, or a padded copy where its rows do not begin at multiples of 8."""
    aligned = all(stride % _MASK_ALIGNMENT == 0 for stride in mask.stride()[:-1])
    if aligned and mask.stride(-1) == 1:
        return mask
    length = mask.shape[-1]
    padding = _MASK_ALIGNMENT - length % _MASK_ALIGNMENT
    return torch.nn.functional.pad(mask, (0, padding))[..., :length]


def _padded_heads(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with heads as wide as the next multiple of 8."""
    padding = -tensor.shape[-1] % _HEAD_ALIGNMENT
    return torch.nn.functional.pad(tensor, (0, padding)) if padding else tensor
