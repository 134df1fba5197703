"""The allocator's history of a step, labelled with the tensors a recorder saw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.allocator.caching import ALLOCATE, FREE
from engine.core.errors import MeasurementFailed
from engine.events import Event, Log
from engine.interface.request import AnalysisRequest
from engine.interface.result import LargeTensor
from engine.interface.trial import Source, Trial
from engine.measurement import measured_analysis, trials
from engine.measurement.history import Seen, Sighting, SightingRecorder, trace_of
from engine.measurement.protocol import DeviceFacts, RecordedStep, TrialOrder
from engine.measurement.steps import WorkloadSteps
from engine.prediction.memory.timeline import largest_tensors, timeline
from engine.tests.shared import small_workload
from engine.tracing.recorded import Recorded
from engine.tracing.trace import Category, Trace

WEIGHT, HIDDEN, GRADIENT, WORKSPACE = 0x7F0000000000, 0x7F0000200000, 0x7F0000400000, 0x7F0000600000


def entry(action: str, address: int, size: int) -> dict[str, Any]:
    """An entry in the format of ``torch.cuda.memory._snapshot()``."""
    return {
        "action": action,
        "addr": address,
        "size": size,
        "stream": 0,
        "time_us": 1_700_000_000_000_000,
        "compile_context": "N/A",
        "user_metadata": "",
        "pool_id": (0, 0),
        "frames": [],
    }


def given(address: int, size: int) -> dict[str, Any]:
    return entry("alloc", address, size)


def taken(address: int, size: int) -> list[dict[str, Any]]:
    return [entry("free_requested", address, size), entry("free_completed", address, size)]


HISTORY = [
    entry("segment_alloc", WEIGHT, 2**21),
    given(WEIGHT, 400),
    # The first step: a workspace inside the kernel that makes the hidden tensor.
    given(WORKSPACE, 90),
    given(HIDDEN, 100),
    *taken(WORKSPACE, 90),
    given(GRADIENT, 400),
    *taken(HIDDEN, 100),
    *taken(GRADIENT, 400),
    # The second: the hidden tensor lies where the workspace was, and the other way about.
    given(HIDDEN, 90),
    given(WORKSPACE, 100),
    *taken(HIDDEN, 90),
    given(GRADIENT, 400),
    {"action": "oom", "size": 2**40, "stream": 0, "device_free": 0, "frames": []},
    entry("segment_free", WEIGHT + 2**30, 2**21),
    *taken(WORKSPACE, 100),
    entry("snapshot", 0, 0),
    *taken(GRADIENT, 400),
]
SEEN = Seen(
    trace=Trace(
        batch_size=8,
        sizes=[400, 100, 400, 100, 400, 8],
        categories=[
            Category.PARAMETERS,
            Category.ACTIVATIONS,
            Category.GRADIENTS,
            Category.ACTIVATIONS,
            Category.GRADIENTS,
            Category.OPTIMIZER_STATE,
        ],
        modules=["head", "head", "head", "head", "head", ""],
        makers=["", "aten.addmm", "aten.mm", "aten.addmm", "aten.mm", "aten.empty"],
    ),
    sightings=[
        Sighting(0, WEIGHT, 1),
        Sighting(1, HIDDEN, 4),
        Sighting(2, GRADIENT, 5),
        Sighting(3, WORKSPACE, 10),
        Sighting(4, GRADIENT, 11),
        Sighting(5, 0x5555_0000_1000, 11),  # on the host
    ],
    phases=[(1, "forward"), (4, "backward"), (6, "optimizer"), (7, "forward"), (10, "backward")],
    last_step=7,
)


def test_each_block_is_labelled_with_the_tensor_in_it_at_that_moment() -> None:
    trace = trace_of(HISTORY, SEEN)
    assert trace.sizes == [400, 90, 100, 400, 90, 100, 400]
    assert trace.categories == [
        Category.PARAMETERS,
        Category.WORKSPACES,
        Category.ACTIVATIONS,
        Category.GRADIENTS,
        Category.WORKSPACES,
        Category.ACTIVATIONS,
        Category.GRADIENTS,
    ]
    assert trace.makers[5] == "aten.addmm"
    assert trace.modules[4] == trace.makers[4] == ""
    assert trace.events[-5:] == [
        (ALLOCATE, 5),
        (FREE, 4),
        (ALLOCATE, 6),
        (FREE, 5),
        (FREE, 6),
    ]


def test_a_history_gives_the_same_charts_as_a_prediction() -> None:
    trace = trace_of(HISTORY, SEEN)
    peak, breakdown = trace.peak_by_category()
    assert peak == 900
    assert {name: size for name, size in breakdown.items() if size} == {
        "parameters": 400,
        "gradients": 400,
        "activations": 100,
    }
    points = timeline(trace)
    assert [point.phase for point in points] == ["forward"] * 3 + ["forward"] + ["backward"] * 3
    assert points[2].bytes["workspaces"] == 90
    assert largest_tensors(trace)[0] == LargeTensor(400, "parameters", "head", "")


def test_a_history_that_starts_too_late_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the allocation"):
        trace_of(HISTORY[3:], SEEN)


class CountingItself(SightingRecorder):
    """On the CPU the recorder sees everything, so its own events are the history."""

    def __init__(self, training: Recorded, batch_size: int) -> None:
        super().__init__(training, batch_size, lambda: len(self.trace.events))


@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize("model", ["bert", "gpt2", "resnet"])
def test_a_whole_step_comes_back_as_recorded(model: str) -> None:
    steps = WorkloadSteps(small_workload(model), 2)
    steps.build("cpu")
    recorder = CountingItself(steps.recorded, 2)
    for _ in range(2):
        recorder.record_step(steps.step)
    seen = recorder.seen
    addresses = {sighting.tensor: sighting.address for sighting in seen.sightings}
    history = [
        entry(
            "alloc" if kind == ALLOCATE else "free_requested",
            addresses[tensor],
            recorder.trace.sizes[tensor],
        )
        for kind, tensor in recorder.trace.events
    ]
    trace = trace_of(history, seen)
    assert trace.peak_by_category() == recorder.trace.peak_by_category()
    assert largest_tensors(trace) == largest_tensors(recorder.trace)
    assert timeline(trace) == timeline(recorder.trace)


# What an analysis makes of it

GPU = DeviceFacts("cuda", "NVIDIA A10", 2**34, 2**28, 8.6)
ORDER = TrialOrder(small_workload("bert"), 8)
STEP = RecordedStep([], [], {"parameters": 400, "activations": 80, "workspaces": 20})


def test_a_recorded_breakdown_adds_up_to_the_peak_allocated() -> None:
    trial = Trial(8, True, Source.MEASURED, peak_allocated_bytes=512)
    found = trials.with_breakdown(trial, STEP)
    assert found.breakdown == {"parameters": 400, "activations": 92, "workspaces": 20}
    own = replace(trial, breakdown={"tensors": 512})
    assert trials.with_breakdown(own, STEP) == own


def test_a_single_measured_batch_has_a_breakdown_too(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(8, True, Source.MEASURED, peak_allocated_bytes=500)
    monkeypatch.setattr(measured_analysis, "local_device", lambda: GPU)
    monkeypatch.setattr(measured_analysis, "measure", lambda order: trial)
    monkeypatch.setattr(trials, "record", lambda order: STEP)
    monkeypatch.setattr(trials, "measured_on", lambda order: None)
    request = AnalysisRequest(small_workload("bert"), gpu="local", current_batch_size=8)
    _, found, _ = measured_analysis.measure_batch(request, print)
    assert found.breakdown == STEP.breakdown


def test_a_failed_recording_costs_the_chart_and_not_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(order: TrialOrder) -> RecordedStep:
        raise MeasurementFailed("the recording failed: no history")

    monkeypatch.setattr(trials, "record", fail)
    said: list[Event] = []
    assert trials.recorded(ORDER, GPU, said.append) == RecordedStep([], [])
    (event,) = said
    assert isinstance(event, Log)
    assert event.level == "warning"
    assert "no history" in event.message
