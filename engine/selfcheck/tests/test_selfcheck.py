"""The self-check measures within its time, and reports what does not run with what to do."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.gpus.checked import STEP, Problem
from engine.selfcheck import check as checking
from engine.selfcheck.advice import advice_on
from engine.selfcheck.check import comparisons, self_check
from engine.selfcheck.workloads import LAUNCH_BOUND, ON_A_CPU, ON_A_GPU, Checked, workloads_for
from engine.tests.shared import slow

TINY = ON_A_CPU[:1]

FAKE = """
import json, sys, time
kind = sys.argv[-1]
order = json.loads(sys.stdin.readline().removeprefix("trial "))
behaviours = json.loads(sys.argv[1])
found = behaviours[kind]
if isinstance(found, str):
    sys.stderr.write(found + "\\n")
    sys.exit(1)
if isinstance(found, int):
    time.sleep(found)
print(json.dumps(found))
"""

DEVICE: dict[str, Any] = {
    "device": {
        "kind": "cuda",
        "name": "NVIDIA A10",
        "total_bytes": 23_696_375_808,
        "compute_capability": 8.6,
        "cuda": "13.0",
    },
    "fixed_costs": [],
}
TRIAL = {
    "batch_size": 8,
    "fits": True,
    "failure": "",
    "peak_allocated_bytes": 1000,
    "peak_reserved_bytes": 2000,
    "device_used_bytes": 3000,
    "step_seconds": 0.1,
}
NUMBERS = {
    "peak_allocated_bytes": 990.0,
    "peak_reserved_bytes": 2000.0,
    "device_used_bytes": 3030.0,
    STEP: 0.105,
}
PREDICTED = {
    "step_launch_seconds": 2e-5,
    "step_predictor": "abc",
    "predicted": {one.name: {"numbers": NUMBERS, "launches": 9, "problem": ""} for one in ON_A_GPU},
}
WORKS: dict[str, Any] = {
    "device": DEVICE,
    "launches": {"seconds": 5e-6},
    "rates": {"bytes_per_second": 5e11, "flops_per_second": {"bf16": 1e14}},
    "trial": TRIAL,
    "predictions": PREDICTED,
}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A machine whose measurements answer, fail or hang as a test says."""
    import json

    script = tmp_path / "fake.py"
    script.write_text(FAKE)

    def behave(**changed: Any) -> None:
        command = [sys.executable, "-I", str(script), json.dumps(WORKS | changed)]
        monkeypatch.setattr(checking, "_CHILD", command)
        monkeypatch.setattr(checking, "TRIAL", [*command, "trial"])

    behave()
    return behave


def check(seconds: float = 60.0, workloads: Sequence[Checked] | None = None) -> Any:
    return self_check(lambda _event: None, seconds, workloads)


@pytest.mark.longer
def test_everything_that_was_measured_is_in_the_result(machine: Any) -> None:
    found = check()
    assert found.problems == ()
    assert found.on_gpu
    assert (found.launch_seconds, found.step_launch_seconds) == (5e-6, 2e-5)
    assert found.rates.flops_per_second == {"bf16": 1e14}
    assert len(found.comparisons) == 4 * len(ON_A_GPU)
    assert found.sentence == "Predictions on this node: memory within 1%, time within 5%."
    assert found.step_predictor == "abc"


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["launches", slow("rates"), slow("predictions"), "trial"])
def test_what_fails_is_a_problem_and_the_rest_is_kept(machine: Any, kind: str) -> None:
    machine(**{kind: "RuntimeError: no kernel image is available for execution"})
    found = check()
    assert found.device is not None
    assert {problem.reason for problem in found.problems} == {
        "RuntimeError: no kernel image is available for execution"
    }
    assert "has no kernels for this GPU" in found.problems[0].advice
    assert (found.launch_seconds is None) == (kind == "launches")
    assert (found.rates is None) == (kind == "rates")
    assert (found.comparisons == ()) == (kind in ("predictions", "trial"))


def test_without_a_device_nothing_else_is_tried(machine: Any) -> None:
    machine(device="ImportError: libcudart.so.13")
    found = check()
    assert (found.device, found.comparisons, len(found.problems)) == (None, (), 1)


@pytest.mark.slow
def test_a_measurement_that_hangs_is_stopped_and_the_rest_is_kept(machine: Any) -> None:
    machine(rates=60)
    begin = time.monotonic()
    found = check(seconds=8.0)
    assert time.monotonic() - begin < 12
    assert found.rates is None
    assert found.launch_seconds == 5e-6
    assert any("took longer than 2 s" in one.reason for one in found.problems)


@pytest.mark.slow
def test_the_whole_check_ends_in_time_and_leaves_some_for_predictions(machine: Any) -> None:
    machine(trial=60)
    begin = time.monotonic()
    found = check(seconds=20.0)
    assert time.monotonic() - begin < 25
    assert len(found.problems) == 1 + len(ON_A_GPU)
    assert all("not measured" in problem.reason for problem in found.problems)
    assert found.step_launch_seconds == 2e-5


