"""The workspaces that cuDNN takes for convolutions.

cuDNN's kernels for tensor cores read and write images with the channels last. Where PyTorch's have
them second, cuDNN copies: input, output and weight, in their number format, into a workspace that
PyTorch gets from its caching allocator (``run_conv_plan`` in aten/src/ATen/native/cudnn/
Conv_v8.cpp) and returns at the end of the kernel. In a profile of ResNet-50's step in fp32 on an
H100 (2026-11-26, cuDNN 9.19) the rules below have all 65 copies from the channels-last layout, and
all but one of the 157 to it.

Not covered: cuDNN has no rule that is public, takes a smaller workspace where memory is short, and
searches for itself if ``torch.backends.cudnn.benchmark`` is on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

_FORWARD = torch.ops.aten.convolution.default
_BACKWARD = torch.ops.aten.convolution_backward.default

_ALIGNED_BYTES = 16
"""A pixel's channels are padded to this, as tensor cores load them."""
_SUM_BYTES = 4
_MULTIPROCESSORS = 132
"""Number on the H100: a weight's gradient is summed in as many parts as keep them all busy. Eight
convolutions of 64 by 64 channels there took 14 such parts, for 9 tiles."""
_TILE = 128
_NARROW_TILE = 64
_OWN_BYTES = 1024
"""Beside copies and parts, in that convolution."""
_MIN_PIXELS_OF_PRODUCT = 400
"""Pixels from which on the gradient of a pointwise weight is a matrix product per image, whose
results are then added up: so at 28 by 28 pixels, but no longer at 14 by 14."""


@dataclass(frozen=True)
class Convolution:
    """A convolution as cuDNN sees it, of one to three dimensions.

    Attributes:
        images: Number of images, N.
        channels_in, channels_out: Channels of all groups.
        pixels_in, pixels_out: Positions of one image.
        taps: Positions of the kernel.
        groups: Each sees its own share of the channels.
        pointwise: Whether an output pixel depends on the input pixel at its place alone.
        item_bytes: Size of a number in its format.
        channels_last: Whether the images have that layout already.
    """

    images: int
    channels_in: int
    channels_out: int
    pixels_in: int
    pixels_out: int
    taps: int
    groups: int
    pointwise: bool
    item_bytes: int
    channels_last: bool

    @property
    def pass_bytes(self) -> int:
        """Workspace of the forward pass, and of the gradient of the input."""
        return 0 if self._copies_nothing or self._is_product else self._copied_bytes + _OWN_BYTES

    @property
    def weight_gradient_bytes(self) -> int:
        """Workspace of the gradient of the weight."""
        if self._copies_nothing:
            return 0
        if self._is_product and self.pixels_in >= _MIN_PIXELS_OF_PRODUCT:
            return self.images * self._sum_bytes
        return self._copied_bytes + self._parts * self._sum_bytes + _OWN_BYTES

    @property
    def _copies_nothing(self) -> bool:
        """Whether it is computed in the layout that it has.

        So it is assumed of groups, of which none was profiled; PyTorch's own kernels compute
        depthwise ones (``use_cudnn_depthwise`` in native/Convolution.cpp).
        """
        return self.groups > 1 or self.channels_last

    @property
    def _is_product(self) -> bool:
        """Whether it is a matrix product per image, whose rows are aligned (4 bytes or more)."""
        aligned = self.pixels_in % (4 if self.item_bytes == _SUM_BYTES else 2) == 0
        return self.pointwise and aligned

    @property
    def _copied_bytes(self) -> int:
        """The copies of input, output and weight; a weight of one tap is alike in both layouts."""
        pixels = self._padded(self.channels_in) * self.pixels_in
        pixels += self._padded(self.channels_out) * self.pixels_out
        weight = self.channels_out * self._padded(self.channels_in) * self.taps
        return self.item_bytes * (self.images * pixels + (weight if self.taps > 1 else 0))

    @property
    def _sum_bytes(self) -> int:
        """The weight's gradient, in fp32."""
        return _SUM_BYTES * self.channels_out * self.channels_in * self.taps

    @property
    def _parts(self) -> int:
        rows = -(-self.channels_out // _tile(self.channels_out))
        columns = -(-self.channels_in * self.taps // _tile(self.channels_in))
        return max(1, _MULTIPROCESSORS // (rows * columns))

    def _padded(self, channels: int) -> int:
        unit = _ALIGNED_BYTES // self.item_bytes
        return -(-channels // unit) * unit


def _tile(channels: int) -> int:
    return _NARROW_TILE if channels <= _NARROW_TILE else _TILE


def workspaces(func: Any, args: tuple[Any, ...], copies: Callable[[int], bool]) -> Iterator[int]:
    """Bytes of the workspaces of a convolution, one after another; none of other operators.

    Args:
        func: The operator.
        args: As the dispatcher passes them.
        copies: Whether the GPU's kernels need copies of numbers of a given size in bytes.
    """
    if func is _FORWARD and copies(args[0].element_size()):
        sizes = [convolution(*args[:2], *args[3:9]).pass_bytes]
    elif func is _BACKWARD and copies(args[1].element_size()):
        found, (of_input, of_weight, _) = convolution(*args[1:3], *args[4:10]), args[10]
        sizes = [found.pass_bytes * of_input, found.weight_gradient_bytes * of_weight]
    else:
        sizes = []
    yield from filter(None, sizes)


def convolution(
    input: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Convolution:
    """A convolution from the arguments of ``aten.convolution``.

    Args:
        input: (N, C, …), with one to three dimensions of pixels.
        weight: (out, C / groups, …); (C, out / groups, …) if transposed.
        stride: Stride by dimension, or one for all, as are the following.
        padding: On either side.
        dilation: Dilation of the kernel.
        output_padding: On one side, if transposed.
        transposed: Whether it is the gradient of a convolution.
        groups: Each sees its own share of the channels.
    """
    kernel, pixels = weight.shape[2:], input.shape[2:]
    each = range(len(kernel))
    strides, paddings, dilations, more = (
        list(values) * len(kernel) if len(values) == 1 else list(values)
        for values in (stride, padding, dilation, output_padding)
    )
    reach = [dilations[i] * (kernel[i] - 1) + 1 for i in each]
    if transposed:
        made = [(pixels[i] - 1) * strides[i] - 2 * paddings[i] + reach[i] + more[i] for i in each]
    else:
        made = [(pixels[i] + 2 * paddings[i] - reach[i]) // strides[i] + 1 for i in each]
    channels_last = _has_channels_last(input) or _has_channels_last(weight)
    return Convolution(
        images=input.shape[0],
        channels_in=input.shape[1],
        channels_out=weight.shape[1] * groups if transposed else weight.shape[0],
        pixels_in=prod(pixels),
        pixels_out=prod(made),
        taps=prod(kernel),
        groups=groups,
        pointwise=prod(kernel) == 1 and set(strides) == {1} and not any(paddings),
        item_bytes=input.element_size(),
        channels_last=channels_last,
    )


def _has_channels_last(tensor: torch.Tensor) -> bool:
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    layout = layouts.get(tensor.dim())
    if layout is None or tensor.is_contiguous():
        return False
    return tensor.is_contiguous(memory_format=layout)
