"""Recording a custom loop: what counts, and that recording never breaks a training run."""

from __future__ import annotations

import itertools
import json
import logging
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.core.errors import InvalidInput
from engine.recording import Loop, Recording, TrainingRecord, record_training, to_file
from engine.recording.clocks import HostClock
from engine.recording.device import precision_of

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.recording.device.default_device", lambda: torch.device("cpu"))


@pytest.fixture
def each_second(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A clock that only moves when a test advances it."""
    time = [0.0]
    for module in ("clocks", "recorder"):
        monkeypatch.setattr(f"engine.recording.{module}.perf_counter", lambda: time[0])

    def passes(seconds: float) -> None:
        time[0] += seconds

    return passes


def _record(recording: Recording) -> TrainingRecord:
    assert recording.record is not None
    return recording.record


def test_a_custom_loop_is_recorded(each_second: Callable[[float], None], tmp_path: Path) -> None:
    path = tmp_path / "training_runs.jsonl"
    with record_training(
        batch_size=8,
        gradient_accumulation=2,
        world_size=4,
        model_name="mine",
        precision="bf16-mixed",
        analysis_id=7,
        sink=to_file(path),
    ) as recording:
        assert recording.record is None
        for _ in range(25):
            each_second(0.5)
            recording.step()
    record = _record(recording)
    assert TrainingRecord.parse(json.loads(path.read_text())) == record
    assert (record.steps, record.timed_steps, record.samples) == (25, 20, 25 * 64)
    assert (record.step_seconds, record.samples_per_second) == (0.5, 128.0)
    assert (record.loop, record.interrupted, record.analysis_id) == (Loop.PLAIN, False, 7)
    assert (record.model_name, record.precision) == ("mine", "bf16-mixed")
    assert record.versions["torch"]


def test_on_a_cpu_no_allocator_numbers_are_recorded() -> None:
    with record_training(batch_size=8) as recording:
        recording.step()
    record = _record(recording)
    assert record.device == "cpu"
    assert (record.peak_allocated_bytes, record.peak_reserved_bytes) == (None, None)
    assert record.process_peak_bytes is not None
    assert record.process_peak_bytes > 2**20
    assert record.device_total_bytes > 2**20


def test_the_warm_up_is_counted_and_not_timed(each_second: Callable[[float], None]) -> None:
    with record_training(batch_size=1, warm_up_steps=2) as recording:
        for seconds in (100.0, 100.0, 1.0, 1.0, 1.0):
            each_second(seconds)
            recording.step()
    record = _record(recording)
    assert (record.steps, record.timed_steps) == (5, 3)
    assert record.step_seconds_high == 1.0


def test_a_run_that_ends_during_the_warm_up_has_no_speed() -> None:
    with record_training(batch_size=4) as recording:
        recording.step()
    record = _record(recording)
    assert (record.steps, record.samples, record.timed_steps) == (1, 4, 0)
    assert (record.step_seconds, record.samples_per_second) == (None, None)


def test_an_empty_loop_gives_an_empty_record() -> None:
    with record_training(batch_size=4) as recording:
        pass
    assert _record(recording).steps == 0


def test_excluded_time_is_counted_and_not_timed(each_second: Callable[[float], None]) -> None:
    with record_training(batch_size=1, warm_up_steps=0) as recording:
        for step in range(20):
            if step % 2:
                each_second(60.0)  # an evaluation
                recording.leave_out()
            each_second(1.0)
            recording.step()
    record = _record(recording)
    assert (record.steps, record.timed_steps) == (20, 10)
    assert (record.step_seconds_low, record.step_seconds_high) == (1.0, 1.0)


def test_a_step_may_report_its_number_of_samples(each_second: Callable[[float], None]) -> None:
    with record_training(batch_size=8, warm_up_steps=0) as recording:
        for samples in (None, None, 3):
            each_second(1.0)
            recording.step(samples)
    record = _record(recording)
    assert (record.samples, record.samples_per_second) == (19, 8.0)


def test_the_end_is_the_end_of_the_last_step(each_second: Callable[[float], None]) -> None:
    with record_training(batch_size=1) as recording:
        each_second(90.0)
        recording.step()
        each_second(3600.0)
    record = _record(recording)
    started, ended = record.started_at[14:19], record.ended_at[14:19]
    minutes = [int(at[:2]) * 60 + int(at[3:]) for at in (started, ended)]
    assert (minutes[1] - minutes[0]) % 3600 in (90, 91)


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), KeyboardInterrupt()])
def test_an_exception_propagates_and_the_record_so_far_is_reported(error: BaseException) -> None:
    taken: list[TrainingRecord] = []

    def train() -> None:
        with record_training(batch_size=2, sink=taken.append) as recording:
            recording.step()
            raise error

    with pytest.raises(type(error)) as raised:
        train()
    assert raised.value is error
    (record,) = taken
    assert (record.interrupted, record.steps) == (True, 1)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 8, "gradient_accumulation": -1}, "gradient_accumulation"),
        ({"batch_size": 8, "world_size": 1.5}, "world_size"),
        ({"batch_size": 8, "warm_up_steps": -1}, "warm_up_steps"),
        ({"batch_size": 8, "analysis_id": 0}, "analysis_id"),
        ({"batch_size": 8, "model_name": "a\nb"}, "model_name"),
        ({"batch_size": 8, "precision": "x" * 501}, "precision"),
    ],
)
def test_invalid_arguments_are_refused_before_training(
    arguments: dict[str, Any], field: str
) -> None:
    def train() -> None:
        with record_training(**arguments):
            raise AssertionError("the training began")

    with pytest.raises(InvalidInput) as refusal:
        train()
    assert list(refusal.value.fields) == [field]


def test_numbers_may_be_given_as_text() -> None:
    arguments: dict[str, Any] = {"batch_size": "8", "world_size": "2", "warm_up_steps": "0"}
    with record_training(**arguments) as recording:
        recording.step()
    assert (_record(recording).samples, _record(recording).timed_steps) == (16, 1)


def _fails(*_: object, **__: object) -> None:
    raise OSError("no space left")


def test_a_failing_sink_breaks_nothing_and_loses_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with record_training(batch_size=2, sink=_fails) as recording:
        recording.step()
    (line,) = caplog.messages
    assert "no space left" in line
    written = line[line.index("{") : line.rindex("}") + 1]
    assert TrainingRecord.parse(json.loads(written)) == recording.record


def test_a_failing_clock_is_reported_once_and_training_continues(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trained = 0
    with record_training(batch_size=2) as recording:
        recording.step()
        monkeypatch.setattr(HostClock, "step", _fails)
        for _ in range(3):
            recording.step()
            trained += 1
    assert trained == 3
    (warning,) = caplog.records
    assert warning.levelno == logging.WARNING
    assert "recording ended early (OSError: no space left)" in warning.getMessage()


def test_a_clock_that_fails_at_the_end_keeps_its_times(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(HostClock, "end", _fails)
    with record_training(batch_size=2, warm_up_steps=0) as recording:
        recording.step()
    assert _record(recording).timed_steps == 1
    assert "the last steps were not timed" in caplog.text


def test_a_failing_device_is_reported_and_training_continues(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(HostClock, "start", _fails)
    with record_training(batch_size=2) as recording:
        recording.step()
        recording.leave_out()
    assert recording.record is None
    assert "recording did not start (OSError: no space left)" in caplog.text


def test_only_the_first_of_several_processes_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.recording.device.rank", lambda: 1)
    taken: list[TrainingRecord] = []
    with record_training(batch_size=2, world_size=2, sink=taken.append) as recording:
        recording.step()
    assert taken == []
    assert recording.record is None


def test_recording_does_not_change_random_numbers() -> None:
    def drawn(record: bool) -> tuple[float, float]:
        random.seed(1)
        torch.manual_seed(1)
        if record:
            with record_training(batch_size=1, warm_up_steps=0) as recording:
                for _ in range(5000):
                    recording.step()
        return random.random(), float(torch.rand(1))  # noqa: S311  # no secret

    assert drawn(record=True) == drawn(record=False)


@pytest.mark.parametrize(
    ("number_format", "autocast", "expected"),
    [
        ("float32", "", "fp32"),
        ("bfloat16", "", "bf16-true"),
        ("float16", "", "fp16-true"),
        ("float64", "", "fp64-true"),
        ("float32", "bf16", "bf16-mixed"),
        ("float32", "fp16", "fp16-mixed"),
    ],
)
def test_the_precision_has_a_workloads_name(
    number_format: str, autocast: str, expected: str
) -> None:
    model = torch.nn.Linear(2, 2, dtype=getattr(torch, number_format))
    assert precision_of(model, autocast, torch.device("cpu")) == expected
    assert precision_of(torch.nn.Identity(), "", torch.device("cpu")) == ""


def test_on_cuda_the_allocator_and_the_gpus_own_time_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = itertools.count(step=0.25)
    waits: list[torch.device] = []
    forgotten: list[torch.device] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: object) -> None:
            assert stream == "the training's stream"
            self.at = next(seconds)

        def query(self) -> bool:
            return False  # the GPU is always behind

        def elapsed_time(self, other: Event) -> float:
            return 1000 * (other.at - self.at)

    gpu = SimpleNamespace(name="NVIDIA A10", total_memory=22 * 2**30, uuid="0f1e")
    for name, stand_in in {
        "init": lambda: None,
        "Event": Event,
        "current_stream": lambda device: "the training's stream",
        "synchronize": waits.append,
        "reset_peak_memory_stats": forgotten.append,
        "max_memory_allocated": lambda device: 2**30,
        "max_memory_reserved": lambda device: 2**31,
        "get_device_properties": lambda device: gpu,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    device = torch.device("cuda", 0)
    with record_training(batch_size=8, device=device) as recording:
        for _ in range(25):
            recording.step()
    record = _record(recording)
    assert waits == [device, device]
    assert forgotten == [device]
    assert (record.timed_steps, record.step_seconds, record.samples_per_second) == (20, 0.25, 32.0)
    assert (record.peak_allocated_bytes, record.peak_reserved_bytes) == (2**30, 2**31)
    assert (record.device, record.device_name, record.device_uuid) == ("cuda", "NVIDIA A10", "0f1e")
    assert record.device_total_bytes == 22 * 2**30
