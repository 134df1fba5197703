"""Traces shared between GPUs equal those each would have had alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.allocator.options import AllocatorOptions
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.tests.shared import small_workload
from engine.traces.batch_rule import trace_every_batch_size
from engine.traces.families import Family
from engine.traces.shared import SharedTraces
from engine.traces.source import TraceSource
from engine.traces.trace_files import TraceFiles
from engine.traces.tracer import WholeModel, trace
from engine.traces.workloads import KeptTraces
from engine.tracing.lowering import CudaBehaviour, behaviour_of, cuda_behaviour
from engine.tracing.trace import Trace

NAMES = ("t4", "a10", "l4", "h100")


@pytest.mark.longer
@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize("precision", ["fp32", pytest.param("fp16-mixed", marks=pytest.mark.slow)])
def test_a_shared_trace_equals_a_trace_for_that_gpu(precision: str) -> None:
    workload = small_workload("bert", precision=precision)
    made = 0

    def trace_every(behaviour: CudaBehaviour, _: int | None) -> TraceSource:
        nonlocal made
        made += 1
        return trace_every_batch_size(workload, behaviour)

    shared = SharedTraces(trace_every)
    for name in NAMES:
        behaviour = cuda_behaviour(GPUS[name].compute_capability)
        for batch_size in (1, 7):
            ours, alone = (
                shared.of(behaviour).at(batch_size),
                trace(workload, batch_size, behaviour),
            )
            assert (ours.events, ours.sizes) == (alone.events, alone.sizes), name
            assert ours.replay() == alone.replay()
            capacity = alone.replay().peak_reserved_bytes
            growing = AllocatorOptions(expandable_segments=True)
            for limit in (capacity - 2**20, capacity, capacity + 1) * 2:  # what is kept, too
                assert ours.replay(limit) == alone.replay(limit)
                assert ours.replay(limit, growing) == alone.replay(limit, growing)
    assert made < len(NAMES)


@pytest.mark.longer
@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
def test_whether_blocks_repeat_is_checked_on_the_first_gpu_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Family, "includes", lambda *_: False)
    some = cuda_behaviour(GPUS[NAMES[0]].compute_capability)
    traces = replace(trace_every_batch_size(small_workload("bert"), some), margin=2)
    margins: list[int | None] = []

    def trace_every(_: CudaBehaviour, margin: int | None) -> TraceSource:
        margins.append(margin)
        return traces

    shared = SharedTraces(trace_every)
    for name in NAMES:
        shared.of(cuda_behaviour(GPUS[name].compute_capability))
    assert margins == [None, 2, 2, 2]


@pytest.mark.longer
@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
def test_gpus_that_are_traced_alike_stay_together_until_they_are_traced() -> None:
    request = AnalysisRequest(small_workload("gpt2", precision="bf16-mixed"), gpu="a10")
    gpus = [GPUS[name] for name in ("t4", "v100-32gb", "a10", "l4", "h100", "b200")]
    traces = KeptTraces(files=None)

    def names() -> list[set[str]]:
        return [{gpu.name for gpu in group} for group in traces.groups(request, gpus)]

    assert len(names()) == len(gpus)  # nothing is known yet but their compute capabilities
    traces.of(request, behaviour_of(GPUS["a10"]), lambda _: None)
    # In bf16 nothing is fused before 8.0. What is traced already is divided, most memory first.
    assert names() == [{"t4", "v100-32gb"}, {"b200"}, {"h100"}, {"a10"}, {"l4"}]
    traces.of(request, behaviour_of(GPUS["t4"]), lambda _: None)
    assert len(names()) == len(gpus)


@pytest.mark.longer
@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
def test_gpus_that_a_process_is_tracing_come_last() -> None:
    request = AnalysisRequest(small_workload("gpt2", precision="bf16-mixed"), gpu="a10")
    gpus = [GPUS[name] for name in ("t4", "v100-32gb", "l4", "h100")]
    traces = KeptTraces(files=None)
    traces.of(request, behaviour_of(GPUS["a10"]), lambda _: None)
    groups = traces.groups(request, gpus, [GPUS["t4"]])
    assert [[gpu.name for gpu in group] for group in groups] == [
        ["h100"],
        ["l4"],
        ["v100-32gb"],
        ["t4"],
    ]


@pytest.mark.longer
@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
def test_kinds_that_another_process_has_traced_are_divided(tmp_path: Path) -> None:
    request = AnalysisRequest(small_workload("gpt2", precision="bf16-mixed"), gpu="a10")
    gpus = [GPUS[name] for name in ("t4", "v100-32gb", "l4", "h100")]
    here, there = (KeptTraces(files=TraceFiles(tmp_path)) for _ in range(2))
    for traces, gpu in ((there, "t4"), (here, "a10")):
        traces.of(request, behaviour_of(GPUS[gpu]), lambda _: None)
    assert all(len(group) == 1 for group in here.groups(request, gpus))


@pytest.mark.longer
@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
def test_a_batch_nearby_is_the_same_for_all_who_look_at_it() -> None:
    workload = small_workload("llama-3.2-1b", lora_rank=2)  # sums no columns, which takes scratch
    shared = SharedTraces(lambda behaviour, _: trace_every_batch_size(workload, behaviour))
    behaviour = cuda_behaviour(9.0)
    shared.at(2, behaviour)
    traces = shared.families[0].on(behaviour)
    nearby = traces.at(8).nearby(3)
    assert nearby is traces.at(11)
    assert nearby is traces.at(9).nearby(2)
    assert traces.at(1).nearby(3) is None  # traced by itself


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
def test_a_separately_traced_batch_size_is_traced_on_demand() -> None:
    workload = small_workload("bert")
    traced: list[int] = []

    class Counted(WholeModel):
        def at(self, batch_size: int) -> Trace:
            traced.append(batch_size)
            return super().at(batch_size)

    traces = SharedTraces(lambda behaviour, _: Counted(workload, behaviour)).of(cuda_behaviour(8.6))
    traces.at(7)
    assert 1 not in traced
    traces.at(1)
    traces.at(1)
    assert traced.count(1) == 1
