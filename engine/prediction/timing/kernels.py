"""The kind of kernel that runs an operation, and the facts that decide its speed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

from ...tracing.trace import TRANSPOSE, Operation


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
    OWN_BATCH_NORM = 15
    OWN_BATCH_NORM_BACKWARD = 16
    LAYER_NORM = 17
    LAYER_NORM_BACKWARD = 18
    SOFTMAX = 19
    ELEMENTWISE = 20
    COPY = 21
    REDUCTION = 22
    LOOKUP = 23
    OPTIMIZER = 24
    MULTI_TENSOR = 25
    UNROLLED = 26
    EFFICIENT_ATTENTION = 27
    CUDNN_ATTENTION = 28
    OWN_DEPTHWISE_CONVOLUTION = 29
    OWN_DEPTHWISE_CONVOLUTION_BACKWARD = 30
    SINGLE_DEPTHWISE_CONVOLUTION = 31
    SINGLE_DEPTHWISE_CONVOLUTION_BACKWARD = 32
    LONG_CONVOLUTION = 33
    LONG_CONVOLUTION_BACKWARD = 34
    TRANSPOSE = 35


class Format(IntEnum):
    """Units that compute, with PyTorch's default settings."""

    FP32 = 0
    TF32 = 1
    HALF = 2


FORMATS = len(Format)

DEPTHWISE = (Kind.DEPTHWISE_CONVOLUTION, Kind.DEPTHWISE_CONVOLUTION_BACKWARD)
OWN_DEPTHWISE = (Kind.OWN_DEPTHWISE_CONVOLUTION, Kind.OWN_DEPTHWISE_CONVOLUTION_BACKWARD)
SINGLE_DEPTHWISE = (Kind.SINGLE_DEPTHWISE_CONVOLUTION, Kind.SINGLE_DEPTHWISE_CONVOLUTION_BACKWARD)
LONG = (Kind.LONG_CONVOLUTION, Kind.LONG_CONVOLUTION_BACKWARD)
WITHOUT_TENSOR_CORES = (*DEPTHWISE, *OWN_DEPTHWISE, *SINGLE_DEPTHWISE, *LONG)
BATCH_NORMS = (
    Kind.BATCH_NORM,
    Kind.BATCH_NORM_BACKWARD,
    Kind.OWN_BATCH_NORM,
    Kind.OWN_BATCH_NORM_BACKWARD,
)
LAYER_NORMS = (Kind.LAYER_NORM, Kind.LAYER_NORM_BACKWARD)
ATTENTIONS = (Kind.ATTENTION, Kind.EFFICIENT_ATTENTION, Kind.CUDNN_ATTENTION)
COMPUTING = (
    *(kind for kind in Kind if kind <= Kind.DEPTHWISE_CONVOLUTION_BACKWARD),
    *(kind for kind in Kind if Kind.EFFICIENT_ATTENTION <= kind <= Kind.LONG_CONVOLUTION_BACKWARD),
)
"""The kinds with FLOPs; the others only move bytes."""

TILE = 128
"""Rows and columns of a product that one multiprocessor computes at a time, as cuBLAS' and cuDNN's
usual kernels have them."""

ALIGNED = 8
"""Numbers of half precision in the 16 bytes that tensor cores load at once (cuBLAS' documentation,
"Tensor Core Usage"): rows of matrices that do not begin at a multiple are read by slower kernels.
GPT-2's vocabulary of 50,257 and the three colours of images are the usual cases."""

SPLIT_SUMS = 8192
"""Length of the sums of a product with which cuBLAS runs twice as many blocks as the result has
tiles: it splits long sums, as those of the weights' gradients are. Of 2,048, 4,096, 8,192 and
16,384 it fits our own products in half precision best, whose result has few tiles."""

_ROWS_OF_ONE_PASS = 64 * 1024
"""Rows above which PyTorch sums the gradients of a layer norm's weights in two passes, which fill
a GPU; else one block of threads runs for every :data:`_COLUMNS_OF_A_BLOCK` columns
(``LaunchGammaBetaBackwardCUDAKernel`` in ``aten/src/ATen/native/cuda/layer_norm_kernel.cu``)."""
_COLUMNS_OF_A_BLOCK = 32
_BYTES = {"float16": 2, "bfloat16": 2}

