"""The cost of an operation: its floating-point operations and the bytes it moves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from . import recurrent_layers
from .trace import TRANSPOSE, Operation

_MATRIX_PRODUCTS = {
    torch.ops.aten.mm,
    torch.ops.aten.addmm,
    torch.ops.aten.bmm,
    torch.ops.aten.baddbmm,
}

_GROUPED_PRODUCT = getattr(torch.ops.aten, "_grouped_mm", None)
"""Product of a mixture of experts: multiplies each row by the weights of one. Since torch 2.8."""

_ATTENTION = {
    getattr(torch.ops.aten, f"_scaled_dot_product_{kernel}_attention{way}")
    for kernel in ("flash", "efficient", "cudnn")
    for way in ("", "_backward")
}

_CONVOLUTION_BACKWARD = torch.ops.aten.convolution_backward
_CONVOLUTIONS = (torch.ops.aten.convolution, _CONVOLUTION_BACKWARD)
_NORMS = {
    getattr(torch.ops.aten, f"native_{norm}_norm{way}")
    for norm in ("batch", "group")
    for way in ("", "_backward")
}
_RECURRENT = (torch.ops.aten._cudnn_rnn, torch.ops.aten._cudnn_rnn_backward)
_BATCH_NORM, _LAYER_NORMS = "batch_norm", ("layer_norm", "rms_norm")
_COPYING_NORMS = (*_LAYER_NORMS, "group_norm")
_LOOKUPS = {
    getattr(torch.ops.aten, name)
    for name in ("embedding", "gather", "index", "index_select", "nll_loss_forward")
}
"""They read numbers of their first tensor, not the whole of it."""
_COPIES = tuple(getattr(torch.ops.aten, name) for name in ("_to_copy", "copy_", "clone"))
_ROLL = torch.ops.aten.roll
"""Moves its tensor along one dimension after the other (``roll_common`` in
native/TensorTransformations.h)."""
_LOSS_BACKWARD = torch.ops.aten.nll_loss_backward
"""Needs the shape of what its forward pass read, no more."""
_ASKING = torch.ops.aten._local_scalar_dense
"""Reads a value. ``tolist()`` reads each here, and copies all at once for real."""
_COUNTING = {
    torch.ops.aten.nonzero,
    torch.ops.aten.masked_select,
    torch.ops.aten._unique2,
    torch.ops.aten.unique_dim,
    torch.ops.aten.unique_consecutive,
    torch.ops.aten.bincount,
    torch.ops.aten.equal,
}
"""They read from the GPU how large their result is, or what it is."""
_INDEXING = {
    torch.ops.aten.index,
    torch.ops.aten.index_put,
    torch.ops.aten.index_put_,
    torch.ops.aten._index_put_impl_,
}
"""They look for the places that a mask selects first, as ``nonzero`` does (``expandTensors`` in
``aten/src/ATen/native/IndexingUtils.h``)."""
_MASKS = (torch.bool, torch.uint8)

OWN_KERNELS = "memorymark"
"""Namespace of operators that stand for kernels that PyTorch does not have."""

own_products: dict[Any, tuple[int, int]] = {}
"""Operators that stand for products of rows with the rows of a weight, with the places of both
among their arguments."""

own_writes: set[Any] = set()
"""Operators that stand for kernels which read or write each of their tensors, but not both."""

_NAMESPACES = ("aten", "bitsandbytes", OWN_KERNELS)


@cache
def operator_name(func: Any) -> str:
    """The operator's name without its overload, such as ``aten.addmm``."""
    return str(func._overloadpacket)


def is_matrix_product(func: Any) -> bool:
    """Whether cuBLAS runs it, and so wants its workspace."""
    return func._overloadpacket in _MATRIX_PRODUCTS


