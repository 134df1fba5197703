"""Factors on the step-time model fitted to the calibration half, and the report on what to change.

The fit is deterministic. A factor that the measurements do not determine stays 1: a step that never
waits for its host says nothing about the host's speed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from typing import TypeVar

from benchmarks.gpu.report import (
    GROUPS,
    MEMORY,
    Comparison,
    comparisons,
    errors,
    half_of,
    in_group,
    within,
)
from benchmarks.gpu.report_text import ERROR_HEADINGS, error_cells, table
from benchmarks.gpu.results import Results, Row
from benchmarks.gpu.workloads import BY_NAME, Half
from engine.gpus import GPUS, catalogue_name
from engine.prediction.timing.intervals import (
    ASSUMED_MEMORY,
    MIN_MEMORY_SHARE,
    Counted,
    RelativeRange,
    Residual,
    as_toml,
    range_of,
    step_time_range,
)
from engine.prediction.timing.speed_model import speed_model
from engine.prediction.timing.step_time import Family
from engine.prediction.timing.work import UNSCALED, Scales, StepWork

MIN_TIME_SHARE = 0.10
"""The least width of a range of step times to each side: clocks, temperature and drivers alone
differ by this much."""
_FARTHEST = 100.0
"""No factor is larger, or smaller than its inverse: far beyond any observed value."""
_FIRST_STEP, _LAST_STEP = 0.5, 1e-4
"""Steps of the search, as natural logarithms: from 65% to a hundredth of a percent."""
_MAX_ROUNDS = 4000

_Of = TypeVar("_Of")


@dataclass(frozen=True)
class Timed:
    """A measured step time, with the work of the step."""

    workload: str
    batch_size: int
    work: StepWork
    measured_seconds: float

    def error(self, scales: Scales) -> float:
        """Predicted over measured, minus 1."""
        return self.work.seconds(scales) / self.measured_seconds - 1


def fit(steps: Sequence[Timed], start: Scales = UNSCALED) -> Scales:
    """The factors with the least squared logarithm of predicted over measured.

    Each workload has the same weight, however many of its steps were measured. The search tries
    each factor in turn, up and down, then the direction of the last round, by shrinking steps.

    Args:
        steps: Steps of the calibration half.
        start: Starting point of the search; kept where the steps do not determine a value.

    Raises:
        ValueError: If there are no steps.
    """
    if not steps:
        raise ValueError("no step was timed")
    of_workload: dict[str, list[Timed]] = {}
    for one in steps:
        of_workload.setdefault(one.workload, []).append(one)

    def cost(point: tuple[float, ...]) -> float:
        scales = Scales(*map(math.exp, point))
        return math.fsum(
            math.fsum(_squared(one, scales) for one in group) / len(group)
            for group in of_workload.values()
        )

    return Scales(*map(math.exp, _descend(cost, tuple(map(math.log, astuple(start))))))


def _squared(one: Timed, scales: Scales) -> float:
    return math.log(one.work.seconds(scales) / one.measured_seconds) ** 2


def _descend(
    cost: Callable[[tuple[float, ...]], float], start: tuple[float, ...]
) -> tuple[float, ...]:
    best, least, step = start, cost(start), _FIRST_STEP
    for _ in range(_MAX_ROUNDS):
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
    most = math.log(_FARTHEST)
    return tuple(min(max(value, -most), most) for value in point)


def widest(rows: Iterable[Row], gpu: str, source: str) -> list[Residual]:
    """The residuals of the calibration half that determine the range of memory: two per workload.

    A range depends on the extreme residuals and on the number of configurations, so the lowest and
    the highest ratio of each workload are enough. Emulated capacities are left out, since a
    calibration file cannot express them. So is the device used, which a calibration file would
    compare with the catalogue's context instead of the measured one.

    Args:
        rows: Trials with their predictions.
        gpu: The catalogue's name for the device.
        source: The measurement's source, date and versions.
    """
    of_workload: dict[str, list[Comparison]] = {}
    whole = [row for row in rows if row.limit_bytes is None]
    for counted in (Counted.PEAK_ALLOCATED, Counted.PEAK_RESERVED):
        for compared in comparisons(whole, counted):
            if half_of(compared.row.workload) == Half.CALIBRATION:
                of_workload.setdefault(compared.row.workload, []).append(compared)
    found = []
    for of_it in of_workload.values():
        ends = _ends(sorted(of_it, key=lambda one: one.error))
        found += [_residual(compared, gpu, source) for compared in ends]
    return found


def slowest_and_fastest(
    steps: Iterable[Timed], scales: Scales, gpu: str, source: str
) -> list[Residual]:
    """As :func:`widest`, for step times predicted with given factors."""
    of_workload: dict[str, list[Timed]] = {}
    for one in steps:
        of_workload.setdefault(one.workload, []).append(one)
    found = []
    for of_it in of_workload.values():
        ordered = sorted(of_it, key=lambda one: one.error(scales))
        for step in _ends(ordered):
            found.append(
                Residual(
                    gpu=gpu,
                    workload=fields_of(step.workload),
                    batch_size=step.batch_size,
                    counted=Counted.STEP_SECONDS,
                    measured=step.measured_seconds,
                    predicted=step.work.seconds(scales),
                    source=source,
                )
            )
    return found


def _ends(ordered: Sequence[_Of]) -> list[_Of]:
    """The first and the last element, or the only one."""
    return [ordered[0], *ordered[1:][-1:]]


def _residual(compared: Comparison, gpu: str, source: str) -> Residual:
    return Residual(
        gpu=gpu,
        workload=fields_of(compared.row.workload),
        batch_size=compared.row.measured.batch_size,
        counted=compared.counted,
        measured=compared.measured,
        predicted=compared.predicted,
        source=source,
    )


def fields_of(name: str) -> dict[str, object]:
    """The workload's fields as a calibration file has them: a config as JSON text."""
    fields = dict(BY_NAME[name].fields)
    if "config" in fields:
        fields["config"] = json.dumps(fields["config"])
    return fields


