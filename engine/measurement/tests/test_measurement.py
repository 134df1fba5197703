"""Trials in separate processes: what they measure, and how each way to end is reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeVar

import pytest
import torch

from engine.core.errors import MeasurementFailed
from engine.interface.trial import Source
from engine.interface.workload import Workload
from engine.measurement import cpu, mps, parent
from engine.measurement.parent import local_device, measure, record, run_together
from engine.measurement.protocol import TrialOrder
from engine.measurement.steps import TIMED_STEPS, StepTimes, time_steps
from engine.prediction.memory.timeline import largest_tensors
from engine.tests.shared import SMALL_BERT, small_workload
from engine.traces.tracer import trace

BERT = SMALL_BERT
_Answer = TypeVar("_Answer")


@pytest.mark.slow
def test_a_trial_runs_real_steps_in_its_own_process() -> None:
    trial = measure(TrialOrder(BERT, 2, memory_limit_bytes=4 * 2**30))
    assert trial.fits
    assert trial.source is Source.MEASURED
    assert trial.peak_allocated_bytes == trace(BERT, 2, None).peak_by_category()[0]
    assert trial.step_seconds is not None
    assert trial.step_seconds > 0
    assert trial.samples_per_second == pytest.approx(2 / trial.step_seconds)
    assert trial.step_seconds_low is not None
    assert trial.step_seconds_high is not None
    assert trial.step_seconds_low <= trial.step_seconds <= trial.step_seconds_high
    assert sum(trial.breakdown.values()) == trial.peak_allocated_bytes


@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize(
    ("more_than_the_parameters", "place"),
    [(-1, "moving the model to the device"), (0, "moving the batch to the device")],
)
def test_out_of_memory_is_a_result_that_says_where(
    more_than_the_parameters: int, place: str
) -> None:
    workload = small_workload("bert")
    parameters = _peak(workload)["parameters"]
    trial = cpu.run_trial(TrialOrder(workload, 2, parameters + more_than_the_parameters))
    assert not trial.fits
    assert trial.failure.startswith(f"out of memory in {place}: ")
    assert trial.step_seconds is None


@pytest.mark.longer
@pytest.mark.usefixtures("small_models")
def test_the_limit_is_exact_to_the_byte() -> None:
    workload = small_workload("gpt2")
    needed = sum(_peak(workload).values())
    assert cpu.run_trial(TrialOrder(workload, 2, needed)).fits
    failed = cpu.run_trial(TrialOrder(workload, 2, needed - 1))
    assert not failed.fits
    assert f"{needed:,} bytes of tensors needed, {needed - 1:,} allowed" in failed.failure


def _peak(workload: Workload) -> dict[str, int]:
    return trace(workload, 2, None).peak_by_category()[1]


@pytest.mark.usefixtures("small_models")
def test_the_forward_pass_alone_takes_less_memory() -> None:
    workload = small_workload("bert")
    whole, forward = (
        cpu.run_trial(TrialOrder(workload, 4, forward_only=alone)).peak_allocated_bytes
        for alone in (False, True)
    )
    assert whole is not None
    assert forward is not None
    assert whole > 1.5 * forward


@pytest.mark.slow
def test_the_local_device_is_described_without_occupying_it() -> None:
    device = local_device()
    assert device.kind in ("cuda", "mps", "cpu")
    assert device.total_bytes > 2**30
    assert not torch.cuda.is_initialized()


def fake_child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> None:
    """Make trials run ``code`` instead of the engine's child process."""
    script = tmp_path / "child.py"
    script.write_text(code)
    monkeypatch.setattr(parent, "CHILD", [sys.executable, str(script)])


def test_a_failure_other_than_memory_is_distinguished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_child(monkeypatch, tmp_path, "raise ValueError('no such kernel')")
    with pytest.raises(MeasurementFailed, match="the trial failed: ValueError: no such kernel"):
        measure(TrialOrder(BERT, 2))


@pytest.mark.slow
def test_a_cuda_error_is_reported_by_its_last_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = """
        from types import SimpleNamespace
        from engine.measurement import child

        def run_trial(order):
            raise RuntimeError("CUDA error: an illegal access\\nCompile with TORCH_USE_CUDA_DSA")

        child._device = lambda: SimpleNamespace(run_trial=run_trial)
        child.main()
        """
    fake_child(monkeypatch, tmp_path, dedent(code))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    with pytest.raises(MeasurementFailed, match=r"RuntimeError: CUDA error: an illegal access$"):
        measure(TrialOrder(BERT, 2))


