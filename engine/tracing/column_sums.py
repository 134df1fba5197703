"""Memory that a sum over columns takes on a GPU besides its result.

PyTorch divides a long sum among thread blocks, and each leaves its partial sums in scratch memory.
A bias's gradient is such a sum: over all rows of a batch.

Source: ``setReduceConfig`` and ``global_memory_size`` in aten/src/ATen/native/cuda/Reduce.cuh,
torch 2.6 to 2.13. Nothing here loads torch: traces that were kept are read without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..core.alike import Alike

_THREADS = 512
"""Threads of a block (``MAX_NUM_THREADS``), divided by the elements that each loads at once."""
_WARP = 32
MAX_LOADED = 4
"""Elements that a thread loads at once, if they lie side by side."""
_MIN_VALUES, _MAX_VALUES = 16, 256
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
        columns: Number of sums.
        loaded: Elements that a thread loads at once.
        element_bytes: Size of a value.
        sum_bytes: Size of a partial sum.
        resident_threads: Number of threads that the GPU runs at once.
    """

    rows: int
    columns: int
    loaded: int
    element_bytes: int
    sum_bytes: int
    resident_threads: int

    @property
    def scratch_bytes(self) -> int:
        """Bytes allocated for partial sums while the kernel runs; 0 where one block sums all."""
        rows = self.rows
        while rows * self.columns * self.element_bytes > _INDEXABLE:
            rows = -(-rows // 2)
        threads, across = _THREADS // self.loaded, self.columns // self.loaded
        width = min(_power_of_two(min(across, threads)), _WARP)
        height = min(_power_of_two(min(rows, threads)), threads // width)
        width = min(_power_of_two(min(across, threads)), threads // height)
        if rows < min(_MIN_VALUES * height, _MAX_VALUES):
            return 0  # each warp sums columns of its own
        values, grid = -(-rows // height), -(-across // width)
        at_once = self.resident_threads // (width * height)
        if values < _MAX_VALUES or grid > at_once:
            return 0
        blocks = max(min(-(-at_once // grid), -(-values // _MIN_VALUES)), -(-values // _MAX_VALUES))
        if blocks == 1:
            return 0
        return self.sum_bytes * self.columns * blocks * width * self.loaded

    def grown(self, other: ColumnSum, more: int) -> ColumnSum:
        """This sum with ``more`` times the difference to another one added."""
        return replace(
            self,
            rows=self.rows + more * (other.rows - self.rows),
            columns=self.columns + more * (other.columns - self.columns),
        )


_MULTIPROCESSORS = {7.0: 80, 7.5: 40, 8.0: 108, 8.6: 84, 8.9: 142, 9.0: 132, 12.0: 170}
"""Multiprocessors of the largest GPU in the catalogue with each compute capability."""
_THREADS_OF_ONE = {7.0: 2048, 7.5: 1024, 8.0: 2048, 8.6: 1536, 8.9: 1536, 9.0: 2048, 12.0: 1536}
"""Threads that a multiprocessor runs at once (CUDA C++ programming guide, specifications)."""


def resident_threads(compute_capability: float) -> int:
    """Threads that a GPU runs at once; for an unknown kind, those of the last older one."""
    like = max((one for one in _MULTIPROCESSORS if one <= compute_capability), default=7.0)
    return _MULTIPROCESSORS[like] * _THREADS_OF_ONE[like]


def _power_of_two(number: int) -> int:
    """The largest that is no larger than a positive number."""
    return 1 << (number.bit_length() - 1)


class ColumnSums:
    """The sums of a step at every batch size.

    Their rows and columns grow with it as sizes of tensors do.

    Args:
        traced: The sums, by the scratch that they use, at each of the batch sizes that were traced.
    """

    def __init__(self, *traced: Mapping[int, ColumnSum]) -> None:
        self._tensors = list(traced[0])
        self._rows = Alike(tuple(one[tensor] for one in traced) for tensor in self._tensors)

    def at(self, interpolate: Callable[..., Sequence[int]]) -> dict[int, ColumnSum]:
        """The sums at another batch size, by their numbers at each of those."""

        def there(alike: tuple[ColumnSum, ...]) -> ColumnSum:
            rows, columns = interpolate(*((one.rows, one.columns) for one in alike))
            return replace(alike[0], rows=rows, columns=columns)

        return dict(zip(self._tensors, self._rows.map(there), strict=True))


def with_scratch(sizes: Sequence[int], sums: Mapping[int, ColumnSum]) -> list[int]:
    """Sizes of tensors by id, those that are scratch as the sums that use them have it."""
    settled = list(sizes)
    for tensor, each in sums.items():
        settled[tensor] = each.scratch_bytes
    return settled
