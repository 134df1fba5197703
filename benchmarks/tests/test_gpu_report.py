"""The GPU benchmark's report: errors, wrong verdicts, fitted constants."""

from __future__ import annotations

import statistics
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gpu.calibration import (
    Timed,
    calibration,
    count_within,
    fields_of,
    fit,
    slowest_and_fastest,
    widest,
)
from benchmarks.gpu.report import Errors, comparisons, errors, limits, verdicts
from benchmarks.gpu.report_text import report, table
from benchmarks.gpu.results import Predicted, Results, Row, Search
from benchmarks.gpu.workloads import FULL, Half
from benchmarks.tests.test_gpu_benchmark import H200
from engine.interface.trial import Source, Trial
from engine.interface.workload import Workload
from engine.prediction.timing.intervals import (
    Counted,
    RelativeRange,
    append_residuals,
    read_residuals,
)
from engine.prediction.timing.work import KernelTime, Part, Scales, StepWork

GIB = 2**30
SHARES = st.lists(st.floats(-0.9, 10, allow_nan=False), min_size=1, max_size=60)


def row(
    name: str,
    measured: bool,
    predicted: bool,
    high: int = 10 * GIB,
    limit: int | None = None,
    batch_size: int = 8,
    factor: float = 1.0,
) -> Row:
    """A trial of 10 GiB, predicted ``factor`` times as high."""
    found = Trial(
        batch_size,
        measured,
        Source.MEASURED,
        peak_allocated_bytes=10 * GIB,
        peak_reserved_bytes=10 * GIB,
        device_used_bytes=10 * GIB,
        step_seconds=1.0,
    )
    size = round(10 * GIB * factor)
    prediction = Trial(
        batch_size,
        predicted,
        Source.PREDICTED,
        peak_allocated_bytes=size,
        peak_reserved_bytes=size,
        device_used_bytes=size,
        device_used_high_bytes=high,
        step_seconds=factor,
    )
    return Row(name, limit, found, 2.0, prediction)


# --- errors -----------------------------------------------------------------------------------


@given(SHARES)
def test_the_percentile_is_a_value_that_95_percent_do_not_exceed(shares: list[float]) -> None:
    found = errors(shares)
    absolute = [abs(share) for share in shares]
    assert found.count == len(shares)
    assert found.worst == max(absolute)
    assert found.median == statistics.median(absolute)
    assert found.percentile_95 in absolute
    assert found.median <= found.percentile_95 <= found.worst or found.median in absolute
    within = sum(share <= found.percentile_95 for share in absolute)
    assert within / len(absolute) >= 0.95
    below = sum(share < found.percentile_95 for share in absolute)
    assert below / len(absolute) < 0.95
    assert found.too_low == sum(share < 0 for share in shares)


def test_without_comparisons_there_is_no_error() -> None:
    assert errors([]) == Errors(0, None, None, None, 0)


def test_only_trials_that_fit_measured_and_predicted_are_compared() -> None:
    rows = [
        row("bert-fp32", True, True, factor=1.1),
        row("bert-fp32", False, True),
        row("bert-fp32", True, False),
        replace(row("bert-fp32", True, True), predicted=None),
    ]
    (found,) = comparisons(rows, Counted.PEAK_RESERVED)
    assert found.error == pytest.approx(0.1)
    (seconds,) = comparisons(rows, Counted.STEP_SECONDS)
    assert (seconds.measured, seconds.predicted) == (1.0, 1.1)


# --- verdicts ---------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.booleans(), st.booleans(), st.booleans()),
        max_size=40,
    )
)
def test_false_safe_means_predicted_to_fit_but_did_not(
    cases: list[tuple[bool, bool, bool]],
) -> None:
    rows = [
        row("bert-fp32", measured, predicted, high=GIB if sure else 99 * GIB)
        for measured, predicted, sure in cases
    ]
    found = verdicts(rows, 16 * GIB)
    assert found.promised + found.refused == len(cases)
    assert found.false_safe == sum(p and not m for m, p, _ in cases)
    assert found.false_refuse == sum(m and not p for m, p, _ in cases)
    assert found.sure == sum(p and s for _, p, s in cases)
    assert found.false_sure == sum(p and s and not m for m, p, s in cases)
    assert found.false_sure <= found.false_safe <= found.promised
    assert (found.false_safe_rate is None) == (found.promised == 0)
    if found.false_safe_rate is not None:
        assert found.false_safe_rate == found.false_safe / found.promised


def test_the_high_end_is_compared_with_the_trials_capacity() -> None:
    at_16 = row("bert-fp32", True, True, high=20 * GIB, limit=16 * GIB)
    at_24 = row("bert-fp32", True, True, high=20 * GIB, limit=24 * GIB)
    whole = row("bert-fp32", True, True, high=20 * GIB)
    assert [verdicts([one], 140 * GIB).sure for one in (at_16, at_24, whole)] == [0, 1, 1]


