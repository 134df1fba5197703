"""The benchmark commands: their calculations, and that each runs."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from benchmarks import accuracy, curve, published, search
from benchmarks.errors import Errors
from benchmarks.published import (
    Comparison,
    GpuMemory,
    Measurement,
    compare,
    question,
    summarize,
)
from benchmarks.search import Row
from benchmarks.searchers import (
    SEARCHERS,
    LimitedTraining,
    OutOfMemory,
    Searcher,
    accelerate,
    linear,
    ours,
    small_workload,
    true_maximum,
)
from engine.core.errors import InvalidInput
from engine.gpus import GPUS
from engine.interface.trial import Source, Trial
from engine.interface.workload import Workload
from engine.tests.shared import small_workload as small_preset
from engine.tracing.recorded import MemoryLimitExceeded

MIB = 2**20

ONE = """
[[measurement]]
name = "one"
source = "here"
gpu = "a10"
workload = { model = "bert" }
batch_size = 8
counted = "peak reserved"
unit = "MiB"
published = 100
complete = true
"""


def _measurement(**fields: Any) -> Measurement:
    return replace(published.read_measurements(ONE)[0], **fields)


def _predict(reserved_mib: int, fits: bool = True) -> published.Predict:
    def predict(measurement: Measurement, batch_size: int) -> Trial:
        reserved = reserved_mib * MIB * batch_size // 8
        return Trial(batch_size, fits, Source.PREDICTED, peak_reserved_bytes=reserved)

    return predict


# --- accuracy ---------------------------------------------------------------------------------


def test_every_published_measurement_has_a_source_and_can_be_predicted() -> None:
    measurements = published.read_measurements(published.PUBLISHED.read_text(encoding="utf-8"))
    assert len({m.name for m in measurements}) == len(measurements)
    for measurement in measurements:
        assert measurement.source
        assert measurement.complete or measurement.note
        if measurement.workload is not None:
            Workload.parse(measurement.workload)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('unit = "MiB"', 'unit = "MB"', "unknown unit MB"),
        ('gpu = "a10"', 'gpu = "a11"', "unknown gpu a11"),
        ('counted = "peak reserved"', 'counted = "memory"', "unknown counted memory"),
        ("batch_size = 8", "batch = 8", "unknown or missing batch, batch_size"),
        ('workload = { model = "bert" }', "", "either a workload or a factory"),
        ("complete = true", 'complete = true\nfactory = "a:b"', "either a workload or a factory"),
        ("published = 100", "", "or only whether it ran"),
        ("published = 100", "published = 100\nran = false", "or only whether it ran"),
        ('name = "one"', 'name = "one"\nsetup = "two"', "unknown setup two"),
    ],
)
def test_a_mistake_in_the_measurements_is_named(old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        published.read_measurements(ONE.replace(old, new))


def test_a_gpu_outside_the_catalogue_can_be_described_beside_the_measurements() -> None:
    own = "total_bytes = 2\ncontext_bytes = 1\ncompute_capability = 8.6"
    text = f'[gpus.own]\ndisplay_name = "Own"\n{own}\n{ONE.replace("a10", "own")}'
    assert published.read_measurements(text)[0].gpu == GpuMemory("Own", 2, 1, 8.6)


def test_measurements_share_a_setup_and_change_what_differs() -> None:
    setup = ONE.replace("[[measurement]]", "[setups.bert]").replace('name = "one"', "")
    own = 'name = "two"\nsetup = "bert"\nbatch_size = 4\nworkload = { sequence_length = 64 }'
    (found,) = published.read_measurements(f"{setup}\n[[measurement]]\n{own}")
    assert (found.name, found.batch_size, found.published) == ("two", 4, 100)
    assert found.workload == {"model": "bert", "sequence_length": 64}


def test_a_batch_may_only_be_known_to_have_run() -> None:
    (ran,) = published.read_measurements(ONE.replace("published = 100", "ran = true"))
    right, wrong = compare(ran, _predict(100)), compare(ran, _predict(100, fits=False))
    assert right.error is wrong.error is None
    summary = summarize([right, wrong])
    assert (summary.false_alarm, summary.ran, summary.ran_out) == (1, 2, 0)
    assert summary.every.compared == 0
    numbered, asked = question(compare(_measurement(), _predict(100))), question(right)
    assert numbered is not None
    assert asked == replace(numbered, measured_bytes=None)


def test_a_prediction_is_converted_to_the_published_unit() -> None:
    comparison = compare(_measurement(), _predict(103))
    assert comparison.predicted == pytest.approx(103)
    assert comparison.error == pytest.approx(0.03)
    assert comparison.fits


def test_memory_kept_by_older_software_is_added() -> None:
    comparison = compare(_measurement(kept_bytes=5 * MIB), _predict(98))
    assert comparison.error == pytest.approx(0.03)
    assert comparison.plain_error == pytest.approx(-0.02)


def test_what_a_figure_leaves_out_is_taken_off() -> None:
    comparison = compare(_measurement(left_out_bytes=5 * MIB), _predict(108))
    assert comparison.error == comparison.plain_error == pytest.approx(0.03)


def test_growth_leaves_out_memory_independent_of_the_batch() -> None:
    comparison = compare(_measurement(growth_from=4, kept_bytes=5 * MIB), _predict(100))
    assert comparison.predicted == pytest.approx(50)
    assert comparison.plain_error == comparison.error


def test_a_refused_workload_has_a_reason_instead_of_a_number() -> None:
    def refuse(measurement: Measurement, batch_size: int) -> Trial:
        raise InvalidInput({"precision": "not that one"})

    comparison = compare(_measurement(), refuse)
    assert comparison.predicted is None
    assert "not that one" in comparison.failure


def test_an_engine_error_is_shown_in_its_row() -> None:
    def fail(measurement: Measurement, batch_size: int) -> Trial:
        raise ZeroDivisionError("of nothing")

    assert "of nothing" in compare(_measurement(), fail).failure


def test_the_summary_counts_errors_and_wrong_verdicts() -> None:
    ran_out = _measurement(ran=False, published=None)
    summary = summarize(
        [
            compare(_measurement(), _predict(99)),
            compare(_measurement(), _predict(104)),
            compare(_measurement(), _predict(98, fits=False)),
            compare(_measurement(complete=False), _predict(150)),
            compare(ran_out, _predict(100)),
            compare(ran_out, _predict(100, fits=False)),
            Comparison(_measurement(), failure="refused"),
        ]
    )
    assert summary.known.median == pytest.approx(0.02)
    assert summary.known.percentile_95 == pytest.approx(0.038)
    assert summary.known.worst == pytest.approx(0.04)
    assert (summary.within_aim, summary.known.compared) == (2, 3)
    assert summary.every.worst == pytest.approx(0.5)
    assert (summary.false_safe, summary.ran_out) == (1, 2)
    assert (summary.false_alarm, summary.ran) == (1, 4)
    assert "1 of 2" in accuracy.format_summary(summary)


@pytest.mark.parametrize("error", [-0.02, 0.02])
def test_a_single_error_is_median_percentile_and_worst(error: float) -> None:
    assert Errors.of([None, error]) == Errors(1, 0.02, 0.02, 0.02)


def test_without_comparisons_no_numbers_are_shown() -> None:
    assert "%" not in accuracy.format_summary(summarize([]))


@pytest.mark.longer
@pytest.mark.torch
def test_accuracy_predicts_a_published_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    assert accuracy.main(["--only", "forward only", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (comparison,) = answer["comparisons"]
    assert abs(comparison["error"]) < published.AIM
    assert answer["predicted_source"] == "predicted"
    assert accuracy.main(["--only", "forward only"]) == 0
    assert "493 MiB" in capsys.readouterr().out


@pytest.mark.longer
@pytest.mark.torch
def test_memory_kept_by_older_software_takes_room() -> None:
    measurements = published.read_measurements(published.PUBLISHED.read_text(encoding="utf-8"))
    (measured,) = [m for m in measurements if m.forward_only]
    predict = published.predictor()
    alone = predict(measured, 1)
    beside = predict(replace(measured, kept_bytes=measured.gpu.total_bytes), 1)
    assert alone.fits
    assert beside == replace(alone, fits=False)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "aim"),
    [
        ("b64, fp32, Fabric", published.AIM),
        *(
            pytest.param(name, published.AIM, marks=pytest.mark.full)
            for name in ("b64, fp32", "b64, bf16-true", "b64, fp16-mixed")
        ),
        # All five are 0.1 to 0.3 GB below, which counts most for the smallest; workspaces of the
        # convolution that cuts the patches are not predicted.
        ("b16, bf16-true", 0.04),
    ],
)
def test_the_vision_transformer_matches_the_measurements_of_torchvisions(
    name: str, aim: float
) -> None:
    measurements = published.read_measurements(published.PUBLISHED.read_text(encoding="utf-8"))
    (measured,) = [m for m in measurements if m.name == f"ViT-L/16 {name}"]
    error = compare(measured, published.predictor()).error
    assert error is not None
    assert abs(error) < aim


def test_an_unknown_measurement_is_a_usage_error() -> None:
    with pytest.raises(SystemExit, match="2"):
        accuracy.main(["--only", "no such thing"])


# --- search -----------------------------------------------------------------------------------


class _Threshold(LimitedTraining):
    """A training run of one byte per sample that runs nothing."""

    def begin(self, batch_size: int) -> None:
        self.tried.append((batch_size, True))

    def step(self) -> int:
        batch_size = self.tried[-1][0]
        if batch_size > self.limit_bytes:
            raise self._failed(MemoryLimitExceeded(batch_size, self.limit_bytes))
        return batch_size


def _threshold(largest: int) -> LimitedTraining:
    return _Threshold(Workload("bert"), largest)


def test_a_linear_scan_ends_at_its_last_step_below_the_limit() -> None:
    training = _threshold(27)
    assert linear(training) == 24
    assert training.tried == [(8, True), (16, True), (24, True), (32, False)]
    assert linear(_threshold(5)) == 0
    assert linear(_threshold(27), step=1, start=24) == 27


@pytest.mark.slow
def test_accelerate_recognises_our_out_of_memory() -> None:
    pytest.importorskip("accelerate")
    training = _threshold(100)
    assert accelerate(training) == 92  # 128, 115, 103, 92
    assert [fits for _, fits in training.tried] == [False, False, False, True]


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(
    ("mode", "answer"), [("power", 64), pytest.param("binsearch", 95, marks=pytest.mark.full)]
)
def test_lightning_searches_the_training(mode: str, answer: int) -> None:
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("Lightning is not installed")
    searcher = next(tool for tool in SEARCHERS if tool.name.endswith(mode))
    training = _threshold(100)
    assert searcher.search(training) == answer  # binsearch finds 100 and takes 5% off
    assert (128, False) in training.tried


@pytest.mark.slow
@pytest.mark.torch
def test_our_search_is_exact_in_at_most_four_trials() -> None:
    workload, limit = small_workload(), 12 * MIB
    training = LimitedTraining(workload, limit)
    assert ours(training) == true_maximum(workload, limit)
    assert len(training.tried) <= search.AIM_TRIALS


@pytest.mark.slow
@pytest.mark.torch
def test_every_trial_starts_fresh() -> None:
    training = LimitedTraining(small_workload(), 2**40)
    assert training.run(4) == training.run(4)


@pytest.mark.torch
def test_a_model_that_does_not_fit_without_a_batch_is_out_of_memory() -> None:
    with pytest.raises(OutOfMemory, match="can't allocate memory"):
        LimitedTraining(small_workload(), 1000).run(1)


def test_a_missing_tool_is_named_and_not_run() -> None:
    def never(training: LimitedTraining) -> int:
        raise AssertionError

    row = search.run_search(Searcher("other", "no_such_tool.search", never), _threshold(9), 9)
    assert row.version is None
    assert row.answer is None
    assert search.describe_answer(row) == ""
    assert not row.exact


def test_a_search_is_counted_and_its_answer_checked() -> None:
    row = search.run_search(Searcher("linear", "", linear), _threshold(27), truth=27)
    assert (row.trials, row.answer, row.exact) == (4, 24, False)
    assert "89% of it" in search.describe_answer(row)
    assert "yes" in search.describe_answer(replace(row, answer=27))
    assert "does not fit, 3 too many" in search.describe_answer(replace(row, answer=30))


def test_a_table_shows_each_limit_once() -> None:
    rows = [Row("one", "", MIB, 5), Row("two", None, MIB, 5), Row("one", "", 2 * MIB, 9)]
    table = search.render(rows)
    assert list(table.columns[0].cells) == ["1 MiB", "", "2 MiB"]
    assert list(table.columns[3].cells) == ["", "not installed", ""]


@pytest.mark.slow
@pytest.mark.torch
def test_the_search_benchmark_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = tuple(tool for tool in SEARCHERS if not tool.module)
    monkeypatch.setattr("benchmarks.searchers.SEARCHERS", chosen)
    assert search.main(["--limit-mib", "8", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["tool"]: row["exact"] for row in rows}["MemoryMark"]


def test_a_limit_of_zero_is_a_usage_error() -> None:
    with pytest.raises(SystemExit, match="2"):
        search.main(["--limit-mib", "0"])


# --- curve ------------------------------------------------------------------------------------


def test_gpus_without_the_number_format_are_left_out() -> None:
    workload = Workload.parse({"model": "bert", "precision": "bf16-true"})
    able, refused = curve.suitable(workload, [GPUS["t4"], GPUS["a10"]])
    assert [gpu.name for gpu in able] == ["a10"]
    assert refused == ["t4"]


def test_the_workloads_with_an_aim_are_valid() -> None:
    for aim in curve.AIMS.values():
        Workload.parse(aim.workload)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
def test_the_curve_benchmark_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed(name: str) -> curve.Timing:
        return curve.time_here(name, small_preset("bert"), [GPUS["a10"]])

    monkeypatch.setattr(curve, "time_in_fresh_process", timed)
    assert curve.main(["bert", "--json"]) == 0
    (timing,) = json.loads(capsys.readouterr().out)["timings"]
    assert timing["limits"][0]["gpu"] == "a10"
    assert timing["limits"][0]["largest_batch_size"] > 0
    assert timing["peak_bytes"] > 0
    assert timing["aim"]["seconds"] == 3.0
    assert curve.main(["bert"]) == 0
    assert "a10" in capsys.readouterr().out


def test_a_workload_without_an_aim_is_a_usage_error() -> None:
    with pytest.raises(SystemExit, match="2"):
        curve.main(["no-such-model"])


def test_help_and_mistakes_load_no_torch() -> None:
    commands = ", ".join(f"benchmarks.{name}" for name in ("accuracy", "search", "curve"))
    code = f"import sys, {commands}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