def count_within(errors: Iterable[float], within: RelativeRange) -> tuple[int, int]:
    """The number of measurements in the range of their predictions, and the number of all.

    Args:
        errors: Predicted over measured, minus 1.
        within: The range, relative to the prediction.
    """
    ratios = [1 / (1 + error) for error in errors]
    return sum(within.low <= ratio <= within.high for ratio in ratios), len(ratios)


_MEANING = {
    "compute": "FLOP rate of all kernels",
    "bandwidth": "memory bandwidth of all kernels",
    "kernels": "how fast a kernel starts and drains",
    "host": "how fast the host launches operations",
    "copy": "rate from the host's memory to the GPU",
}
_UNDECIDED = 1e-9


def calibration(results: Results, steps: Sequence[Timed], known: Iterable[Residual]) -> str:
    """The text of a calibration.

    Args:
        results: Results with their predictions.
        steps: Their step times, with the work of each step; empty for a GPU not in the catalogue.
        known: The current residuals of the calibration file.
    """
    before = [residual for residual in known if residual.gpu != _gpu(results)]
    parts = [
        f"Fitted to the calibration half of {len(results.rows):,} trials, measured on "
        f"{results.device.facts.name}; the held-out half is not used."
    ]
    parts += _catalogue(results)
    fitted = UNSCALED
    if ours := [step for step in steps if half_of(step.workload) == Half.CALIBRATION]:
        fitted = fit(ours)
        parts += [_constants(fitted), _step_errors(steps, fitted)]
    else:
        parts.append("Step times: none of the calibration half can be fitted.")
    source = _source(results)
    memory = widest(results.rows, _gpu(results), source)
    times = slowest_and_fastest(ours, fitted, _gpu(results), source)
    parts.append(_ranges(results, steps, fitted, (before, memory, times)))
    if rows := "".join(as_toml(residual) for residual in (*memory, *times)):
        parts.append(
            "For engine/prediction/timing/calibration.toml, replacing earlier rows of this GPU:\n"
            + rows.rstrip()
        )
    return "\n\n".join(parts) + "\n"


