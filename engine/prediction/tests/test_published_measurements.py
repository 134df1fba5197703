"""The predictor compared with published measurements on real GPUs, in the units they count."""

from __future__ import annotations

import pytest

from engine.core.errors import DoesNotFit
from engine.events import Event, Log
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Trial
from engine.interface.workload import Workload
from engine.measurement.checks import validate_backward
from engine.prediction.one_batch import predict_batch
from engine.prediction.predicted_analysis import analyze_predicted
from engine.traces.batch_rule import trace_every_batch_size
from engine.traces.source import TraceSource
from engine.tracing.lowering import cuda_behaviour

GIB = 2**30
MIB = 2**20

BERT = Workload("bert", optimizer="none", mode="eval", sequence_length=128)  # type: ignore[arg-type]  # plain words are accepted


@pytest.fixture(scope="module")
def bert_on_a10() -> TraceSource:
    return trace_every_batch_size(BERT, cuda_behaviour(8.6))


@pytest.mark.parametrize(("batch_size", "published_gib"), [(8, 1.04), (16, 1.62), (288, 21.33)])
def test_bert_on_an_a10_is_within_two_percent(
    bert_on_a10: TraceSource, batch_size: int, published_gib: float
) -> None:
    predicted = bert_on_a10.at(batch_size).replay().peak_allocated_bytes / GIB
    assert predicted == pytest.approx(published_gib, rel=0.02)


@pytest.mark.slow
def test_the_search_on_an_a10_finds_the_published_limit() -> None:
    asked = {"model": "bert", "gpu": "a10", "optimizer": "none", "mode": "eval"}
    events: list[Event] = []
    result = analyze_predicted(AnalysisRequest.parse(asked | {"batch_multiple": 8}), events.append)
    assert result.largest_batch_size == 288
    assert result.next_batch_size == 296
    assert result.next_batch_size_fails
    tried = {trial.batch_size: trial.fits for trial in result.trials}
    assert tried[288]
    assert not tried[296]
    assert [event for event in events if isinstance(event, Trial)] == result.trials
    assert any(isinstance(event, Log) for event in events)


@pytest.mark.longer
def test_forward_alone_and_the_whole_step_match_measurements_at_batch_16() -> None:
    # Published as 493 and 1645 "MB", which can only be MiB: the parameters alone are 438 · 10⁶ B.
    check = validate_backward(BERT, 16, "a10")
    assert check.forward_bytes / MIB == pytest.approx(493, rel=0.005)
    # The same source's table has 1.62 GiB, 1,659 MiB, for that step.
    assert check.training_bytes / MIB == pytest.approx(1645, rel=0.01)
    assert check.passed


@pytest.mark.slow
def test_resnet_on_a_v100_grows_as_measured() -> None:
    # nvidia-smi's numbers, with an unknown optimizer and context, and with cuDNN's workspaces,
    # which are not predicted. Only the growth of memory with the batch can be compared.
    asked = {"model": "resnet", "gpu": "v100-32gb", "optimizer": "sgd-momentum"}
    measured_mib = {8: 2343, 16: 3089, 32: 4667, 64: 7675}
    predicted = {}
    for batch_size in measured_mib:
        request = AnalysisRequest.parse(asked | {"current_batch_size": batch_size})
        predicted[batch_size] = predict_batch(request, lambda _: None).trial.device_used_bytes or 0
    for batch_size, used_mib in measured_mib.items():
        grown = (predicted[batch_size] - predicted[8]) / MIB
        assert grown == pytest.approx(used_mib - 2343, rel=0.15, abs=20)


@pytest.mark.slow
def test_a_workload_too_large_for_the_gpu_says_what_to_do() -> None:
    asked = {"model": "gpt2", "gpu": "t4", "memory_limit_bytes": 2 * GIB}
    with pytest.raises(
        DoesNotFit, match=r"on NVIDIA T4 limited to 2.00 GiB: even batch 1 needs 3\.\d\d of 2"
    ):
        analyze_predicted(AnalysisRequest.parse(asked), lambda _: None)


def test_a_memory_limit_below_the_cuda_context_is_refused() -> None:
    asked = {"model": "bert", "gpu": "a10", "memory_limit_bytes": 64 * MIB}
    with pytest.raises(DoesNotFit, match="the CUDA context alone takes"):
        analyze_predicted(AnalysisRequest.parse(asked), lambda _: None)
