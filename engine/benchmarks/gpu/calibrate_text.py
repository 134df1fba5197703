"""What a calibration says: which constants to change, where, and what that does to the errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

from engine.benchmarks.gpu.calibrate import Timed, fit, held, slowest_and_fastest, widest
from engine.benchmarks.gpu.report import GROUPS, MEMORY, errors, figures, half_of, of_group, within
from engine.benchmarks.gpu.report_text import ERROR_HEADINGS, error_cells, table
from engine.benchmarks.gpu.results import Results
from engine.benchmarks.gpu.workloads import Half
from engine.gpus import GPUS, catalogue_name
from engine.prediction.intervals import (
    ASSUMED_MEMORY,
    ASSUMED_STEP_TIME,
    LEAST_MEMORY_SHARE,
    LEAST_TIME_SHARE,
    Counted,
    RelativeRange,
    Residual,
    as_toml,
    range_of,
)
from engine.prediction.step_time import ASSUMED, Efficiencies

_MEANING = {
    "compute": "share of the peak FLOP rate",
    "bandwidth": "share of the peak bandwidth",
    "kernel_seconds": "s for a kernel to start and drain",
    "host_seconds": "s for the host to launch one operation",
    "copy_bytes_per_second": "bytes per s of a batch on its way to the GPU",
}
_UNDECIDED = 1e-9


def calibration(results: Results, steps: Sequence[Timed], known: Iterable[Residual]) -> str:
    """The text of a calibration.

    Args:
        results: With their predictions.
        steps: Their step times, with the work of each step; none where the GPU is not in the
            catalogue.
        known: The residuals of the calibration file so far.
    """
    before = [residual for residual in known if residual.gpu != _gpu(results)]
    said = [
        f"Fitted to the calibration half of {len(results.rows):,} trials, measured on "
        f"{results.device.facts.name}; the held-out half is not looked at."
    ]
    said += _catalogue(results)
    fitted = ASSUMED
    if ours := [step for step in steps if half_of(step.workload) == Half.CALIBRATION]:
        fitted = fit(ours)
        said += [_constants(fitted), _step_errors(steps, fitted)]
    else:
        said.append("Step times: none of the calibration half is known with its work.")
    source = _source(results)
    memory = widest(results.rows, _gpu(results), source)
    times = slowest_and_fastest(ours, fitted, _gpu(results), source)
    said.append(_ranges(results, steps, fitted, (before, memory, times)))
    if rows := "".join(as_toml(residual) for residual in (*memory, *times)):
        said.append(
            "Put into engine/prediction/calibration.toml, in place of earlier rows of this GPU:\n"
            + rows.rstrip()
        )
    return "\n\n".join(said) + "\n"


def _catalogue(results: Results) -> list[str]:
    """What the catalogue has of this GPU, where it was measured to be otherwise."""
    facts = results.device.facts
    gpu = GPUS.get(_gpu(results))
    if gpu is None:
        return [f"{facts.name} is not in the catalogue, engine/gpus.toml: no step time is fitted."]
    differing = [
        f"  {name} = {getattr(facts, name):_}  (measured; so far {getattr(gpu, name):_})"
        for name in ("total_bytes", "context_bytes")
        if getattr(facts, name) != getattr(gpu, name)
    ]
    return ["\n".join([f"In engine/gpus.toml, [{gpu.name}]:", *differing])] if differing else []


def _constants(fitted: Efficiencies) -> str:
    written = ", ".join(
        f"{field.name}={getattr(fitted, field.name):.3g}" for field in fields(fitted)
    )
    undecided = [
        f"{field.name} ({_MEANING[field.name]})"
        for field in fields(fitted)
        if abs(getattr(fitted, field.name) / getattr(ASSUMED, field.name) - 1) < _UNDECIDED
    ]
    said = f"Step times, for ASSUMED in engine/prediction/step_time.py:\n  Efficiencies({written})"
    if undecided:
        said += f"\nNot decided by these steps, so left as assumed: {', '.join(undecided)}."
    return said


def _step_errors(steps: Sequence[Timed], fitted: Efficiencies) -> str:
    rows = []
    for group in GROUPS:
        of_it = [step for step in steps if within(group, step.workload)]
        for when, efficiencies in (("before", ASSUMED), ("after", fitted)):
            found = errors(step.error(efficiencies) for step in of_it)
            rows.append([f"{group}, {when}", *error_cells(found)])
    return "Error of the step time\n" + table(("workloads", *ERROR_HEADINGS), rows)


def _ranges(
    results: Results,
    steps: Sequence[Timed],
    fitted: Efficiencies,
    residuals: tuple[list[Residual], list[Residual], list[Residual]],
) -> str:
    """The ranges before and after, and how many figures of each half they hold."""
    before, memory, times = residuals
    gpu_memory = [one for one in before if one.counted in MEMORY]
    known_times = [one for one in before if one.counted is Counted.STEP_SECONDS]
    rows = []
    for when, more in (("before", []), ("after", memory)):
        found = range_of([*gpu_memory, *more], LEAST_MEMORY_SHARE, ASSUMED_MEMORY)
        rows.append(["memory", when, found.in_words(), *_memory_held(results, found)])
    for when, timed, efficiencies in (("before", [], ASSUMED), ("after", times, fitted)):
        found = range_of([*known_times, *timed], LEAST_TIME_SHARE, ASSUMED_STEP_TIME)
        cells = [
            _out_of(held((s.error(efficiencies) for s in steps if within(g, s.workload)), found))
            for g in (Half.CALIBRATION, Half.HELD_OUT)
        ]
        rows.append(["step time", when, found.in_words(), *cells])
    headings = ("range of", "rows", "from the prediction", "calibration held", "held-out held")
    return "Ranges, and how many measured figures lie in them\n" + table(headings, rows)


def _memory_held(results: Results, found: RelativeRange) -> list[str]:
    cells = []
    for group in (Half.CALIBRATION, Half.HELD_OUT):
        rows = of_group(group, results.rows)
        all_errors = [one.error for counted in MEMORY for one in figures(rows, counted)]
        cells.append(_out_of(held(all_errors, found)))
    return cells


def _out_of(counts: tuple[int, int]) -> str:
    return f"{counts[0]:,} of {counts[1]:,}"


def _gpu(results: Results) -> str:
    name = results.device.facts.name
    return catalogue_name(name) or name


def _source(results: Results) -> str:
    when = results.runs[-1][0][:10] if results.runs else "undated"
    return f"engine.benchmarks.gpu, {when}, torch {results.device.ran_on.torch}"
