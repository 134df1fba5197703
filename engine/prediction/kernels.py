"""Which kind of kernel runs an operation, and what decides how fast it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

from ..tracing.trace import Operation


class Kind(IntEnum):
    """Kinds of kernel; those of a kind reach like shares of a GPU's peak rates."""

    PRODUCT = 0
    BATCHED_PRODUCT = 1
    ATTENTION = 2
    POINTWISE_CONVOLUTION = 3
    POINTWISE_CONVOLUTION_BACKWARD = 4
    CONVOLUTION = 5
    CONVOLUTION_BACKWARD = 6
    GROUPED_CONVOLUTION = 7
    GROUPED_CONVOLUTION_BACKWARD = 8
    ODD_GROUPED_CONVOLUTION = 9
    ODD_GROUPED_CONVOLUTION_BACKWARD = 10
    DEPTHWISE_CONVOLUTION = 11
    DEPTHWISE_CONVOLUTION_BACKWARD = 12
    BATCH_NORM = 13
    BATCH_NORM_BACKWARD = 14
    LAYER_NORM = 15
    SOFTMAX = 16
    ELEMENTWISE = 17
    COPY = 18
    REDUCTION = 19
    LOOKUP = 20
    OPTIMIZER = 21


class Format(IntEnum):
    """Which units compute, with PyTorch's default settings."""

    FP32 = 0
    TF32 = 1
    HALF = 2


FORMATS = len(Format)

DEPTHWISE = (Kind.DEPTHWISE_CONVOLUTION, Kind.DEPTHWISE_CONVOLUTION_BACKWARD)
COMPUTING = tuple(kind for kind in Kind if kind <= Kind.DEPTHWISE_CONVOLUTION_BACKWARD)
"""The kinds with FLOPs; the others only move bytes."""

TILE = 128
"""Rows and columns of a product that one multiprocessor computes at a time, as cuBLAS' and cuDNN's
usual kernels have them."""

_GROUPS_AT_ONCE = 32
"""With the channels last, ResNeXts with 32 and 64 groups run several times faster than RegNets and
NFNets with other numbers of them; with the channels first, all run alike."""

_PRODUCTS = {
    "aten.mm": Kind.PRODUCT,
    "aten.addmm": Kind.PRODUCT,
    "aten._grouped_mm": Kind.PRODUCT,
    "memorymark.compare_tiles": Kind.PRODUCT,
    "memorymark.compare_tiles_backward": Kind.PRODUCT,
    "memorymark.score_tiles": Kind.PRODUCT,
    "memorymark.score_tiles_backward": Kind.PRODUCT,
    "memorymark.product_8bit_": Kind.PRODUCT,
    "aten.bmm": Kind.BATCHED_PRODUCT,
    "aten.baddbmm": Kind.BATCHED_PRODUCT,
}
_CONVOLUTIONS = ("aten.convolution", "aten.convolution_backward")
_NAMED = {
    **dict.fromkeys(
        (
            "aten.clone",
            "aten._to_copy",
            "aten.copy_",
            "aten.cat",
            "aten.stack",
            "aten.constant_pad_nd",
            "aten.slice_backward",
            "aten.select_backward",
            "aten.roll",
            "aten.flip",
            "aten.repeat",
        ),
        Kind.COPY,
    ),
    **dict.fromkeys(
        ("aten.sum", "aten.mean", "aten.linalg_vector_norm", "aten.var_mean", "aten.amax"),
        Kind.REDUCTION,
    ),
}
_PARTS = (
    ("attention", Kind.ATTENTION),
    ("batch_norm_backward", Kind.BATCH_NORM_BACKWARD),
    ("group_norm_backward", Kind.BATCH_NORM_BACKWARD),
    ("batch_norm", Kind.BATCH_NORM),
    ("group_norm", Kind.BATCH_NORM),
    ("layer_norm", Kind.LAYER_NORM),
    ("rms_norm", Kind.LAYER_NORM),
    ("softmax", Kind.SOFTMAX),
    ("embedding", Kind.LOOKUP),
    ("index", Kind.LOOKUP),
    ("gather", Kind.LOOKUP),
    ("scatter", Kind.LOOKUP),
    ("pool", Kind.LOOKUP),
    ("upsample", Kind.LOOKUP),
    ("im2col", Kind.LOOKUP),
    ("col2im", Kind.LOOKUP),
)
"""Parts of an operator's name, the first that it has deciding."""

