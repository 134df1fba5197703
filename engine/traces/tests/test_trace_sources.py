"""Sources of traces wrap one another, and show by their attributes where a trace comes from."""

from __future__ import annotations

import pytest

from engine.core.errors import EngineError
from engine.gpus import GPUS, Gpu
from engine.interface.request import AnalysisRequest
from engine.script import batch_sizes
from engine.script.batch_sizes import TracesOnGpus
from engine.script.factory import Factory
from engine.script.request import ScriptRequest
from engine.tests.shared import small_workload
from engine.traces.batch_rule import on_a_line
from engine.traces.source import Alone, ByMicroBatches, Kept, TraceSource
from engine.traces.workloads import KeptTraces, trace_workload
from engine.tracing.lowering import CudaBehaviour, behaviour_of
from engine.tracing.trace import Category, Trace

A10 = behaviour_of(GPUS["a10"])


class Made:
    """Traces with one tensor, of a size that a function gives for each batch."""

    def __init__(self, *, alike: bool = True) -> None:
        self.asked: list[int] = []
        self._is_alike = alike

    def at(self, batch_size: int) -> Trace:
        self.asked.append(batch_size)
        events = [(0, tensor) for tensor in range(1 if self._is_alike else batch_size)]
        count = len(events)
        return Trace(
            batch_size=batch_size,
            events=events,
            sizes=[batch_size * 512] * count,
            categories=[Category.INPUTS] * count,
            modules=[""] * count,
            makers=[""] * count,
        )


def test_each_trace_is_asked_for_once() -> None:
    made = Made()
    kept = Kept(made)
    assert kept.at(3) is kept.at(3)
    kept.at(4)
    assert made.asked == [3, 4]
    assert sorted(kept.traces) == [3, 4]


def test_two_batch_sizes_give_those_beyond_and_batch_one_is_traced_once() -> None:
    made = Made()
    rule = on_a_line(made)
    assert rule.at(40).sizes == [40 * 512]
    assert rule.at(1) == rule.at(1)
    assert made.asked == [2, 3, 1]


def test_where_two_are_not_alike_each_is_traced() -> None:
    made = Made(alike=False)
    assert on_a_line(made) is made
    assert Alone(made).at(5).alone


def test_steps_that_accumulate_have_a_source_of_their_own() -> None:
    request = AnalysisRequest.parse(
        {"model": "bert", "gpu": "a10", "current_batch_size": 8, "global_batch_size": 8}
    )
    asked: list[int] = []

    def trace_with(micro_batches: int) -> TraceSource:
        asked.append(micro_batches)
        return Made()

    source = ByMicroBatches(request, trace_with)
    for batch_size in (8, 4, 2, 8):
        assert source.at(batch_size).batch_size == batch_size
    assert asked == [1, 2]
    assert sorted(source.sources) == [1, 2]


@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
@pytest.mark.slow
def test_a_source_says_what_it_wraps() -> None:
    told = repr(trace_workload(small_workload("bert"), A10, lambda _: None))
    assert told.startswith("BatchRule(each=ShallowModels(WholeModel('BERT base', CudaBehaviour(")
    assert told.endswith("how='as a whole', margin=0)")
    request = AnalysisRequest(small_workload("bert"), gpu="a10", current_batch_size=2)
    kept = repr(KeptTraces(files=None).of(request, A10, lambda _: None))
    assert kept.startswith("ByMicroBatches(sources={1: Kept(source=OnGpu(shared=SharedTraces([Fam")
    assert "WholeModel('BERT base', RecordingBehaviour(CudaBehaviour(" in kept


def test_a_script_is_traced_once_for_each_compute_capability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[float] = []

    def trace_request(_: ScriptRequest, behaviour: CudaBehaviour, *__: object) -> TraceSource:
        tried.append(behaviour.compute_capability)
        if behaviour.compute_capability < 8:
            return Refusing()
        return Made()

    monkeypatch.setattr(batch_sizes, "trace_request", trace_request)
    request = ScriptRequest.parse(
        Factory("my_training:make_step", ()), {"gpu": "a10", "current_batch_size": 2}
    )
    traces = TracesOnGpus(request)
    gpus: list[Gpu] = [GPUS[name] for name in ("t4", "a10", "t4", "a10")]
    first = traces.on_first(gpus, lambda _: None)
    assert first is traces.on(GPUS["a10"], lambda _: None)
    assert tried == [7.5, 8.6]
    for refused in (traces.on, lambda gpu, emit: traces.on_first([gpu], emit)):
        with pytest.raises(EngineError, match="no bf16"):
            refused(GPUS["t4"], lambda _: None)
    assert tried == [7.5, 8.6]


class Refusing:
    """A script that this GPU cannot run."""

    def at(self, batch_size: int) -> Trace:
        raise EngineError(f"no bf16 at batch {batch_size}")
