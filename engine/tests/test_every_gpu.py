"""The curves of many GPUs at once: the same as one by one, from fewer traces."""

from __future__ import annotations

import pytest

from engine.gpus import GPUS
from engine.prediction.every_gpu import SharedTraces, coarse_sizes, crossing, every_gpu
from engine.prediction.probe import predict_trial
from engine.result import Source, Trial
from engine.tests.conftest import small_workload
from engine.tracing.lowering import CudaBehaviour, cuda_behaviour
from engine.tracing.trace import Trace
from engine.tracing.tracer import TraceAt, trace, trace_every_batch_size
from engine.workload import Workload

pytestmark = pytest.mark.slow


NAMES = ("t4", "a10", "a100-40gb", "l4", "h100", "rtx-5090")


def _reserved(batch_size: int, reserved: int | None) -> Trial:
    return Trial(batch_size, fits=True, source=Source.PREDICTED, peak_reserved_bytes=reserved)


def test_coarse_sizes_grow_by_half_or_a_third_and_stay_within_the_bound() -> None:
    assert list(coarse_sizes(20)) == [1, 2, 3, 4, 6, 8, 12, 16]
    assert list(coarse_sizes(24))[-1] == 24


def test_a_crossing_lies_on_the_line_through_the_last_two_trials() -> None:
    assert crossing([_reserved(1, 10), _reserved(8, 1000), _reserved(16, 2000)], 1500) == 12
    assert crossing([_reserved(8, 1000), _reserved(16, 2000)], 100) == 1
    assert crossing([_reserved(8, 1000)], 1500) is None
    assert crossing([_reserved(8, 1000), _reserved(16, 1000)], 1500) is None
    assert crossing([_reserved(8, 1000), _reserved(16, None)], 1500) is None


@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize("precision", ["fp32", "fp16-mixed"])
def test_a_shared_trace_is_what_tracing_for_that_gpu_gives(precision: str) -> None:
    workload = small_workload("bert", precision=precision)
    made = 0

    def trace_every(behaviour: CudaBehaviour) -> TraceAt:
        nonlocal made
        made += 1
        return trace_every_batch_size(workload, behaviour)

    shared = SharedTraces(trace_every)
    for name in NAMES:
        behaviour = cuda_behaviour(GPUS[name].compute_capability)
        for batch_size in (1, 2, 7):
            ours, alone = shared.of(behaviour)(batch_size), trace(workload, batch_size, behaviour)
            assert (ours.events, ours.sizes) == (alone.events, alone.sizes), name
            assert ours.replay() == alone.replay()
            capacity = alone.replay().peak_reserved_bytes
            for limit in (capacity - 2**20, capacity, capacity + 1):
                assert ours.replay(limit) == alone.replay(limit)
    assert made < len(NAMES)


@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
def test_a_batch_size_that_is_traced_by_itself_is_traced_when_it_is_asked_for() -> None:
    workload = small_workload("bert")
    traced: list[int] = []

    def trace_every(behaviour: CudaBehaviour) -> TraceAt:
        def at(batch_size: int) -> Trace:
            traced.append(batch_size)
            return trace(workload, batch_size, behaviour)

        return at

    trace_at = SharedTraces(trace_every).of(cuda_behaviour(8.6))
    trace_at(7)
    assert 1 not in traced
    trace_at(1)
    trace_at(1)
    assert traced.count(1) == 1


@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
def test_the_largest_batch_of_every_gpu_fits_and_the_next_does_not() -> None:
    workload = small_workload("bert", sequence_length=512)
    curves = list(every_gpu(workload, [GPUS["t4"], GPUS["a10"]]))
    assert [curve.gpu.name for curve in curves] == ["t4", "a10"]
    for curve in curves:
        assert curve.next_batch_size_fails
        sizes = [trial.batch_size for trial in curve.points]
        assert sizes[0] == 1
        assert sizes == sorted(set(sizes))
        assert sizes[-2:] == [curve.largest_batch_size, curve.largest_batch_size + 1]
        assert [trial.fits for trial in curve.points] == [True] * (len(sizes) - 1) + [False]
        behaviour = cuda_behaviour(curve.gpu.compute_capability)
        alone = trace(workload, curve.largest_batch_size, behaviour)
        assert curve.points[-2] == predict_trial(workload, curve.gpu, alone)


@pytest.mark.torch
def test_a_model_too_large_for_a_gpu_has_no_largest_batch() -> None:
    workload = Workload("gpt2", sequence_length=32)
    small = GPUS["t4"]
    tiny = type(small)(**{**vars(small), "total_bytes": small.context_bytes + 2**30})
    (curve,) = every_gpu(workload, [tiny])
    assert curve.largest_batch_size == 0
    assert curve.next_batch_size_fails
    assert [trial.fits for trial in curve.points] == [False]
