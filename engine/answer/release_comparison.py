"""The same step with two sets of versions: the difference in memory and time, and its parts.

A pure function of two answers, wherever they come from: two environments of one machine, or two
analyses of a lab.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from ..core.numbers import difference
from ..core.sizes import gib
from ..interface.result import AnalysisResult, StepProfile
from ..interface.trial import Source, Trial
from ..versions.software import PACKAGES, format_versions
from .figures import STEP_TIME
from .step_differences import (
    MemoryDifference,
    TimeDifference,
    about_peaks,
    differences_by_module,
    differences_by_tensor,
    differences_in_time,
)


@dataclass(frozen=True)
class ReleaseAnswer:
    """The answer with one set of versions.

    Attributes:
        software: Versions by package.
        batch_size: The current batch, which the other numbers are of.
        fits: Whether it fits.
        source: Source of its numbers.
        peak_allocated_bytes, device_used_bytes, step_seconds: As of a
            :class:`~engine.interface.trial.Trial`.
        largest_batch_size: The largest batch that fits.
    """

    software: dict[str, str]
    batch_size: int
    fits: bool
    source: Source
    peak_allocated_bytes: int | None
    device_used_bytes: int | None
    step_seconds: float | None
    largest_batch_size: int


@dataclass(frozen=True)
class ReleaseComparison:
    """The same step with two sets of versions.

    Attributes:
        gpu: The GPU, for people to read.
        before, after: The two answers.
        verdict: The differences of the whole step, in sentences.
        tensors: The largest differences by module and operator, by their size.
        modules: The same by module.
        operations: The largest differences in time, by their size.
        caveats: What to know about these numbers.
    """

    gpu: str
    before: ReleaseAnswer
    after: ReleaseAnswer
    verdict: str
    tensors: list[MemoryDifference] = field(default_factory=list)
    modules: list[MemoryDifference] = field(default_factory=list)
    operations: list[TimeDifference] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def why_not_comparable(before: AnalysisResult, after: AnalysisResult) -> str:
    """Why two answers cannot be compared by their software; empty if they can.

    Whether they are about the same workload is for the caller to know.
    """
    if before.gpu != after.gpu:
        return "they are about different GPUs"
    if before.current_batch_size is None or after.current_batch_size is None:
        return "there is no current batch to compare"
    if before.current_batch_size != after.current_batch_size:
        return "their current batches differ"
    if current_trial(before).source != current_trial(after).source:
        return "one is measured and the other predicted"
    if not version_changes(before.software, after.software):
        return "they ran with the same versions"
    return ""


def compare_releases(before: AnalysisResult, after: AnalysisResult) -> ReleaseComparison:
    """Compare two answers about the same step; see :func:`why_not_comparable`."""
    tensors: list[MemoryDifference] = []
    modules: list[MemoryDifference] = []
    operations: list[TimeDifference] = []
    if before.profile is not None and after.profile is not None:
        tensors = differences_by_tensor(before.profile, after.profile)
        modules = differences_by_module(before.profile, after.profile)
        operations = differences_in_time(before.profile, after.profile)
    return ReleaseComparison(
        gpu=after.gpu.name,
        before=release_answer(before),
        after=release_answer(after),
        verdict=_verdict(before, after),
        tensors=tensors,
        modules=modules,
        operations=operations,
        caveats=_caveats(before.profile, after.profile),
    )


def find_release(count: int, at: Callable[[int], AnalysisResult]) -> tuple[int, int]:
    """Bisect to the neighbours among several releases that differ.

    Each time it goes on in the half that holds the larger part of the difference: where the batch
    stops fitting, else in memory, else in time. So with more than one change it finds a large one.

    Args:
        count: Number of releases, at least two.
        at: Gives the answer with one of them, by its number from 0.

    Returns:
        The numbers of the release before the change and of the one after it.
    """
    low, high = 0, count - 1
    while high - low > 1:
        middle = (low + high) // 2
        halves = ((low, middle), (middle, high))
        low, high = max(halves, key=lambda half: difference_between(at(half[0]), at(half[1])))
    return low, high


def difference_between(before: AnalysisResult, after: AnalysisResult) -> tuple[bool, int, float]:
    """The size of a difference, to be compared with others: fit first, then bytes, then seconds."""
    one, other = current_trial(before), current_trial(after)
    return (
        one.fits != other.fits,
        abs((one.peak_allocated_bytes or 0) - (other.peak_allocated_bytes or 0)),
        abs((one.step_seconds or 0.0) - (other.step_seconds or 0.0)),
    )


def release_answer(result: AnalysisResult) -> ReleaseAnswer:
    trial = current_trial(result)
    return ReleaseAnswer(
        software=result.software,
        batch_size=trial.batch_size,
        fits=trial.fits,
        source=trial.source,
        peak_allocated_bytes=trial.peak_allocated_bytes,
        device_used_bytes=trial.device_used_bytes,
        step_seconds=trial.step_seconds,
        largest_batch_size=result.largest_batch_size,
    )


def current_trial(result: AnalysisResult) -> Trial:
    """The trial of the current batch, without moves."""
    size = result.current_batch_size
    return result.today or next(trial for trial in result.trials if trial.batch_size == size)


def version_changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, list[str]]:
    """The versions that differ, before and after, by package; builds of a version are the same."""
    pairs = {
        package: [versions.get(package, "").partition("+")[0] for versions in (before, after)]
        for package in dict.fromkeys((*before, *after))
    }
    return {package: pair for package, pair in pairs.items() if pair[0] != pair[1]}


def release_order(versions: Mapping[str, str]) -> list[tuple[str, list[int]]]:
    """Sorts versions from the oldest to the newest, the most important package first."""
    return [
        (package, [int(number) for number in re.findall(r"\d+", versions[package])])
        for package in PACKAGES
        if package in versions
    ]


def sides(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, str]:
    """The versions that differ, as people read them, before and after."""
    changes = version_changes(before, after)
    first, second = (
        {package: pair[side] or "not installed" for package, pair in changes.items()}
        for side in range(2)
    )
    return format_versions(first), format_versions(second)


def _verdict(before: AnalysisResult, after: AnalysisResult) -> str:
    old, new = sides(before.software, after.software)
    first, second = current_trial(before), current_trial(after)
    batch = f"Batch {second.batch_size:,}"
    said = [f"{batch} {'fits' if second.fits else 'does not fit'} with either."]
    if first.fits and not second.fits:
        said = [f"{batch} runs out of memory with {new}. With {old}, it fits."]
    elif second.fits and not first.fits:
        said = [f"{batch} fits with {new}. With {old}, it runs out of memory."]
    if first.peak_allocated_bytes and second.peak_allocated_bytes:
        said.append(_memory(first.peak_allocated_bytes, second.peak_allocated_bytes, old, new))
    largest = before.largest_batch_size, after.largest_batch_size
    if largest[0] != largest[1]:
        said.append(f"The largest batch that fits is {largest[1]:,} instead of {largest[0]:,}.")
    if first.fits and second.fits and first.step_seconds and second.step_seconds:
        said.append(_time(first.step_seconds, second.step_seconds))
    return f"{' '.join(said)} ({second.source.capitalize()})"


def _memory(before: int, after: int, old: str, new: str) -> str:
    if before == after:
        return f"The peak is the same with {old} and {new}: {gib(after)}."
    change = difference(after / before)
    by = "less than 0.5% apart" if change == "same" else change
    return f"The peak is {gib(after)} with {new} and {gib(before)} with {old} ({by})."


def _time(before: float, after: float) -> str:
    change = difference(after / before)
    if change == "same":
        return f"A step takes the same time: {STEP_TIME.with_unit(after)}."
    took = STEP_TIME.with_unit(before)
    return f"A step takes {STEP_TIME.with_unit(after)} instead of {took} ({change})."


def _caveats(before: StepProfile | None, after: StepProfile | None) -> list[str]:
    if before is None or after is None:
        return ["Tensors and operations are compared for predictions by this version only."]
    return list(filter(None, [about_peaks(before, after)]))
