"""The GPU benchmark's trials: a process each, whose end is a result or an error."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict, astuple, replace

import pytest

from benchmarks.gpu import processes
from benchmarks.gpu.processes import run_trial
from engine.core.errors import MeasurementFailed
from engine.interface.trial import Source, Trial
from engine.interface.workload import Workload
from engine.measurement.parent import OutOfTime
from engine.measurement.protocol import DeviceFacts, TrialOrder

ORDER = TrialOrder(Workload("bert"), 8)
GIB = 2**30
SAYS = (
    "import json, os, sys; order = json.loads(input().partition(' ')[2]); print('a library talks');"
    "print(json.dumps({'batch_size': order['batch_size'], 'fits': %s, 'source': 'measured',"
    "'peak_allocated_bytes': os.getpid()})); sys.exit(%d)"
)


def child(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(processes, "CHILD", [sys.executable, "-c", code])


def test_each_trial_has_its_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, SAYS % (True, 0))
    found = [run_trial(replace(ORDER, batch_size=size), os.environ, 120) for size in (1, 2, 3, 4)]
    assert [one.batch_size for one in found] == [1, 2, 3, 4]
    assert len({one.peak_allocated_bytes for one in found}) == 4
    assert found[0].source is Source.MEASURED


def test_out_of_memory_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, SAYS % (False, 3))
    assert not run_trial(ORDER, os.environ, 120).fits


@pytest.mark.longer
def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "import time; input(); time.sleep(600)")
    begin = time.monotonic()
    with pytest.raises(OutOfTime, match="within 1 s"):
        run_trial(ORDER, os.environ, 1)
    assert time.monotonic() - begin < 300


@pytest.mark.slow
def test_a_failed_process_is_reported_with_its_last_output(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "import sys; input(); sys.exit('LoRA needs the package peft')")
    with pytest.raises(MeasurementFailed, match="package peft"):
        run_trial(ORDER, os.environ, 120)
    child(monkeypatch, "import sys; sys.exit('it died at once')")
    with pytest.raises(MeasurementFailed, match="died at once"):
        run_trial(ORDER, os.environ, 120)


def test_a_process_killed_by_the_system_did_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "import os; input(); os.kill(os.getpid(), 9)")
    assert "host memory" in run_trial(ORDER, os.environ, 120).failure


# --- predictions for a GPU measured elsewhere ---------------------------------------------------


@pytest.mark.slow
@pytest.mark.torch
def test_a_gpus_file_is_predicted_and_calibrated_without_the_gpu() -> None:
    from benchmarks.gpu.calibration import fit
    from benchmarks.gpu.prediction import predict_all, timed_steps
    from benchmarks.gpu.processes import PredictionRequest
    from benchmarks.gpu.results import Device, Results, Row
    from benchmarks.gpu.workloads import QUICK
    from engine.interface.result import MeasuredOn
    from engine.prediction.timing.work import UNSCALED

    facts = DeviceFacts("cuda", "NVIDIA H200", 140 * GIB, GIB // 2, 9.0)
    bert = QUICK[0]
    sizes = ((None, 8), (GIB, 64), (GIB, 2))
    found = predict_all(PredictionRequest(dict(bert.fields), facts, (GIB,), sizes))
    again = PredictionRequest.parse(
        asdict(PredictionRequest(dict(bert.fields), facts, (GIB,), sizes))
    )
    assert predict_all(again) == found
    assert [one.batch_size for one in found.trials] == [8, 64, 2]
    assert all(one.step_seconds and one.peak_reserved_bytes for one in found.trials)
    assert found.largest[0] > 64
    # The context also counts at an emulated capacity.
    assert predict_all(PredictionRequest(dict(bert.fields), facts, (GIB // 2,))).largest == [0]

    rows = [
        Row(bert.name, limit, Trial(size, True, Source.MEASURED, step_seconds=one.step_seconds), 1)
        for (limit, size), one in zip(sizes, found.trials, strict=True)
    ]
    results = Results(Device(facts, MeasuredOn("NVIDIA H200", "2.11.0", "5.17.0", 16)), rows=rows)
    steps = timed_steps(results, lambda _: None)
    assert [step.error(UNSCALED) for step in steps] == pytest.approx([0, 0, 0])
    assert astuple(fit(steps)) == pytest.approx(astuple(UNSCALED))
    unknown = replace(results.device, facts=replace(facts, name="NVIDIA Unheard Of"))
    assert timed_steps(replace(results, device=unknown), lambda _: None) == []
