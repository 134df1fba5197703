"""The parts of a step that differ between two profiles of it, the largest difference first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from ..interface.result import OperationTime, StepProfile, TensorGroup

MAX_LISTED = 10
"""The largest differences of each kind that are listed."""
_MIN_SHARE = 0.001
"""Smaller ones, as a share of all memory at the peak or of all kernels' time, are left out."""


@dataclass(frozen=True)
class MemoryDifference:
    """Tensors alive at the peak whose bytes differ.

    Attributes:
        module: As of a :class:`~engine.interface.result.TensorGroup`; empty for none.
        operation: The operator that created them; empty for parameters, and where all of a module
            count.
        category: As in ``Trial.breakdown``; empty where all of a module count.
        before_bytes, after_bytes: Bytes of all of them.
        before_count, after_count: Number of tensors.
    """

    module: str
    operation: str
    category: str
    before_bytes: int = 0
    after_bytes: int = 0
    before_count: int = 0
    after_count: int = 0

    @property
    def added_bytes(self) -> int:
        return self.after_bytes - self.before_bytes


@dataclass(frozen=True)
class TimeDifference:
    """Kernels of one operator whose predicted time in a step differs.

    Attributes:
        before_seconds, after_seconds: Time of all of them on the GPU.
        before_count, after_count: Number of kernels.
    """

    operation: str
    before_seconds: float = 0.0
    after_seconds: float = 0.0
    before_count: int = 0
    after_count: int = 0

    @property
    def added_seconds(self) -> float:
        return self.after_seconds - self.before_seconds


def differences_by_tensor(before: StepProfile, after: StepProfile) -> list[MemoryDifference]:
    """The largest differences at the peak, by module, operator and category."""
    return _largest_of(_in_memory(before.tensors, after.tensors))


def differences_by_module(before: StepProfile, after: StepProfile) -> list[MemoryDifference]:
    """The largest differences at the peak, by module."""
    return _largest_of(_by_module(_in_memory(before.tensors, after.tensors)))


def differences_in_time(before: StepProfile, after: StepProfile) -> list[TimeDifference]:
    """The largest differences in the time of kernels, by operator."""
    return _longest_of(_in_time(before.operations, after.operations))


def about_peaks(before: StepProfile, after: StepProfile) -> str:
    """Sentence where the peaks are in different phases of the step; else empty."""
    if before.peak_phase == after.peak_phase:
        return ""
    return (
        f"The peak moved from {before.peak_phase} to {after.peak_phase}, so tensors of two moments "
        "are compared."
    )


def _in_memory(
    before: Iterable[TensorGroup], after: Iterable[TensorGroup]
) -> list[MemoryDifference]:
    found: dict[tuple[str, str, str], MemoryDifference] = {}
    for group in before:
        key = (group.module, group.operation, group.category)
        found[key] = MemoryDifference(*key, before_bytes=group.size_bytes, before_count=group.count)
    for group in after:
        key = (group.module, group.operation, group.category)
        known = found.get(key, MemoryDifference(*key))
        found[key] = replace(known, after_bytes=group.size_bytes, after_count=group.count)
    return list(found.values())


def _by_module(differences: Iterable[MemoryDifference]) -> list[MemoryDifference]:
    totals: dict[str, Counter[str]] = {}
    for one in differences:
        numbers = {
            name: value
            for name, value in asdict(one).items()
            if name not in ("module", "operation", "category")
        }
        totals.setdefault(one.module, Counter()).update(numbers)
    return [MemoryDifference(module, "", "", **total) for module, total in totals.items()]


def _in_time(
    before: Iterable[OperationTime], after: Iterable[OperationTime]
) -> list[TimeDifference]:
    found = {
        one.operation: TimeDifference(
            one.operation, before_seconds=one.seconds, before_count=one.count
        )
        for one in before
    }
    for one in after:
        known = found.get(one.operation, TimeDifference(one.operation))
        found[one.operation] = replace(known, after_seconds=one.seconds, after_count=one.count)
    return list(found.values())


def _largest_of(differences: Iterable[MemoryDifference]) -> list[MemoryDifference]:
    listed = list(differences)
    least = _MIN_SHARE * max(
        sum(one.before_bytes for one in listed), sum(one.after_bytes for one in listed)
    )
    differing = [one for one in listed if one.added_bytes and abs(one.added_bytes) >= least]
    return sorted(differing, key=lambda one: abs(one.added_bytes), reverse=True)[:MAX_LISTED]


def _longest_of(differences: Iterable[TimeDifference]) -> list[TimeDifference]:
    listed = list(differences)
    least = _MIN_SHARE * max(
        sum(one.before_seconds for one in listed), sum(one.after_seconds for one in listed)
    )
    differing = [one for one in listed if one.added_seconds and abs(one.added_seconds) >= least]
    return sorted(differing, key=lambda one: abs(one.added_seconds), reverse=True)[:MAX_LISTED]