_FLEX_ATTENTION = "memorymark.flex_attention"
_OF_FLASH_ATTENTION = 0.65
"""The speed that is assumed of FlexAttention, in the middle of what was published of an A100: 0.9
forward and 0.85 backward of its kernels, tuned (https://pytorch.org/blog/flexattention/), and 0.45
in a step of Llama 3 8B as ``torch.compile`` makes them by default. That step fell from 2,546 to
2,168 tokens a second (https://github.com/pytorch/torchtitan/pull/887), of which attention takes
0.4 of 2.5 s here."""

_UPDATES = ("aten._fused_", "aten._foreach_", "memorymark.adamw")
"""Operators of optimizers, by how their names begin."""

_VIEWS = {"aten._unsafe_view", "aten.as_strided_", "aten.new_empty_strided"}
"""They return a window on memory, or memory that nobody has written yet."""


@dataclass(frozen=True)
class Kernel:
    """One kernel, as far as its time goes.

    Attributes:
        kind: The rates that it reaches.
        format: The units that compute.
        flops: Its floating-point operations.
        bytes_moved: Of its tensors, each once.
        inner: How many products each element of the result sums over.
        columns: Of the result; of a convolution the output channels, in a group if it computes with
            matrices.
        tiles: How many tiles of :data:`TILE` by :data:`TILE` the result has.
        relaid: 1 for a convolution whose images have to be laid out anew, else 0: tensor cores want
            their channels last, PyTorch's depthwise kernels want them first.
    """

    kind: int
    format: int
    flops: float
    bytes_moved: float
    inner: float = 1.0
    columns: float = 1.0
    tiles: float = 1.0
    relaid: float = 0.0


def kernel_of(operation: Operation, *, tf32: bool, tf32_products: bool) -> Kernel | None:
    """The kernel of an operation; ``None`` where none runs.

    Args:
        operation: Of a trace.
        tf32: Whether the GPU has units for TF32.
        tf32_products: Whether matrix products of fp32 may use them; convolutions always may, by
            PyTorch's default.
    """
    if operation.name in _VIEWS:
        return None
    kind = kind_of(operation)
    unit = _format(operation, tf32, tf32_products)
    flops, moved, shape = operation.flops, operation.bytes_moved, operation.shape
    if kind is Kind.ATTENTION and shape and shape[4]:
        return Kernel(kind, unit, flops / 2, moved)  # scores above the diagonal are left out
    if kind is Kind.ATTENTION or not shape:
        speed = _OF_FLASH_ATTENTION if operation.name.startswith(_FLEX_ATTENTION) else 1
        return Kernel(kind, unit, flops / speed, moved)
    if operation.name in _PRODUCTS:
        times, rows, columns, inner = shape
        return Kernel(kind, unit, flops, moved, inner, columns, times * _tiles(rows, columns))
    positions, first, second, taps, groups = shape
    last = operation.channels_last
    if kind in DEPTHWISE:  # no product of matrices: no tensor cores
        return Kernel(kind, Format.FP32, flops, moved, columns=first, relaid=float(last))
    columns = first // groups
    tiles = groups * _tiles(positions, columns)
    relaid = float(groups == 1 and not last)
    return Kernel(kind, unit, flops, moved, second * taps, columns, tiles, relaid)


def kind_of(operation: Operation) -> Kind:
    """The kind of an operation's kernel."""
    name = operation.name
    if name in _PRODUCTS:
        return _PRODUCTS[name]
    is_update = operation.phase == "backward" and name.startswith(_UPDATES)
    if operation.phase == "optimizer" or is_update:
        return Kind.OPTIMIZER
    if name in _CONVOLUTIONS and operation.shape:
        return _convolution(operation)
    if name in _NAMED:
        return _NAMED[name]
    return next((kind for part, kind in _PARTS if part in name), Kind.ELEMENTWISE)


def _convolution(operation: Operation) -> Kind:
    _, _, channels_of_a_group, taps, groups = operation.shape
    if groups == 1:
        kind = Kind.POINTWISE_CONVOLUTION if taps == 1 else Kind.CONVOLUTION
    elif channels_of_a_group == 1:
        kind = Kind.DEPTHWISE_CONVOLUTION
    elif operation.channels_last and groups % _GROUPS_AT_ONCE:
        kind = Kind.ODD_GROUPED_CONVOLUTION
    else:
        kind = Kind.GROUPED_CONVOLUTION
    return Kind[f"{kind.name}_BACKWARD"] if operation.name.endswith("backward") else kind


def _format(operation: Operation, tf32: bool, tf32_products: bool) -> Format:
    if operation.dtype in ("float16", "bfloat16", "int8"):  # assumed to be as fast
        return Format.HALF
    if tf32 and (tf32_products or operation.name in _CONVOLUTIONS):
        return Format.TF32
    return Format.FP32


def _tiles(rows: int, columns: int) -> int:
    return math.ceil(rows / TILE) * math.ceil(columns / TILE)