_GROUPS_AT_ONCE = 32
"""Groups of a fast convolution: with the channels last, ResNeXts with 32 and 64 groups run several
times faster than RegNets and NFNets with other numbers of them; with the channels first, all run
alike."""

_MIN_PIXELS_OF_PRODUCT = 400
"""Pixels from which on cuDNN multiplies the channels of an image as they lie in memory where
each pixel depends on one alone: on our H100 so at 28 by 28 pixels, at 2.5 to 2.9 TB/s, and no
longer at 14 by 14. Rows that do not begin at multiples of 16 bytes, as those of DETR's 50 by 67
pixels, took three times as long."""
_LOADED_BYTES = 16

_MAX_SHORT_WINDOW = 32
"""Assumed: convolutions in groups over 9 taps use tensor cores, those over 128 taps of wav2vec 2.0
and HuBERT reached 4 to 48 TFLOP/s in bf16 and TF32 alike on our H200."""

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
    TRANSPOSE: Kind.TRANSPOSE,
    **dict.fromkeys(
        ("aten.sum", "aten.mean", "aten.linalg_vector_norm", "aten.var_mean", "aten.amax"),
        Kind.REDUCTION,
    ),
}
_LONG = 10**6
"""The length of rows where it is not known."""
_CASTS = ("aten._to_copy", "aten.copy_", "aten.clone")
_BATCH_NORM = "batch_norm"
_OWN = {
    Kind.BATCH_NORM: Kind.OWN_BATCH_NORM,
    Kind.BATCH_NORM_BACKWARD: Kind.OWN_BATCH_NORM_BACKWARD,
}
_PARTS = (
    ("efficient_attention", Kind.EFFICIENT_ATTENTION),
    ("cudnn_attention", Kind.CUDNN_ATTENTION),
    ("attention", Kind.ATTENTION),
    ("batch_norm_backward", Kind.BATCH_NORM_BACKWARD),
    ("layer_norm_backward", Kind.LAYER_NORM_BACKWARD),
    ("rms_norm_backward", Kind.LAYER_NORM_BACKWARD),
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

_MULTI_TENSOR = ("aten._fused_", "aten._foreach_", "aten._amp_foreach_")
"""Operators whose kernels each work on many tensors (``MultiTensorApply.cuh``), by how their names
begin: they move whole models, where others of an optimizer move one weight after the other."""
_UPDATES = (*_MULTI_TENSOR, "memorymark.adamw")
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
        bytes_moved: Bytes of its tensors, each once.
        inner: Number of products that each element of the result sums over; of a layer norm, the
            length of its rows.
        columns: Columns of the result; for a convolution the output channels, in a group if it
            computes with matrices.
        tiles: Number of tiles of :data:`TILE` by :data:`TILE` in the result.
        relaid: 1 for a convolution whose images have to be laid out anew, else 0: tensor cores want
            their channels last, PyTorch's depthwise kernels want them first.
        per_image: 1 for one of these that is a product of matrices for each image, aligned and
            large, which Hopper's kernels do not lay out anew, else 0.
        unaligned: 1 for a product or a convolution on tensor cores whose rows or channels are not
            :data:`ALIGNED`, else 0.
        blocks: Number of blocks of threads, where it may be too small to fill a GPU; else 0. Batch
            norms with the channels first run one for each channel, PyTorch's own
            (``aten/src/ATen/native/cuda/Normalization.cuh``) and cuDNN's, the backward pass of a
            layer norm a few for its weights.
        across: 1 for a product in TF32 whose matrices both lie across its sums, as those of the
            weights' gradients do, else 0.
    """

    kind: int
    format: int
    flops: float
    bytes_moved: float
    inner: float = 1.0
    columns: float = 1.0
    tiles: float = 1.0
    relaid: float = 0.0
    per_image: float = 0.0
    unaligned: float = 0.0
    blocks: float = 0.0
    across: float = 0.0


def kernel_of(operation: Operation, *, tf32: bool, tf32_products: bool) -> Kernel | None:
    """The kernel of an operation; ``None`` where none runs.

    Args:
        operation: An operation of a trace.
        tf32: Whether the GPU has units for TF32.
        tf32_products: Whether matrix products of fp32 may use them; convolutions always may, by
            PyTorch's default.
    """
    if operation.name in _VIEWS:
        return None
    kind = kind_of(operation)
    unit = _format(operation, tf32, tf32_products)
    flops, moved, shape = operation.flops, operation.bytes_moved, operation.shape
    if kind in ATTENTIONS:
        return _attention(operation, kind, unit)
    if kind in LAYER_NORMS:
        return _layer_norm(operation, kind, unit)
    if not shape:
        return Kernel(kind, unit, flops, moved)
    if kind in BATCH_NORMS:
        first = float(not operation.channels_last)
        return Kernel(kind, unit, flops, moved, blocks=first * shape[0])
    if operation.name in _PRODUCTS:
        return _product(operation, kind, unit)
    positions, first, second, taps, groups, _ = shape
    last = operation.channels_last
    if kind in DEPTHWISE:
        return Kernel(kind, Format.FP32, flops, moved, columns=first, relaid=float(last))
    if kind in OWN_DEPTHWISE:
        return _own_depthwise(operation, kind)
    if kind in WITHOUT_TENSOR_CORES:
        return Kernel(kind, Format.FP32, flops, moved)
    columns = first // groups
    tiles = groups * _tiles(positions, columns)
    relaid = float(groups == 1 and not last)
    unaligned = float(unit is not Format.FP32 and second % ALIGNED != 0)
    return Kernel(
        kind,
        unit,
        flops,
        moved,
        second * taps,
        columns,
        tiles,
        relaid,
        per_image=float(_is_product_per_image(operation)),
        unaligned=unaligned,
    )


def _product(operation: Operation, kind: Kind, unit: Format) -> Kernel:
    times, rows, columns, inner, *layout = operation.shape
    return Kernel(
        kind,
        unit,
        operation.flops,
        operation.bytes_moved,
        inner,
        columns,
        tiles=times * _tiles(rows, columns),
        unaligned=float(unit is not Format.FP32 and not _aligned(operation)),
        across=float(unit is Format.TF32 and any(layout)),
    )


def _is_product_per_image(operation: Operation) -> bool:
    """Whether cuDNN may multiply the channels of each image as they lie in memory."""
    pixels = operation.shape[-1]
    is_aligned = pixels * _BYTES.get(operation.dtype, 4) % _LOADED_BYTES == 0
    return is_aligned and pixels >= _MIN_PIXELS_OF_PRODUCT


def _own_depthwise(operation: Operation, kind: Kind) -> Kernel:
    """PyTorch's own kernels: one thread visits all taps of each element of its result.

    The gradient of the images visits them for each element of the images, which a stride makes more
    than those of the result.
    """
    positions, channels, _, taps, *_ = operation.shape
    flops: float = operation.flops
    if kind is Kind.OWN_DEPTHWISE_CONVOLUTION_BACKWARD:
        # Both gradients: it reads two tensors and writes one, two of them of the images' size.
        elements = operation.bytes_moved / _BYTES.get(operation.dtype, 4)
        flops = taps * (elements + positions * channels)
    return Kernel(kind, Format.FP32, flops, operation.bytes_moved, inner=taps)


def _layer_norm(operation: Operation, kind: Kind, unit: Format) -> Kernel:
    if not operation.shape:
        return Kernel(kind, unit, operation.flops, operation.bytes_moved, inner=_LONG)
    (length,) = operation.shape
    blocks = 0.0
    if kind is Kind.LAYER_NORM_BACKWARD:  # it reads two tensors and writes one
        rows = operation.bytes_moved / (3 * length * _BYTES.get(operation.dtype, 4))
        blocks = math.ceil(length / _COLUMNS_OF_A_BLOCK) * float(rows <= _ROWS_OF_ONE_PASS)
    return Kernel(kind, unit, operation.flops, operation.bytes_moved, length, blocks=blocks)


def _attention(operation: Operation, kind: Kind, unit: Format) -> Kernel:
    """The memory-efficient kernel computes fp32 without tensor cores for TF32, whatever is set."""
    flops: float = operation.flops
    if operation.name.startswith(_FLEX_ATTENTION):
        flops /= _OF_FLASH_ATTENTION
    unit = Format.FP32 if unit is Format.TF32 else unit
    if not operation.shape:
        return Kernel(kind, unit, flops, operation.bytes_moved)
    _, _, keys, width, causal = operation.shape
    if causal:
        flops /= 2  # scores above the diagonal are left out
    return Kernel(kind, unit, flops, operation.bytes_moved, inner=keys, columns=width)


def _aligned(operation: Operation) -> bool:
    """Whether the rows of a product's matrices begin at multiples of 16 bytes.

    In a forward pass the rows of the first matrix are its samples, which need not be aligned.
    """
    _, rows, columns, inner = operation.shape[:4]
    sides = (rows, columns, inner) if operation.phase == "backward" else (columns, inner)
    return all(side % ALIGNED == 0 or side < ALIGNED for side in sides)


def kind_of(operation: Operation) -> Kind:
    """The kind of an operation's kernel."""
    name = operation.name
    if name in _PRODUCTS:
        return _PRODUCTS[name]
    is_update = operation.phase == "backward" and name.startswith(_UPDATES)
    if operation.phase == "optimizer" or is_update:
        return Kind.MULTI_TENSOR if name.startswith(_MULTI_TENSOR) else Kind.OPTIMIZER
    if name in _CONVOLUTIONS and operation.shape:
        return _convolution(operation)
    if name in _CASTS and operation.unrolled:
        return Kind.UNROLLED
    if name in _NAMED:
        return _NAMED[name]
    kind = next((kind for part, kind in _PARTS if part in name), Kind.ELEMENTWISE)
    if operation.unrolled and kind is Kind.ELEMENTWISE:
        return Kind.UNROLLED
    return _OWN.get(kind, kind) if _by_own_batch_norm(operation) else kind


def _by_own_batch_norm(operation: Operation) -> bool:
    """Whether PyTorch's own kernel normalizes: cuDNN's takes no bf16.

    ``_select_batch_norm_backend`` in ``aten/src/ATen/native/Normalization.cpp``. With the channels
    last PyTorch's own is another, which is as fast.
    """
    return (
        _BATCH_NORM in operation.name
        and operation.dtype == "bfloat16"
        and not operation.channels_last
    )


def _convolution(operation: Operation) -> Kind:
    _, _, channels_of_a_group, taps, groups, _ = operation.shape
    if groups == 1:
        kind = Kind.POINTWISE_CONVOLUTION if taps == 1 else Kind.CONVOLUTION
    elif channels_of_a_group == 1:
        kind = _depthwise(operation)
    elif taps > _MAX_SHORT_WINDOW:
        kind = Kind.LONG_CONVOLUTION
    elif operation.channels_last and groups % _GROUPS_AT_ONCE:
        kind = Kind.ODD_GROUPED_CONVOLUTION
    else:
        kind = Kind.GROUPED_CONVOLUTION
    return Kind[f"{kind.name}_BACKWARD"] if operation.name.endswith("backward") else kind


def _depthwise(operation: Operation) -> Kind:
    """Kind of a depthwise convolution: cuDNN's in fp16 or with the channels last, else PyTorch's.

    ``use_cudnn_depthwise`` in ``aten/src/ATen/native/Convolution.cpp``.
    """
    if operation.dtype == "float16":
        return Kind.DEPTHWISE_CONVOLUTION
    if not operation.channels_last:
        return Kind.OWN_DEPTHWISE_CONVOLUTION
    is_half = operation.dtype in _BYTES
    return Kind.DEPTHWISE_CONVOLUTION if is_half else Kind.SINGLE_DEPTHWISE_CONVOLUTION


def _format(operation: Operation, tf32: bool, tf32_products: bool) -> Format:
    if operation.dtype in ("float16", "bfloat16", "int8"):  # assumed to be as fast
        return Format.HALF
    if tf32 and (tf32_products or operation.name in _CONVOLUTIONS):
        return Format.TF32
    return Format.FP32


def _tiles(rows: int, columns: int) -> int:
    return math.ceil(rows / TILE) * math.ceil(columns / TILE)
