"""CUDA's autocast on the CPU: which operators run in fp32, which in the wider of their formats.

Source of the lists: ``aten/src/ATen/autocast_mode.h``, torch 2.13; an older release may lack some.
Operators in lower precision are the same ones on both, or consist of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch

_aten = torch.ops.aten
_LOW_PRECISION = (torch.float16, torch.bfloat16)

TO_FP32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p",
    "reciprocal", "rsqrt", "sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar",
    "softplus", "layer_norm", "native_layer_norm", "rms_norm", "group_norm", "frobenius_norm.dim",
    "nuclear_norm", "nuclear_norm.dim", "cosine_similarity", "poisson_nll_loss",
    "cosine_embedding_loss", "nll_loss", "nll_loss2d", "hinge_embedding_loss", "kl_div", "l1_loss",
    "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss", "multilabel_margin_loss",
    "soft_margin_loss", "triplet_margin_loss", "multi_margin_loss",
    "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp",
    "upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_nearest2d",
    "_upsample_nearest_exact2d", "upsample_nearest3d", "_upsample_nearest_exact3d",
    "upsample_linear1d", "upsample_bilinear2d", "_upsample_bilinear2d_aa", "upsample_trilinear3d",
    "upsample_bicubic2d", "_upsample_bicubic2d_aa",
)  # fmt: skip
SUMMED_IN_FP32 = (
    "prod", "prod.dim_int", "cumprod", "cumsum", "linalg_vector_norm", "linalg_matrix_norm",
    "linalg_matrix_norm.str_ord", "sum", "sum.dim_IntList",
)  # fmt: skip
TO_WIDEST = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put",
    "tensordot", "scatter_add",
)  # fmt: skip


def autocast_operators() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Kernels in which ``torch.autocast("cuda")`` differs from ``autocast("cpu")``, by name."""
    on_cuda, on_cpu = _treated("AutocastCUDA"), _treated("AutocastCPU")
    for names, policy in (
        (TO_FP32, _in_fp32),
        (SUMMED_IN_FP32, _summed_in_fp32),
        (TO_WIDEST, _in_widest),
    ):
        yield from ((name, policy(name)) for name in names if name in on_cuda)
    yield "norm.Scalar", _norm
    yield "norm.ScalarOpt_dim", _norm_along
    yield "softmax.int", _softmax(_aten._softmax.default)
    yield "log_softmax.int", _softmax(_aten._log_softmax.default)
    # Convolutions padded by name are made of those that CUDA's list has.
    for name in on_cpu - on_cuda - {f"conv{n}d.padding" for n in (1, 2, 3)}:
        yield name, torch.library.fallthrough_kernel


@cache  # PyTorch writes out all of them for each call, which takes milliseconds
def _treated(key: str) -> frozenset[str]:
    """The operators that autocast has a rule for on a kind of device, by name."""
    found = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    return frozenset(name.removeprefix("aten::") for name in found if name.startswith("aten::"))


def _in_fp32(name: str) -> Callable[..., Any]:
    operator = _overload(name)

    def run(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            return operator(*(_cast(value, torch.float32) for value in args), **kwargs)

    return run


def _summed_in_fp32(name: str) -> Callable[..., Any]:
    operator = _overload(name)

    def run(input: torch.Tensor, *args: Any, dtype: torch.dtype | None = None, **kw: Any) -> Any:
        if dtype is None and input.dtype in _LOW_PRECISION:
            dtype = torch.float32
        with _without_autocast():
            return operator(input, *args, dtype=dtype, **kw)

    return run


def _in_widest(name: str) -> Callable[..., Any]:
    operator = _overload(name)

    def run(*args: Any, **kwargs: Any) -> Any:
        if any(_is_fp32(value) for value in args):
            args = tuple(_cast(value, torch.float32) for value in args)
        with _without_autocast():
            return operator(*args, **kwargs)

    return run


def _norm(input: torch.Tensor, p: float = 2) -> torch.Tensor:
    with _without_autocast():
        normed: torch.Tensor = _aten.norm.ScalarOpt_dtype(input, p, dtype=torch.float32)
    return normed


def _norm_along(
    input: torch.Tensor, p: float | None, dim: list[int], keepdim: bool = False
) -> torch.Tensor:
    with _without_autocast():
        normed: torch.Tensor = _aten.norm.ScalarOpt_dim_dtype(
            input, p, dim, keepdim, dtype=torch.float32
        )
    return normed


def _softmax(kernel: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """CUDA reads fp16 and writes fp32 in one kernel; bf16 is copied to fp32 first (SoftMax.cpp)."""

    def run(input: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        to_fp32 = input.dtype in _LOW_PRECISION and dtype in (None, torch.float32)
        with _without_autocast():
            if to_fp32 and input.dtype is torch.float16:
                return kernel(input, dim, True)
            return kernel(input.to(torch.float32 if to_fp32 else dtype), dim, False)

    return run


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """A tensor in half precision in another format; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.dtype in _LOW_PRECISION:
        return value.to(dtype)
    return value


def _is_fp32(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.float32


def _overload(name: str) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    found: Callable[..., Any] = getattr(getattr(_aten, packet), overload or "default")
    return found


def _without_autocast() -> Any:
    autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    return torch._C._ExcludeDispatchKeyGuard(autocast)
