"""Constants fitted to the calibration half: pure, and the same every time.

What the figures do not decide keeps its assumed value: a step that never waits for its host says
nothing of the host's speed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import TypeVar

from engine.benchmarks.gpu.report import Figure, figures, half_of
from engine.benchmarks.gpu.results import Row
from engine.benchmarks.gpu.workloads import BY_NAME, Half
from engine.prediction.intervals import Counted, RelativeRange, Residual
from engine.prediction.step_time import ASSUMED, Efficiencies, StepWork

_BOUNDS = ((0.02, 1.0), (0.02, 1.0), (1e-7, 1e-3), (1e-6, 1e-2), (1e8, 1e12))
"""Of the five efficiencies: shares up to the peak; the others far beyond what was ever seen."""
_FIRST_STEP, _LAST_STEP = 0.5, 1e-4
"""Steps of the search, as natural logarithms: from 65 % at once to a hundredth of a percent."""
_MOST_ROUNDS = 4000

_Of = TypeVar("_Of")


@dataclass(frozen=True)
class Timed:
    """A measured step time, with the work it was spent on."""

    workload: str
    batch_size: int
    work: StepWork
    measured_seconds: float

    def error(self, efficiencies: Efficiencies) -> float:
        """Predicted over measured, less one."""
        return self.work.seconds(efficiencies) / self.measured_seconds - 1


def fit(steps: Sequence[Timed], start: Efficiencies = ASSUMED) -> Efficiencies:
    """The efficiencies with the least squared logarithm of predicted over measured.

    Each workload weighs the same, however many of its steps were measured. The search goes up and
    down along one efficiency after another, and along the way of its last round, by steps that
    shrink.

    Args:
        steps: Of the calibration half.
        start: Where the search begins, and what is kept where the steps do not decide.

    Raises:
        ValueError: If there are no steps.
    """
    if not steps:
        raise ValueError("no step was timed")
    of_workload: dict[str, list[Timed]] = {}
    for one in steps:
        of_workload.setdefault(one.workload, []).append(one)

    def cost(point: tuple[float, ...]) -> float:
        efficiencies = Efficiencies(*map(math.exp, point))
        return math.fsum(
            math.fsum(_squared(one, efficiencies) for one in group) / len(group)
            for group in of_workload.values()
        )

    return Efficiencies(*map(math.exp, _descend(cost, tuple(map(math.log, astuple(start))))))


def _squared(one: Timed, efficiencies: Efficiencies) -> float:
    return math.log(one.work.seconds(efficiencies) / one.measured_seconds) ** 2


def _descend(
    cost: Callable[[tuple[float, ...]], float], start: tuple[float, ...]
) -> tuple[float, ...]:
    best, least, step = start, cost(start), _FIRST_STEP
    for _ in range(_MOST_ROUNDS):
        if step < _LAST_STEP:
            break
        before = best
        for axis in range(len(best)):
            for way in (step, -step):
                tried = _moved(best, axis, way)
                if (found := cost(tried)) < least:
                    best, least = tried, found
                    break
        if best == before:
            step /= 2
            continue
        ahead = _bounded(tuple(2 * new - old for new, old in zip(best, before, strict=True)))
        if (found := cost(ahead)) < least:
            best, least = ahead, found
    return best


def _moved(point: tuple[float, ...], axis: int, way: float) -> tuple[float, ...]:
    return _bounded((*point[:axis], point[axis] + way, *point[axis + 1 :]))


def _bounded(point: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(
        min(max(value, math.log(low)), math.log(high))
        for value, (low, high) in zip(point, _BOUNDS, strict=True)
    )


def widest(rows: Iterable[Row], gpu: str, source: str) -> list[Residual]:
    """The residuals of the calibration half that decide a range of memory: two of each workload.

    A range depends on the farthest residuals and on how many configurations there are, so the
    lowest and the highest ratio of each workload are enough. Those at emulated capacities are left
    out, since a calibration file knows none, and so is the device used: there the catalogue's
    context would count, and here it is the measured one.

    Args:
        rows: Trials with their predictions.
        gpu: The catalogue's name for the device.
        source: Who measured, when, with what.
    """
    of_workload: dict[str, list[Figure]] = {}
    whole = [row for row in rows if row.limit_bytes is None]
    for counted in (Counted.PEAK_ALLOCATED, Counted.PEAK_RESERVED):
        for figure in figures(whole, counted):
            if half_of(figure.row.workload) == Half.CALIBRATION:
                of_workload.setdefault(figure.row.workload, []).append(figure)
    found = []
    for of_it in of_workload.values():
        ends = _ends(sorted(of_it, key=lambda one: one.error))
        found += [_residual(figure, gpu, source) for figure in ends]
    return found


def slowest_and_fastest(
    steps: Iterable[Timed], efficiencies: Efficiencies, gpu: str, source: str
) -> list[Residual]:
    """The same for step times, predicted with given efficiencies: two of each workload."""
    of_workload: dict[str, list[Timed]] = {}
    for one in steps:
        of_workload.setdefault(one.workload, []).append(one)
    found = []
    for of_it in of_workload.values():
        ordered = sorted(of_it, key=lambda one: one.error(efficiencies))
        for step in _ends(ordered):
            found.append(
                Residual(
                    gpu=gpu,
                    workload=fields_of(step.workload),
                    batch_size=step.batch_size,
                    counted=Counted.STEP_SECONDS,
                    measured=step.measured_seconds,
                    predicted=step.work.seconds(efficiencies),
                    source=source,
                )
            )
    return found


def _ends(ordered: Sequence[_Of]) -> list[_Of]:
    """The first and the last, or the only one."""
    return [ordered[0], *ordered[1:][-1:]]


def _residual(figure: Figure, gpu: str, source: str) -> Residual:
    return Residual(
        gpu=gpu,
        workload=fields_of(figure.row.workload),
        batch_size=figure.row.measured.batch_size,
        counted=figure.counted,
        measured=figure.measured,
        predicted=figure.predicted,
        source=source,
    )


def fields_of(name: str) -> dict[str, object]:
    """The fields of a workload as a calibration file has them: a config as its text."""
    fields = dict(BY_NAME[name].fields)
    if "config" in fields:
        fields["config"] = json.dumps(fields["config"])
    return fields


def held(errors: Iterable[float], within: RelativeRange) -> tuple[int, int]:
    """How many figures lie in a range of their predictions, and how many there are.

    Args:
        errors: Predicted over measured, less one.
        within: A range about the predicted figure.
    """
    ratios = [1 / (1 + error) for error in errors]
    return sum(within.low <= ratio <= within.high for ratio in ratios), len(ratios)
