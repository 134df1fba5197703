"""The command that measures a GPU, with fakes for its processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import commands, processes
from benchmarks.gpu.commands import Order, measure, predict
from benchmarks.gpu.processes import PredictionRequest, Predictions
from benchmarks.gpu.results import Device, Results, Row, Search, load
from benchmarks.tests.test_gpu_benchmark import H200
from engine.core.errors import EngineError, MeasurementFailed
from engine.interface.result import MeasuredOn
from engine.interface.trial import Source, Trial
from engine.measurement.protocol import DeviceFacts, TrialOrder

MIB = 2**20
ON_CPU = Device(
    DeviceFacts("cpu", "CPU", 2**34, 0, 0.0), MeasuredOn("cpu", "2.13.0", "5.23.0", 2), quick=True
)


class StandIn:
    """Processes that respond immediately: a MiB per sample, measured and predicted."""

    def __init__(self) -> None:
        self.device = ON_CPU
        self.deadlines: list[float] = []
        self.environments: list[Mapping[str, str]] = []
        self.measured = 0
        self.device_deadline = 0.0

    def describe_device(
        self, environment: Mapping[str, str], deadline_seconds: float, quick: bool
    ) -> Device:
        self.environments.append(environment)
        self.device_deadline = deadline_seconds
        return self.device

    def request_predictions(
        self, asked: PredictionRequest, environment: Mapping[str, str], deadline_seconds: float
    ) -> Predictions:
        self.deadlines.append(deadline_seconds)
        trials = [
            Trial(
                size,
                size <= (limit or 2**34) // MIB,
                Source.PREDICTED,
                peak_allocated_bytes=size * MIB,
            )
            for limit, size in asked.sizes
        ]
        return Predictions([(limit or 2**34) // MIB for limit in asked.limits], trials)

    def time_search(self, row: Search, *_: Any) -> Search:
        return replace(row, version="", answer=20, trials=3, seconds=1.0)

    def run_trial(
        self, order: TrialOrder, environment: Mapping[str, str], deadline_seconds: float
    ) -> Trial:
        self.measured += 1
        needed = order.batch_size * MIB
        fits = needed <= (order.memory_limit_bytes or 2**34)
        return Trial(order.batch_size, fits, Source.MEASURED, peak_allocated_bytes=needed)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StandIn:
    stand_in = StandIn()
    for name in ("describe_device", "request_predictions", "time_search"):
        monkeypatch.setattr(processes, name, getattr(stand_in, name))
    monkeypatch.setattr(commands, "run_trial", stand_in.run_trial)
    monkeypatch.setattr(commands, "QUICK_FILE", tmp_path / "var" / "quick.json")
    monkeypatch.setattr(commands, "RESULTS", tmp_path / "results")
    return stand_in


def run(seconds: float = 100, said: list[str] | None = None, **order: Any) -> Results:
    fields: dict[str, Any] = {"kind": "cpu", "quick": True} | order
    log = (said if said is not None else []).append
    return load(measure(Order(budget_seconds=seconds, **fields), log))


def test_a_complete_run_is_in_the_file_with_its_predictions(stand_in: StandIn) -> None:
    results = run(commit="abc")
    assert results.commits == ["abc"]
    assert len(results.runs) == 1
    assert not results.left_out
    assert len(results.searches) == len(commands.TOOLS)
    for name in ("small-bert", "small-gpt2"):
        assert results.largest(name, 20 * MIB) == 20
        assert results.largest_predicted(name, 20 * MIB) == 20
    for row in results.rows:
        assert row.predicted is not None
        assert row.predicted.peak_allocated_bytes == row.measured.peak_allocated_bytes
        assert row.predicted.fits is row.measured.fits
    assert stand_in.environments[0]["CUDA_VISIBLE_DEVICES"] == ""


def test_a_second_run_repeats_nothing_and_a_fresh_one_everything(
    stand_in: StandIn,
) -> None:
    first = run(commit="abc")
    measured = stand_in.measured
    second = run(commit="def")
    assert stand_in.measured == measured
    assert second.rows == first.rows
    assert second.commits == ["abc", "def"]
    assert len(second.runs) == 2
    assert len(run(fresh=True, commit="def").runs) == 1
    assert stand_in.measured == 2 * measured


def test_only_the_named_workloads_are_measured(stand_in: StandIn) -> None:
    assert {row.workload for row in run(only=("small-gpt2",)).rows} == {"small-gpt2"}
    assert {row.workload for row in run().rows} == {"small-bert", "small-gpt2"}


def test_no_process_gets_more_time_than_is_left(stand_in: StandIn) -> None:
    said: list[str] = []
    results = run(4, said)
    assert all(seconds <= 4 for seconds in stand_in.deadlines)
    assert results.rows == []
    assert any(line.startswith("left out for lack of time (9)") for line in said)


def test_the_first_process_gets_all_the_time(stand_in: StandIn) -> None:
    run(500)
    assert stand_in.device_deadline == pytest.approx(500, abs=50)


def test_workloads_that_cannot_be_predicted_are_still_measured(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Predictions:
        raise MeasurementFailed("the prediction failed: no such operator")

    monkeypatch.setattr(processes, "request_predictions", refuse)
    said: list[str] = []
    results = run(said=said)
    assert not results.failures
    assert {results.largest(name, 20 * MIB) for name in ("small-bert", "small-gpt2")} == {20}
    assert any("small-bert is not predicted" in line and "operator" in line for line in said)


def test_a_missing_prediction_is_reported_and_the_rest_is_made(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = run()
    said: list[str] = []

    def refuse(asked: PredictionRequest, *_: Any) -> Predictions:
        if asked.fields["model"] == "small-bert":
            raise MeasurementFailed("the prediction failed: no such operator")
        return stand_in.request_predictions(asked, {}, 1)

    monkeypatch.setattr(processes, "request_predictions", refuse)
    results.rows = [replace(row, predicted=None) for row in results.rows]
    results.rows.append(Row("gone", None, Trial(1, True, Source.MEASURED), 1.0))
    predict(results, {}, 10, said.append)
    assert {row.workload for row in results.rows if row.predicted} == {"small-gpt2"}
    assert "gone is not predicted: this code has no such workload any more" in said
    assert any("small-bert is not predicted" in line and "operator" in line for line in said)


@pytest.mark.slow
def test_a_gpus_file_is_named_after_it_and_a_missing_gpu_says_what_to_do(
    stand_in: StandIn, tmp_path: Path
) -> None:
    with pytest.raises(EngineError, match="--device cpu --quick"):
        run(kind="cuda", quick=False)
    stand_in.device = H200
    path = measure(Order("cuda", quick=False, budget_seconds=100), lambda _: None)
    assert path == tmp_path / "results" / "nvidia-h200-torch-2.11.0.json"
    stand_in.device = ON_CPU
    with pytest.raises(EngineError, match="measured elsewhere"):
        run(out=path)
