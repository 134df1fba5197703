"""Results of fake kernels, as real ones lay them out where PyTorch's own fakes differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch.utils._python_dispatch import _disable_current_modes

from .group_norm import GROUP_NORM, GROUP_NORM_BACKWARD
from .sync_batch_norm import SYNC_BATCH_NORM

_aten = torch.ops.aten

_SHRUNK = {  # to a number in place, on every device (native/Loss.cpp, cuda/Loss.cu)
    _aten.binary_cross_entropy.default,
    _aten.mse_loss.default,
    _aten.smooth_l1_loss.default,
    _aten.soft_margin_loss.default,
}
_BATCH_NORM = _aten.native_batch_norm.default
_ONEDNN_LAYER = _aten.mkldnn_rnn_layer.default
_GROUP_NORMS = {GROUP_NORM: 0, GROUP_NORM_BACKWARD: 1}
"""Operators of group norm, and where their images are among their arguments."""
_LAYER_NORM = _aten.native_layer_norm.default
_LAYER_NORM_BACKWARD = _aten.native_layer_norm_backward.default


def as_real_kernels(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any, *, on_cuda: bool
) -> Any:
    """The result of a fake kernel as the real ones lay it out.

    Args:
        func: The operator.
        args: Its operands by position.
        kwargs: Its operands by name.
        output: What the fake kernel returned.
        on_cuda: Whether CUDA's kernels are the real ones, or those of the CPU.
    """
    if func is _LAYER_NORM_BACKWARD:
        return (_contiguous(output[0]), *output[1:])
    if func is _LAYER_NORM:
        return (output[0], *_statistics(output[1:], args[2:4]))
    if func in _GROUP_NORMS:
        images = args[_GROUP_NORMS[func]]
        rest = output[1:] if func is GROUP_NORM_BACKWARD else _statistics(output[1:], args[1:3])
        return (_normalized(output[0], images, on_cuda=on_cuda), *rest)
    if func is _BATCH_NORM:
        # Of series, which have no format with channels last, the real ones are contiguous.
        normalised = output[0].contiguous() if output[0].dim() == 3 else output[0]
        return (normalised, *_statistics(output[1:], args[1:5]))
    if func is _ONEDNN_LAYER and torch.is_grad_enabled():
        return (*output[:3], output[3].new_empty(_onednn_workspace(args, kwargs)))
    if func in _SHRUNK and output.dim() < args[0].dim():
        return torch.empty_like(args[0]).resize_(())  # the memory of the whole stays
    return output


def _statistics(
    found: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor | None]
) -> Iterator[torch.Tensor]:
    """A norm's mean and deviation as the real kernels keep them.

    They are in fp32 where its parameters are (``is_mixed_type`` in native/batch_norm.h and, for a
    layer or group norm, native/cpu/mixed_data_type.h); the fake ones are in the format of what
    comes in.
    """
    formats = {parameter.dtype for parameter in parameters if parameter is not None}
    for statistic in found:
        yield statistic.float() if torch.float32 in formats else statistic


def _onednn_workspace(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Bytes that oneDNN keeps of a recurrent layer for backward: only a real run shows them."""

    def real(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.zeros(value.shape, dtype=value.dtype, requires_grad=True)

    with _disable_current_modes(), torch.enable_grad():
        found = _ONEDNN_LAYER(*map(real, args), **{name: real(kwargs[name]) for name in kwargs})
    return 0 if found[3] is None else int(found[3].numel())


def _grouped_product(
    left: torch.Tensor,
    right: torch.Tensor,
    offsets: torch.Tensor,
    bias: None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The products of a mixture of experts in one tensor, as real kernels lay them out.

    Its size does not depend on how many tokens each expert gets. The fake kernel takes bf16 only
    (torch 2.13), the real ones fp32 too.
    """
    size = [left.shape[-2], right.shape[-1]]
    if left.dim() == right.dim():  # the gradients of the experts' weights
        size = [offsets.shape[0], *size]
    return left.new_empty(size, dtype=out_dtype)


def _contiguous(gradient: torch.Tensor | None) -> torch.Tensor | None:
    """Layer norm's gradient as the real kernels lay it out.

    It is contiguous on every device (``native_layer_norm_backward`` in native/layer_norm.cpp and
    cuda/layer_norm_kernel.cu). The fake one has the strides of what comes in; after pooling that is
    a transposed view, which the next matrix product would copy.
    """
    return gradient if gradient is None else gradient.contiguous()


def _normalized(
    result: torch.Tensor | None, images: torch.Tensor, *, on_cuda: bool
) -> torch.Tensor | None:
    """Group norm's result, or the gradient of its input, as the real kernels lay it out.

    It has its channels first on CUDA, and on the CPU the layout of the input
    (native/group_norm.cpp). Of the fake ones, that of the forward pass has the input's layout up
    to PyTorch 2.13 and none from 2.14 on, and the gradient has that of the gradient before it.
    """
    layout = torch.contiguous_format if on_cuda else suggest_memory_format(images)
    return result if result is None else result.contiguous(memory_format=layout)


def _ctc_loss(
    log_probabilities: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of each sample, and what backward needs: as large as the longest target.

    Two states for each of its tokens and one more, at each of T times (``ctc_loss_gpu_template`` in
    cuda/LossCTC.cu; on the CPU alike).
    """
    times, count = log_probabilities.shape[:2]
    longest = int(target_lengths.max())
    states = log_probabilities.new_empty((count, times, 2 * longest + 1))
    return log_probabilities.new_empty(count), states


def _least_squares(
    left: torch.Tensor, right: torch.Tensor, rcond: float | None = None, driver: str | None = None
) -> tuple[torch.Tensor, ...]:
    """Solution, residuals, rank and singular values, for a matrix of full rank.

    The solution is worked out in the place of a copy of ``right``, by columns, and keeps all of it
    (``linalg_lstsq_out_info`` in native/BatchLinearAlgebra.cpp). Without a driver it is GELS, the
    only one that CUDA has.
    """
    *_, rows, columns = left.shape
    vectors = right.dim() == 1 or right.shape == left.shape[:-1]
    count = 1 if vectors else right.shape[-1]
    shapes = left.shape[:-2], right.shape[: -1 if vectors else -2]
    several = torch.broadcast_shapes(*shapes)
    whole = left.new_empty((*several, count, max(rows, columns)))
    solution = whole.as_strided_(
        (*several, columns, count), (*whole.stride()[:-2], 1, whole.stride(-2))
    )
    residuals = (*several, count) if rows > columns and driver != "gelsy" else (0,)
    rank = (0,) if driver in (None, "gels") else several
    singular = (*several, min(rows, columns)) if driver in ("gelsd", "gelss") else (0,)
    real = left.dtype.to_real()
    return (
        solution.squeeze_(-1) if vectors else solution,
        left.new_empty(residuals, dtype=real),
        left.new_empty(rank, dtype=torch.int64),
        left.new_empty(singular, dtype=real),
    )


INSTEAD: dict[Any, Callable[..., Any]] = {
    _aten._ctc_loss.Tensor: _ctc_loss,
    _aten.linalg_lstsq.default: _least_squares,
    **SYNC_BATCH_NORM,
}
"""Replacements of fake kernels that lack a format or a size, or that PyTorch does not have."""
if hasattr(_aten, "_grouped_mm"):  # from PyTorch 2.8 on
    INSTEAD[_aten._grouped_mm.default] = _grouped_product