# --- limits and the text ----------------------------------------------------------------------


def some_results() -> Results:
    rows = [
        row("bert-fp32", True, True, limit=16 * GIB, batch_size=100, factor=0.98),
        row("bert-fp32", False, True, limit=16 * GIB, batch_size=101),
        row("gpt2-fp32", True, True, batch_size=10, factor=1.02),
        row("gpt2-fp32", False, False, batch_size=11),
        row("resnet-fp32", False, False, batch_size=1),
    ]
    predicted = [Predicted("bert-fp32", 16 * GIB, 101), Predicted("gpt2-fp32", None, 10)]
    searches = [
        Search("linear scan by 8", "", "bert-fp32", 16 * GIB, 96, 13, 30.0),
        Search("Lightning", "2.6.6", "bert-fp32", 16 * GIB, 103, 9, 20.0),
        Search("Accelerate", None, "bert-fp32", 16 * GIB),
        Search("MemoryMark", "", "bert-fp32", 16 * GIB, 100, 4, 30.0),
        Search("MemoryMark", "", "gpt2-fp32", 24 * GIB, 20, 4, 30.0),
    ]
    return Results(
        H200,
        ["abc"],
        rows,
        predicted,
        searches,
        {"qwen-lora: batch 1 and 4": "LoRA needs the package peft"},
        ["vit-tf32: largest batch on 40 GiB"],
        [("2026-11-20T18:00:00+00:00", 500.0)],
    )


def test_a_limit_is_compared_where_it_is_certified() -> None:
    found = {(one.workload, one.limit_bytes): one for one in limits(some_results())}
    bert = found["bert-fp32", 16 * GIB]
    assert (bert.certified, bert.predicted) == (100, 101)
    assert bert.error == pytest.approx(0.01)
    assert found["gpt2-fp32", None].error == 0
    assert found["resnet-fp32", None].certified == 0
    assert found["resnet-fp32", None].error is None


def test_the_report_has_all_parts() -> None:
    lines = report(some_results()).splitlines()
    text = "\n".join(lines)
    assert "NVIDIA H200, 140.00 GiB, torch 2.11.0, transformers 5.17.0, CUDA 13.0" in text
    assert "2.00%" in text
    (said,) = [line.split() for line in lines if line.startswith("calibration      1 of 2")]
    assert said[4] == "50.00%"
    assert "no, 96% of it" in text
    assert "no, 3 too many" in text
    assert "not installed" in text
    assert "not certified" in text
    assert "Failed: qwen-lora: batch 1 and 4: LoRA needs the package peft" in text
    assert "Left out for lack of time: vit-tf32: largest batch on 40 GiB." in text
    assert "NOT A GPU" not in text
    assert "the catalogue has 750.8 MiB" in text
    assert all(len(line) < 140 for line in lines)


def test_the_report_shows_where_the_predictor_is_wrong() -> None:
    rows = [
        row("bert-fp32", True, True, factor=0.97),
        row("bert-fp32", True, True, factor=1.05, batch_size=16),
        row("gone", True, True),
    ]
    lines = report(Results(H200, rows=rows)).splitlines()
    (said,) = [line for line in lines if line.startswith("bert-fp32")]
    assert said.split() == ["bert-fp32", "calibration", *4 * ["-3.0", "to", "+5.0%"]]
    (said,) = [line for line in lines if line.startswith("gone")]
    assert said.split()[1] == "-"


def test_a_gpu_outside_the_catalogue_is_noted() -> None:
    facts = replace(H200.facts, name="NVIDIA Unheard Of")
    results = replace(some_results(), device=replace(H200, facts=facts))
    assert "not in the catalogue" in calibration(results, [], [])
    assert "No step time is predicted" in report(results)


def test_an_empty_report_says_what_to_do() -> None:
    text = report(Results(H200))
    assert "predict FILE" in text
    assert "0 trials" in text


def test_columns_are_aligned() -> None:
    assert table(("a", "bb"), [["long", "1"]]) == "a     bb\n----  --\nlong   1"


# --- calibration ------------------------------------------------------------------------------

TRUE = Scales(compute=0.75, bandwidth=1.13, kernels=1.6, host=1.4, copy=1.6)


def kernels(numbers: dict[tuple[float, float], int]) -> dict[KernelTime, int]:
    """How many kernels take so long to move and to compute."""
    return {
        KernelTime(moving, computing, overlap=0.2, busy=max(moving, computing)): times
        for (moving, computing), times in numbers.items()
    }


MOVING = kernels({(2e-3, 0.0): 40, (1e-5, 0.0): 200})
COMPUTING = kernels({(1e-4, 5e-3): 60, (1e-3, 1e-6): 30})
TINY = kernels({(1e-7, 0.0): 6000})
WAITING = kernels({(1e-6, 1e-6): 500})


