"""Memory over a step shows every spike, and the largest tensors with their modules."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.allocator.caching import ALLOCATE, FREE
from engine.analysis import analyze
from engine.interface.request import AnalysisRequest
from engine.interface.result import AnalysisResult, LargeTensor
from engine.prediction.memory.timeline import largest_tensors, timeline
from engine.tests.shared import slow, small_workload
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Category, Trace

small = pytest.mark.usefixtures("small_models", "kept_traces")


def by_hand() -> Trace:
    """A parameter, a step with an activation and a temporary in forward, then another temporary."""
    return Trace(
        batch_size=1,
        events=[
            (ALLOCATE, 0),
            (ALLOCATE, 1),
            (ALLOCATE, 2),
            (FREE, 2),
            (ALLOCATE, 3),
            (FREE, 3),
            (FREE, 1),
        ],
        sizes=[100, 10, 70, 50],
        categories=[
            Category.PARAMETERS,
            Category.ACTIVATIONS,
            Category.TEMPORARIES,
            Category.TEMPORARIES,
        ],
        modules=["layer", "layer", "layer.act", ""],
        makers=["", "aten.mm", "aten.gelu", "aten.add"],
        phases=[(0, "idle"), (1, "forward"), (4, "backward")],
        last_step=1,
    )


def shown(step: Trace, points: int) -> list[tuple[float, str, int]]:
    return [(p.at, p.phase, sum(p.bytes.values())) for p in timeline(step, points)]


def test_a_short_step_is_shown_event_by_event() -> None:
    assert shown(by_hand(), 200) == [
        (0.0, "forward", 100),
        (0.16667, "forward", 110),
        (0.33333, "forward", 180),
        (0.5, "forward", 110),
        (0.66667, "backward", 160),
        (0.83333, "backward", 110),
        (1.0, "backward", 100),
    ]


def test_a_long_step_is_shown_by_the_peak_of_each_interval() -> None:
    assert shown(by_hand(), 4) == [
        (0.0, "forward", 100),
        (0.33333, "forward", 180),
        (0.66667, "backward", 160),
        (1.0, "backward", 100),
    ]


def test_bytes_are_split_by_category() -> None:
    peak = timeline(by_hand())[2].bytes
    assert {name: size for name, size in peak.items() if size} == {
        "parameters": 100,
        "activations": 10,
        "temporaries": 70,
    }
    assert peak.keys() == {category.value for category in Category}


def test_the_largest_tensors_at_the_peak_come_first_with_their_modules() -> None:
    assert largest_tensors(by_hand(), 2) == [
        LargeTensor(100, "parameters", "layer", ""),
        LargeTensor(70, "temporaries", "layer.act", "aten.gelu"),
    ]
    assert len(largest_tensors(by_hand())) == 3


def test_a_trace_without_a_step_has_no_timeline() -> None:
    assert timeline(Trace(1)) == []
    assert largest_tensors(Trace(1)) == []


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60), st.data())
def test_the_peak_is_never_lost(sizes: list[int], data: st.DataObject) -> None:
    events = [(ALLOCATE, tensor) for tensor in range(len(sizes))]
    for tensor in data.draw(st.lists(st.sampled_from(range(len(sizes))), unique=True)):
        begin = events.index((ALLOCATE, tensor)) + 1
        events.insert(data.draw(st.integers(begin, len(events))), (FREE, tensor))
    names = [""] * len(sizes)
    step = Trace(
        batch_size=1,
        events=events,
        sizes=sizes,
        categories=[Category.ACTIVATIONS] * len(sizes),
        modules=names,
        makers=names,
        last_step=data.draw(st.integers(0, len(events) - 1)),
    )
    live = peak = 0
    for index, (kind, tensor) in enumerate(events):
        live += sizes[tensor] if kind == ALLOCATE else -sizes[tensor]
        peak = max(peak, live) if index > step.last_step else live
    drawn = timeline(step, data.draw(st.integers(3, 70)))
    assert max(sum(point.bytes.values()) for point in drawn) >= peak
    assert [point.at for point in drawn] == sorted({point.at for point in drawn})
    assert sum(drawn[-1].bytes.values()) == live


@small
@pytest.mark.parametrize("model", ["bert", "gpt2", slow("resnet")])
def test_a_real_steps_timeline_has_its_peak_to_the_byte(model: str) -> None:
    step = trace(small_workload(model), 4, cuda_behaviour(8.6))
    drawn = timeline(step)
    assert len(drawn) <= 200
    peak, categories = step.peak_by_category()
    highest = max(drawn, key=lambda point: sum(point.bytes.values()))
    assert sum(highest.bytes.values()) == peak
    assert highest.bytes == categories
    assert [drawn[0].at, drawn[-1].at] == [0, 1]
    phases = ["inputs", "forward", "backward", "optimizer"]
    assert [name for name in phases if name in {point.phase for point in drawn}] == phases
    assert drawn[0].bytes == drawn[-1].bytes  # a step leaves nothing behind
    assert len(json.dumps([asdict(point) for point in drawn])) < 75_000


@small
def test_the_largest_tensors_of_a_real_step_belong_to_its_embedding() -> None:
    step = trace(small_workload("bert"), 4, None)
    largest = largest_tensors(step, 3)
    assert {tensor.module for tensor in largest} == {"bert.embeddings.word_embeddings"}
    assert {tensor.category for tensor in largest} == {"parameters", "optimizer_state"}
    assert [tensor.size_bytes for tensor in largest] == [1000 * 64 * 4] * 3


def predicted(**fields: object) -> AnalysisResult:
    asked = {"model": "bert", "gpu": "a10", "sequence_length": 32}
    return analyze(AnalysisRequest.parse(asked | fields), lambda _: None)


@pytest.mark.longer
@small
def test_a_predicted_answer_shows_the_memory_of_its_recommended_batch() -> None:
    result = predicted()
    peak = max(sum(point.bytes.values()) for point in result.timeline)
    trial = next(t for t in result.trials if t.batch_size == result.recommended_batch_size)
    assert trial.peak_allocated_bytes is not None
    assert peak <= trial.peak_allocated_bytes < 1.05 * peak
    assert len(result.largest_tensors) == 10
    assert result.timeline[0].bytes.keys() == trial.breakdown.keys()
    assert len(json.dumps(result.to_dict())) < 150_000


@pytest.mark.slow
@small
def test_the_allocators_options_change_the_prediction() -> None:
    default, rounded = (
        next(trial for trial in predicted(allocator=allocator).trials if trial.batch_size == 16)
        for allocator in ("", "roundup_power2_divisions:2")
    )
    assert default.peak_allocated_bytes is not None
    assert rounded.peak_allocated_bytes is not None
    assert default.peak_allocated_bytes < rounded.peak_allocated_bytes
