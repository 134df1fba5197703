"""What a sum over columns takes on a GPU besides its result.

PyTorch divides a long sum among thread blocks, and each leaves its partial sums in scratch memory.
A bias's gradient is such a sum: over all rows of a batch.

Source: ``setReduceConfig`` and ``global_memory_size`` in aten/src/ATen/native/cuda/Reduce.cuh,
torch 2.6 to 2.13.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

_aten = torch.ops.aten
_SUMS = (_aten.sum.dim_IntList, _aten.mean.dim)

_THREADS = 512
"""Of a block (``MAX_NUM_THREADS``), shared by the elements that a thread loads at once."""
_WARP = 32
_MOST_LOADED = 4
"""Elements that a thread loads at once, if they lie side by side."""
_LEAST_VALUES, _MOST_VALUES = 16, 256
"""Values of each thread: more are divided among blocks, but not into fewer."""
_INDEXABLE = 2**31 - 1
"""Bytes of a tensor that one kernel takes; a larger one is halved."""


@dataclass(frozen=True)
class ColumnSum:
    """A sum of the rows of a matrix whose columns lie side by side in memory.

    The scratch that it takes grows with the rows in steps, and no further than the GPU has blocks
    to run at once: so it is no straight line in the batch size, unlike tensors.

    Attributes:
        rows: Values of each sum.
        columns: How many sums.
        loaded: Elements that a thread loads at once.
        element_bytes: Of a value.
        sum_bytes: Of a partial sum.
        resident_threads: How many threads the GPU runs at once.
    """

    rows: int
    columns: int
    loaded: int
    element_bytes: int
    sum_bytes: int
    resident_threads: int

    @property
    def scratch_bytes(self) -> int:
        """What is allocated for partial sums while the kernel runs; 0 where one block sums all."""
        rows = self.rows
        while rows * self.columns * self.element_bytes > _INDEXABLE:
            rows = -(-rows // 2)
        threads, across = _THREADS // self.loaded, self.columns // self.loaded
        width = min(_power_of_two(min(across, threads)), _WARP)
        height = min(_power_of_two(min(rows, threads)), threads // width)
        width = min(_power_of_two(min(across, threads)), threads // height)
        if rows < min(_LEAST_VALUES * height, _MOST_VALUES):
            return 0  # each warp sums columns of its own
        values, grid = -(-rows // height), -(-across // width)
        at_once = self.resident_threads // (width * height)
        if values < _MOST_VALUES or grid > at_once:
            return 0
        blocks = max(
            min(-(-at_once // grid), -(-values // _LEAST_VALUES)), -(-values // _MOST_VALUES)
        )
        if blocks == 1:
            return 0
        return self.sum_bytes * self.columns * blocks * width * self.loaded


_MULTIPROCESSORS = {7.0: 80, 7.5: 40, 8.0: 108, 8.6: 84, 8.9: 142, 9.0: 132, 12.0: 170}
"""Of the largest GPU in the catalogue with each compute capability."""
_THREADS_OF_ONE = {7.0: 2048, 7.5: 1024, 8.0: 2048, 8.6: 1536, 8.9: 1536, 9.0: 2048, 12.0: 1536}
"""What a multiprocessor runs at once (CUDA C++ programming guide, technical specifications)."""


def resident_threads(compute_capability: float) -> int:
    """How many threads a GPU runs at once; of an unknown kind, as the last older one."""
    like = max((one for one in _MULTIPROCESSORS if one <= compute_capability), default=7.0)
    return _MULTIPROCESSORS[like] * _THREADS_OF_ONE[like]


def _power_of_two(number: int) -> int:
    """The largest that is no larger than a positive number."""
    return 1 << (number.bit_length() - 1)


def column_sum(func: Any, args: Sequence[Any], resident_threads: int) -> ColumnSum | None:
    """The sum over columns that an operator is; ``None`` if it is something else.

    A sum along rows takes next to nothing: a number for each block that runs at once.

    Args:
        func: The operator.
        args: Its arguments.
        resident_threads: How many threads the GPU runs at once.
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
        tensor: What is summed.
        over: Stride and size of each dimension that is summed over.
        kept: The same of the others, by their stride.
    """
    (stride, side_by_side), *others = kept
    if stride != 1:
        return 1
    while others and others[0][0] == side_by_side:
        side_by_side *= others.pop(0)[1]
    strides = [stride for stride, _ in (*over, *others)]
    loaded = _MOST_LOADED
    for number in (tensor.storage_offset(), side_by_side, *strides):
        while number % loaded:
            loaded //= 2
    return loaded


def numbers_of(sums: Mapping[int, ColumnSum]) -> list[int]:
    """Rows and columns of each, which are straight lines in the batch size."""
    return [number for each in sums.values() for number in (each.rows, each.columns)]


def at_numbers(sums: Mapping[int, ColumnSum], numbers: Sequence[int]) -> dict[int, ColumnSum]:
    """The same sums with other :func:`numbers_of`."""
    return {
        tensor: replace(each, rows=rows, columns=columns)
        for (tensor, each), rows, columns in zip(
            sums.items(), numbers[::2], numbers[1::2], strict=True
        )
    }


def with_scratch(sizes: Sequence[int], sums: Mapping[int, ColumnSum]) -> list[int]:
    """Sizes of tensors by id, those that are scratch as the sums that use them have it."""
    settled = list(sizes)
    for tensor, each in sums.items():
        settled[tensor] = each.scratch_bytes
    return settled