def test_a_trial_that_hangs_is_stopped_at_its_deadline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_child(monkeypatch, tmp_path, "import time; time.sleep(60)")
    monkeypatch.setattr(parent, "DEADLINE_SECONDS", 0.3)
    with pytest.raises(MeasurementFailed, match="did not end within"):
        measure(TrialOrder(BERT, 2))


def test_a_trial_killed_by_the_system_ran_out_of_host_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_child(monkeypatch, tmp_path, "import os; os.kill(os.getpid(), 9)")
    trial = measure(TrialOrder(BERT, 2))
    assert not trial.fits
    assert "host memory" in trial.failure


def test_a_process_may_be_dead_before_it_gets_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen

    def start_and_wait(*command: Any, **options: Any) -> subprocess.Popen[str]:
        process = start(*command, **options)
        process.wait()
        return process

    monkeypatch.setattr(subprocess, "Popen", start_and_wait)
    killed = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    ended = run_together(killed, ["{}"], os.environ, 60.0)
    assert ended[0].status == -signal.SIGKILL


def test_a_flood_of_output_does_not_block_a_trial(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = '{"batch_size": 2, "fits": true, "source": "measured"}'
    code = (
        f"import sys; sys.stderr.write('x' * 10**6); print('chatter\\n' * 10**5); print('{answer}')"
    )
    fake_child(monkeypatch, tmp_path, code)
    assert measure(TrialOrder(BERT, 2)).fits


def test_a_trial_runs_with_the_allocators_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = (
        "import json, os; print(json.dumps({'batch_size': 2, 'fits': True, 'source': 'measured', "
        "'failure': os.environ.get('PYTORCH_ALLOC_CONF', '')}))"
    )
    fake_child(monkeypatch, tmp_path, code)
    options = "expandable_segments:True"
    assert measure(TrialOrder(BERT, 2, allocator=options)).failure == options
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64")
    assert measure(TrialOrder(BERT, 2)).failure == "max_split_size_mb:64"


@pytest.mark.slow
def test_a_step_is_recorded_in_its_own_process() -> None:
    step = record(TrialOrder(BERT, 2))
    peak = max(sum(point.bytes.values()) for point in step.timeline)
    assert peak == trace(BERT, 2, None).peak_by_category()[0]
    assert step.largest_tensors == largest_tensors(trace(BERT, 2, None))


@pytest.mark.slow
def test_a_trial_ends_with_the_process_that_started_it() -> None:
    asking = (
        "from engine.measurement.parent import measure;"
        "from engine.measurement.protocol import TrialOrder;"
        "from engine.interface.workload import Workload;"
        "measure(TrialOrder(Workload('gpt2'), 16))"
    )
    asker = subprocess.Popen([sys.executable, "-c", asking], start_new_session=True)
    trial = _wait_for(lambda: _children(asker.pid))
    time.sleep(0.2)
    os.kill(asker.pid, signal.SIGKILL)
    asker.wait()
    _wait_for(lambda: not _alive(trial[0]))


def _children(pid: int) -> list[int]:
    listed = subprocess.run(
        ["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return [int(line) for line in listed.split()]


def _alive(pid: int) -> bool:
    listed = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return bool(listed) and not listed.startswith("Z")


def _wait_for(ask: Callable[[], _Answer]) -> _Answer:
    """Poll until the result is not empty; loading torch takes a while on a busy machine."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if answer := ask():
            return answer
        time.sleep(0.05)
    pytest.fail("it did not happen within 120 s")


def test_a_fast_step_is_timed_five_times_and_has_quartiles() -> None:
    seconds = iter([0.3, 0.1, 0.2, 0.5, 0.4, 9.9])
    assert time_steps(lambda: next(seconds)) == StepTimes(0.3, 0.2, 0.4)
    assert next(seconds) == 9.9
    assert TIMED_STEPS == 5


def test_a_slow_step_is_timed_once_and_has_no_quartiles() -> None:
    seconds = iter([11.0, 1.0])
    assert time_steps(lambda: next(seconds)) == StepTimes(11.0, None, None)


def test_metals_counters_are_read_after_every_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    allocated = iter([10, 30, 20])
    reserved = iter([64, 64, 96])
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: next(allocated))
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: next(reserved))
    sampler = mps.PeakSampler()
    x = torch.ones(2)
    with sampler:
        x + x + x + x
    assert (sampler.allocated_bytes, sampler.reserved_bytes) == (30, 96)