def work(
    phase: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> list[Operation]:
    """The kernels of one operator call, in order; see :func:`cost` for the arguments.

    Layer norms copy what is not contiguous (``expect_contiguous`` in
    ``cuda/layer_norm_kernel.cu``) without another operator call: the hidden states of a vision
    model whose patches are transposed only once, in every layer. So do group norms from PyTorch
    2.14 on; before, the copy is an operator call.
    """
    operation = cost(phase, func, args, kwargs, output)
    if operation is None:
        return []
    name = operation.name
    if not any(norm in name for norm in _COPYING_NORMS):
        return [operation]
    copied = [rows for rows in args[: 1 + ("backward" in name)] if not rows.is_contiguous()]
    return [*(_transpose(phase, rows) for rows in copied), operation]


def _transpose(phase: str, rows: torch.Tensor) -> Operation:
    return Operation(TRANSPOSE, _format_of(rows), 0, 2 * _bytes(rows), phase)


def cost(
    phase: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> Operation | None:
    """The work of one operator call; ``None`` where no kernel runs (views, allocations, asking).

    Args:
        phase: The phase of the step.
        func: The operator overload, as a dispatch mode sees it.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        output: Its result.
    """
    if func.namespace not in _NAMESPACES or _is_view(func) or reads_a_value(func):
        return None
    inputs = tensors_in((args, kwargs))
    outputs = tensors_in(output)
    if not inputs and not outputs:
        return None
    written = outputs or _mutated(func, args, kwargs)
    packet = func._overloadpacket
    times = len(args[1]) if packet is _ROLL else 1
    return Operation(
        name=operator_name(func),
        dtype=_format_of((inputs or outputs)[0]),
        flops=_flops(packet, args, kwargs, output),
        bytes_moved=times * (_bytes_read(packet, inputs, written) + sum(map(_bytes, written)))
        + 2 * kwargs.get("unseen_bytes", 0),  # of our own kernels, in memory that no tensor has
        phase=phase,
        shape=_shape(func, args, kwargs, output),
        channels_last=packet in (*_CONVOLUTIONS, *_NORMS) and _is_channels_last(inputs),
        unrolled=_is_unrolled(func, inputs, written),
        waits=_waits(packet, args),
    )


def reads_a_value(func: Any) -> bool:
    """Whether the operator call reads a number from the device, as ``tensor.item()`` does."""
    return func._overloadpacket is _ASKING


def blocks_the_host(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a copy, if it is one between the host and the GPU, is waited for."""
    return func._overloadpacket in _COPIES and not (
        kwargs.get("non_blocking") or args[2:3] == (True,)
    )


def _waits(packet: Any, args: tuple[Any, ...]) -> bool:
    """The value of :attr:`~engine.tracing.trace.Operation.waits` that the call itself decides."""
    if packet in _INDEXING:
        return any(index is not None and index.dtype in _MASKS for index in args[1])
    return packet in _COUNTING


def _bytes_read(
    packet: Any, inputs: Sequence[torch.Tensor], written: Sequence[torch.Tensor]
) -> int:
    if packet in _LOOKUPS:
        table, *rest = inputs
        looked_up = max(tensor.numel() for tensor in (*rest, written[0]))
        return min(_bytes(table), looked_up * table.element_size()) + sum(map(_bytes, rest))
    if packet in own_writes:
        return 0
    if packet is _LOSS_BACKWARD:
        return sum(_bytes(tensor) for tensor in inputs if tensor.shape != written[0].shape)
    return sum(map(_bytes, inputs))


def _is_unrolled(
    func: Any, inputs: Sequence[torch.Tensor], written: Sequence[torch.Tensor]
) -> bool:
    """The value of :attr:`~engine.tracing.trace.Operation.unrolled`.

    ``gpu_kernel_impl`` in ``aten/src/ATen/native/cuda/CUDALoops.cuh`` loads several numbers at once
    where every tensor lies in memory like the result, in the format that it computes in. Casts to
    half precision do so too (``Copy.cu``).
    """
    copies = func._overloadpacket in _COPIES
    if not written or not (copies or torch.Tag.pointwise in func.tags):
        return False
    given = [tensor for tensor in inputs if tensor.dim()]
    result = written[0]
    if any(_layout(tensor) != _layout(result) for tensor in given):
        return True
    formats = {one.dtype for one in (*given, *written) if one.is_floating_point()}
    casts_down = copies and inputs[-1].itemsize > result.itemsize
    return len(formats) > 1 and not casts_down


def _layout(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Sizes and strides, where there is more than one element."""
    return [pair for pair in zip(tensor.shape, tensor.stride(), strict=True) if pair[0] != 1]


def _shape(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> tuple[int, ...]:
    """The value of :attr:`~engine.tracing.trace.Operation.shape`."""
    packet = func._overloadpacket
    if packet is _GROUPED_PRODUCT:
        return _grouped_shape(args)
    if packet in _MATRIX_PRODUCTS:
        left, right = [value for value in args if isinstance(value, torch.Tensor)][-2:]
        sizes = (math.prod(left.shape[:-2]), left.shape[-2], right.shape[-1], left.shape[-1])
        return (*sizes, int(left.stride(-1) != 1 and right.stride(-2) != 1))
    if packet in own_products:
        left, right = (args[place] for place in own_products[packet])
        return (1, *left.shape[:1], *right.shape)
    if packet in _CONVOLUTIONS:
        return _convolution_shape(packet, args, output)
    if packet in _ATTENTION:
        backward = "backward" in str(packet)
        query, key = args[backward : backward + 2]
        batch, heads, length, width = query.shape
        return (batch * heads, length, key.shape[2], width, int(_is_causal(func, args, kwargs)))
    name = str(packet)
    if _BATCH_NORM in name:
        return (args[0].shape[1],)
    if any(norm in name for norm in _LAYER_NORMS):
        return (math.prod(args[1 + ("backward" in name)]),)
    return ()


def _grouped_shape(args: tuple[Any, ...]) -> tuple[int, ...]:
    """As of one product with all rows, however they are shared among the experts."""
    left, right = args[:2]
    return (1, left.shape[-2], right.shape[-1], left.shape[-1])


def _convolution_shape(packet: Any, args: tuple[Any, ...], output: Any) -> tuple[int, ...]:
    backward = packet is _CONVOLUTION_BACKWARD
    given, weight = args[backward : backward + 2]
    transposed, groups = args[6 + backward], args[8 + backward]
    visited = given if transposed else args[0] if backward else output
    result = args[0] if backward else output
    pixels, taps = (math.prod(tensor.shape[2:]) for tensor in (visited, weight))
    is_product = taps == 1 and given.shape[2:] == result.shape[2:]
    positions = given.shape[0] * pixels
    return (positions, *weight.shape[:2], taps, groups, pixels * is_product)


def _is_causal(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    names = [argument.name for argument in func._schema.arguments]
    place = names.index("is_causal")
    return bool(args[place] if place < len(args) else kwargs.get("is_causal", False))


def _is_channels_last(inputs: Iterable[torch.Tensor]) -> bool:
    """Whether its first images lie in memory with their channels last."""
    images = next((tensor for tensor in inputs if tensor.dim() == 4), None)
    return (
        images is not None
        and not images.is_contiguous()
        and images.is_contiguous(memory_format=torch.channels_last)
    )


def _flops(packet: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> int:
    if packet in _CONVOLUTIONS:
        # Each product of an input and a weight in the forward pass has one in either gradient.
        # PyTorch's formula (2.11 to 2.13) does not divide the weight's gradient by the groups.
        times = sum(args[10][:2]) if packet is _CONVOLUTION_BACKWARD else 1
        return 2 * times * math.prod(_convolution_shape(packet, args, output)[:4])
    if packet is _GROUPED_PRODUCT:
        return 2 * math.prod(_grouped_shape(args))
    if packet in _RECURRENT:
        return recurrent_layers.flops(args, backward=packet is not _RECURRENT[0])
    formula = flop_registry.get(packet)
    if formula is None:
        return 0
    given: Iterable[Any] = args
    if packet in _ATTENTION:
        given = _for_every_head(args)
    elif packet in _MATRIX_PRODUCTS:  # one of them is told the format of its result, too
        given = tensors_in(args)
    return int(formula(*given, **kwargs, out_val=output))


def _for_every_head(args: tuple[Any, ...]) -> list[Any]:
    """Shapes in the place of attention's tensors, the keys of grouped queries once for each head.

    Each head computes with them all the same; torch 2.11 cannot count them otherwise.
    """
    heads = args[0].shape[1]
    return [
        (tensor.shape[0], heads, *tensor.shape[2:]) if isinstance(tensor, torch.Tensor) else tensor
        for tensor in args[:4]
    ]


@cache
def _is_view(func: Any) -> bool:
    """Whether the operator returns a window on its input, or memory nobody has written yet."""
    if func._overloadpacket in (torch.ops.aten.empty, torch.ops.aten.empty_like):
        return True
    returned = func._schema.returns
    return bool(returned) and all(
        result.alias_info is not None and not result.alias_info.is_write for result in returned
    )


def _mutated(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that an operator with no result writes to."""
    given = [*args, *kwargs.values()]
    return [
        tensor
        for argument, value in zip(func._schema.arguments, given, strict=False)
        if argument.alias_info is not None and argument.alias_info.is_write
        for tensor in tensors_in(value)
    ]


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in an operator's arguments or result, or in the state of an optimizer."""
    if isinstance(value, torch.Tensor):
        return [value]
    found: list[torch.Tensor] = []
    _collect(value, found)
    return found


def _collect(value: Any, found: list[torch.Tensor]) -> None:
    """Find the tensors in a list or the like. Most of what operators get is looked at once."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for item in value:
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, list | tuple | dict):
            _collect(item, found)


def _format_of(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _bytes(tensor: torch.Tensor) -> int:
    """Bytes behind a tensor; an expanded one holds fewer than its shape says."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