def test_a_workload_that_does_not_fit_is_a_problem(machine: Any) -> None:
    machine(trial=TRIAL | {"fits": False, "failure": "tried to allocate 2 GiB"})
    found = check()
    assert found.problems[0].reason == "out of memory: tried to allocate 2 GiB"
    assert "nvidia-smi" in found.problems[0].advice


def test_predictions_that_fail_alike_are_one_problem(machine: Any) -> None:
    failed = {"numbers": {}, "launches": 0, "problem": "AttributeError: no __name__"}
    predicted = dict.fromkeys((one.name for one in ON_A_GPU), failed)
    machine(predictions=PREDICTED | {"predicted": predicted})
    (problem,) = check().problems
    assert problem.what.count(",") >= len(ON_A_GPU) - 1
    assert problem.reason == "AttributeError: no __name__"
    assert "that MemoryMark supports" in problem.advice


def test_a_pytorch_that_does_not_see_the_gpu_is_a_problem(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.gpus import checked
    from engine.gpus.driver import LocalGpu

    monkeypatch.setattr(checked, "local_gpu", lambda: LocalGpu("NVIDIA A10", "GPU-1", 1, "580"))
    machine(device={"device": DEVICE["device"] | {"kind": "cpu"}, "fixed_costs": []})
    problems = check(workloads=ON_A_GPU).problems
    assert [problem for problem in problems if "PyTorch sees no GPU" in problem.reason] == [
        Problem(
            "PyTorch on the GPU",
            "the driver has an NVIDIA A10, and PyTorch sees no GPU",
            advice_on("PyTorch sees no GPU"),
        )
    ]


def test_only_what_was_measured_and_predicted_is_compared() -> None:
    assert comparisons(TINY[0], TRIAL, {}) == []
    (one,) = comparisons(TINY[0], TRIAL, {"live_bytes": 990.0, STEP: 0.0})
    assert (one.counted, one.measured, one.predicted) == ("live_bytes", 1000.0, 990.0)


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_there_are_four_workloads_that_differ(kind: str) -> None:
    workloads = workloads_for(kind)
    assert len({one.workload for one in (*workloads, LAUNCH_BOUND)}) == 5
    assert {one.workload.precision for one in workloads} == {"fp32", "bf16-mixed", "bf16-true"}
    assert sum(one.workload.lora_rank is not None for one in workloads) == 1


@pytest.mark.slow
@pytest.mark.torch
def test_a_cpu_checks_itself_to_the_byte() -> None:
    found = check(seconds=600.0, workloads=TINY)
    assert found.problems == ()
    assert found.launch_seconds > 0
    assert found.memory_error == 0
    assert "no CUDA GPU" in found.sentence


@pytest.mark.torch
def test_speeds_are_measured_on_any_device() -> None:
    from engine.selfcheck.speeds import launch_seconds, rates

    assert 0 < launch_seconds("cpu") < 1e-2
    found = rates("cpu", copied_bytes=2**16, size=32)
    assert found.bytes_per_second > 0
    assert set(found.flops_per_second) == {"fp32", "tf32", "bf16", "fp16"}


@pytest.mark.torch
def test_a_prediction_that_raises_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.gpus.tests.test_checked import made_check
    from engine.selfcheck import predicting

    def broken(*_: object) -> None:
        raise AttributeError("'CythonDotParallel' object has no attribute '__name__'\nmore")

    monkeypatch.setattr(predicting, "trace", broken)
    asked = predicting.Asked(dict(TINY[0].fields), 2)
    found = predicting.predict(made_check(), asked)
    assert found.problem == (
        "AttributeError: 'CythonDotParallel' object has no attribute '__name__'"
    )
    assert predicting.launch_seconds_of(made_check(), asked, 0.1) is None


@pytest.mark.longer
@pytest.mark.torch
def test_the_launch_time_of_the_host_decides_a_step_that_waits_for_it() -> None:
    from engine.gpus import GPUS
    from engine.gpus.known import on_checked
    from engine.gpus.tests.test_checked import made_check
    from engine.selfcheck import predicting

    asked = predicting.Asked(dict(LAUNCH_BOUND.fields), LAUNCH_BOUND.batch_size)
    seconds = predicting.launch_seconds_of(made_check(), asked, 0.05)
    assert seconds is not None
    slower = made_check(step_launch_seconds=seconds)
    assert on_checked(GPUS["h100"], slower).launch_range == pytest.approx((seconds, 2.2 * seconds))
    predicted = predicting.predict(slower, asked).numbers[STEP]  # as of a larger model
    assert predicted == pytest.approx(1.6 * 0.05, rel=0.05)
