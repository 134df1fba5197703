"""Operators that are sums over columns, as PyTorch's kernel computes them.

Source: ``setReduceConfig`` and ``get_output_vec_size`` in aten/src/ATen/native/cuda/Reduce.cuh,
torch 2.6 to 2.13.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .column_sums import MAX_LOADED, ColumnSum

_aten = torch.ops.aten
_SUMS = (_aten.sum.dim_IntList, _aten.mean.dim)


def column_sum(func: Any, args: Sequence[Any], resident_threads: int) -> ColumnSum | None:
    """The sum over columns that an operator is; ``None`` if it is something else.

    A sum along rows takes next to nothing: a number for each block that runs at once.

    Args:
        func: The operator.
        args: Its arguments.
        resident_threads: Number of threads that the GPU runs at once.
    """
    if func not in _SUMS or not args[1]:
        return None
    tensor: torch.Tensor = args[0]
    summed = {dim % tensor.dim() for dim in args[1]}
    sizes = [
        (stride, size, dim in summed)
        for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True))
        if size != 1
    ]
    over = [(stride, size) for stride, size, is_summed in sizes if is_summed]
    kept = sorted((stride, size) for stride, size, is_summed in sizes if not is_summed)
    if tensor.numel() == 0 or not over or not kept or min(over) < min(kept):
        return None
    is_wide = tensor.dtype in (torch.float64, torch.int64)
    return ColumnSum(
        rows=math.prod(size for _, size in over),
        columns=math.prod(size for _, size in kept),
        loaded=_loaded(tensor, over, kept),
        element_bytes=tensor.element_size(),
        sum_bytes=8 if is_wide else 4,
        resident_threads=resident_threads,
    )


def _loaded(
    tensor: torch.Tensor, over: Sequence[tuple[int, int]], kept: Sequence[tuple[int, int]]
) -> int:
    """Elements that a thread loads at once (``get_output_vec_size``).

    Args:
        tensor: The tensor to sum.
        over: Stride and size of each dimension that is summed over.
        kept: The same of the others, by their stride.
    """
    (stride, side_by_side), *others = kept
    if stride != 1:
        return 1
    while others and others[0][0] == side_by_side:
        side_by_side *= others.pop(0)[1]
    strides = [stride for stride, _ in (*over, *others)]
    loaded = MAX_LOADED
    for number in (tensor.storage_offset(), side_by_side, *strides):
        while number % loaded:
            loaded //= 2
    return loaded