def timed(
    name: str, kernels: dict[KernelTime, int], factor: float = 1.0, copied: float = 0.0
) -> Timed:
    launches = 2000 if kernels is WAITING else 10
    none = (Part({}, 0.0),)
    work = StepWork(((Part(kernels, launches),), none), none, 1, 0.0, copied)
    return Timed(name, 8, work, work.seconds(TRUE) * factor)


ALL_KINDS = [
    timed("bert-fp32", MOVING),
    timed("resnet-fp32", COMPUTING),
    timed("gpt2-bf16", TINY),
    timed("bert-eager", WAITING),
    timed("vit-tf32", MOVING | COMPUTING, copied=5e9),
]


def test_calibration_recovers_known_factors() -> None:
    found = fit(ALL_KINDS)
    assert astuple(found) == pytest.approx(astuple(TRUE), rel=0.01)
    assert fit(ALL_KINDS) == found


@given(st.permutations(ALL_KINDS))
@pytest.mark.slow
def test_the_order_of_the_steps_does_not_matter(steps: list[Timed]) -> None:
    assert astuple(fit(steps)) == pytest.approx(astuple(fit(ALL_KINDS)), rel=0.01)


def test_factors_the_steps_do_not_determine_stay_1() -> None:
    found = fit([timed("resnet-fp32", COMPUTING)])
    assert (found.host, found.copy) == (1.0, 1.0)
    assert timed("x", COMPUTING).error(found) == pytest.approx(0, abs=0.01)
    with pytest.raises(ValueError, match="no step"):
        fit([])


@pytest.mark.longer
def test_each_workload_has_the_same_weight() -> None:
    fast, slow = timed("bert-fp32", COMPUTING, 0.8), timed("gpt2-bf16", COMPUTING, 1.25)
    once = fit([fast, slow])
    often = fit([fast] * 9 + [slow])
    between = timed("between", COMPUTING)
    assert between.error(once) == pytest.approx(0, abs=0.01)
    assert between.error(often) == pytest.approx(0, abs=0.01)


def test_a_range_is_determined_by_two_rows_per_calibration_workload() -> None:
    rows = [
        row("bert-fp32", True, True, factor=0.97),
        row("bert-fp32", True, True, factor=1.00, batch_size=16),
        row("bert-fp32", True, True, factor=1.05, batch_size=32),
        row("bert-fp32", True, True, factor=1.50, limit=16 * GIB),
        row("gpt2-fp32", True, True, factor=2.00),
    ]
    found = widest(rows, "h200", "here")
    assert [residual.batch_size for residual in found] == [8, 32]
    assert [round(1 / residual.ratio, 2) for residual in found] == [0.97, 1.05]
    assert {residual.workload["model"] for residual in found} == {"bert"}
    times = slowest_and_fastest([timed("bert-fp32", MOVING)], TRUE, "h200", "here")
    assert [residual.ratio for residual in times] == pytest.approx([1.0])


def test_rows_of_every_workload_fit_into_a_calibration_file(tmp_path: Path) -> None:
    rows = [row(one.name, True, True, factor=0.99) for one in FULL]
    found = widest(rows, "h200", "here")
    path = tmp_path / "calibration.toml"
    append_residuals(path, found)
    again = read_residuals(path)
    assert again == found
    calibrating = [one for one in FULL if one.half is Half.CALIBRATION]
    parsed = [Workload.parse(residual.workload) for residual in again]
    assert parsed == [one.workload for one in calibrating for _ in range(2)]


def test_a_measurement_within_its_predictions_range_is_counted() -> None:
    about = RelativeRange(0.9, 1.2)
    # Measured over predicted: 0.8, 1.0, 1.25.
    assert count_within([0.25, 0.0, -0.2], about) == (1, 3)


def test_the_calibration_shows_its_changes_and_their_effect_on_the_other_half() -> None:
    results = some_results()
    steps = [*ALL_KINDS, timed("gpt2-fp32", COMPUTING), timed("bert-bf16", MOVING, 1.02)]
    text = calibration(results, steps, [])
    assert "as factors on the rates in engine/prediction/timing/step_time.toml:" in text
    assert "compute=0.75" in text
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "held-out, before" in lines
    assert "1.9" in lines["held-out, after"]
    assert "[[residual]]" in text
    assert "context_bytes = 536_870_912  (measured; so far 787_283_968)" in text
    before, after = [line.split() for line in text.splitlines() if line.startswith("step time")]
    assert before[-5:-3] == ["of", "5"]
    assert int(before[-6]) < 5
    assert after[-6:] == ["5", "of", "5", "2", "of", "2"]


def test_without_step_times_only_the_ranges_are_shown() -> None:
    text = calibration(some_results(), [], [])
    assert "Step times: none" in text
    assert "memory" in text


def test_a_config_is_written_as_its_text() -> None:
    fields: Any = fields_of("llama-lora")
    assert isinstance(fields["config"], str)
    assert fields_of("bert-fp32") == {"model": "bert"}