def _catalogue(results: Results) -> list[str]:
    facts = results.device.facts
    gpu = GPUS.get(_gpu(results))
    if gpu is None:
        return [f"{facts.name} is not in the catalogue, engine/gpus/: no step time is fitted."]
    differing = [
        f"  {name} = {getattr(facts, name):_}  (measured; so far {getattr(gpu, name):_})"
        for name in ("total_bytes", "context_bytes")
        if getattr(facts, name) != getattr(gpu, name)
    ]
    return ["\n".join([f"In engine/gpus/, [{gpu.name}]:", *differing])] if differing else []


def _constants(fitted: Scales) -> str:
    written = ", ".join(
        f"{field.name}={getattr(fitted, field.name):.3g}" for field in fields(fitted)
    )
    undecided = [
        f"{field.name} ({_MEANING[field.name]})"
        for field in fields(fitted)
        if abs(getattr(fitted, field.name) - 1) < _UNDECIDED
    ]
    file = "engine/prediction/timing/step_time.toml"
    text = f"Step times, as factors on the rates in {file}:\n  {written}"
    if undecided:
        text += f"\nNot determined by these steps, so left at 1: {', '.join(undecided)}."
    return text


def _step_errors(steps: Sequence[Timed], fitted: Scales) -> str:
    rows = []
    for group in GROUPS:
        of_it = [step for step in steps if within(group, step.workload)]
        for when, scales in (("before", UNSCALED), ("after", fitted)):
            found = errors(step.error(scales) for step in of_it)
            rows.append([f"{group}, {when}", *error_cells(found)])
    return "Error of the step time\n" + table(("workloads", *ERROR_HEADINGS), rows)


def _ranges(
    results: Results,
    steps: Sequence[Timed],
    fitted: Scales,
    residuals: tuple[list[Residual], list[Residual], list[Residual]],
) -> str:
    before, memory, times = residuals
    gpu_memory = [one for one in before if one.counted in MEMORY]
    known_times = [one for one in before if one.counted is Counted.STEP_SECONDS]
    published = step_time_range(
        Family.OTHER, _gpu(results) in speed_model().gpus, launch_limited=False
    )
    rows = []
    for when, more in (("before", []), ("after", memory)):
        found = range_of([*gpu_memory, *more], MIN_MEMORY_SHARE, ASSUMED_MEMORY)
        rows.append(["memory", when, str(found), *_memory_within(results, found)])
    for when, timed, scales in (("before", [], UNSCALED), ("after", times, fitted)):
        found = range_of([*known_times, *timed], MIN_TIME_SHARE, published)
        cells = [
            _out_of(count_within((s.error(scales) for s in steps if within(g, s.workload)), found))
            for g in (Half.CALIBRATION, Half.HELD_OUT)
        ]
        rows.append(["step time", when, str(found), *cells])
    headings = ("range of", "rows", "from the prediction", "calibration inside", "held-out inside")
    return "Ranges, and how many measured numbers they contain\n" + table(headings, rows)


def _memory_within(results: Results, found: RelativeRange) -> list[str]:
    cells = []
    for group in (Half.CALIBRATION, Half.HELD_OUT):
        rows = in_group(group, results.rows)
        all_errors = [one.error for counted in MEMORY for one in comparisons(rows, counted)]
        cells.append(_out_of(count_within(all_errors, found)))
    return cells


def _out_of(counts: tuple[int, int]) -> str:
    return f"{counts[0]:,} of {counts[1]:,}"


def _gpu(results: Results) -> str:
    name = results.device.facts.name
    return catalogue_name(name) or name


def _source(results: Results) -> str:
    when = results.runs[-1][0][:10] if results.runs else "undated"
    return f"benchmarks.gpu, {when}, torch {results.device.ran_on.torch}"
