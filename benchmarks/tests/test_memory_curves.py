"""Memory curves of many GPUs computed together equal those computed one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.memory_curves import coarse_sizes, crossing, memory_curves
from engine.conftest import small_models
from engine.gpus import GPUS
from engine.interface.trial import Source, Trial
from engine.prediction.probe import predict_trial
from engine.tests.shared import small_workload
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour

__all__ = ["small_models"]


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


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
def test_the_largest_batch_of_every_gpu_fits_and_the_next_does_not() -> None:
    workload = small_workload("bert", sequence_length=512)
    # Masks of more than a million tokens, as a whole A10 has room for, are not followed.
    a10 = replace(GPUS["a10"], total_bytes=GPUS["t4"].total_bytes)
    curves = list(memory_curves(workload, [GPUS["t4"], a10]))
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


@pytest.mark.longer
@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
def test_a_model_too_large_for_a_gpu_has_no_largest_batch() -> None:
    workload = small_workload("bert")
    small = GPUS["t4"]
    tiny = type(small)(**{**vars(small), "total_bytes": small.context_bytes + 2**20})
    (curve,) = memory_curves(workload, [tiny])
    assert curve.largest_batch_size == 0
    assert curve.next_batch_size_fails
    assert [trial.fits for trial in curve.points] == [False]
