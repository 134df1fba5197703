"""Pipeline parallelism: what each stage holds, compared with real processes."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import InvalidInput
from engine.gpus import GPUS
from engine.measurement.parent import measure
from engine.measurement.protocol import TrialOrder
from engine.prediction.analysis import analyze_predicted
from engine.prediction.probe import predict_trial
from engine.prediction.tracer import trace
from engine.request import AnalysisRequest
from engine.result import Source
from engine.tests.small import SMALL
from engine.tracing.lowering import cuda_behaviour
from engine.workload import Workload

pytestmark = [pytest.mark.slow, pytest.mark.torch]

A100 = GPUS["a100-80gb"]
AMPERE = cuda_behaviour(8.0)
BATCH_SIZE = 3
HIDDEN_BYTES = BATCH_SIZE * 32 * 64 * 4
"""Of what one micro-batch passes from stage to stage."""


def staged(stages: int = 2, micro_batches: int = 2, **fields: Any) -> Workload:
    given = {
        "model": "small",
        "config": {"model_type": "llama"} | SMALL["llama"] | {"num_hidden_layers": 4},
        "sequence_length": 32,
        "world_size": stages,
        "pipeline_parallel": stages,
        "gradient_accumulation": micro_batches,
    }
    return Workload.parse(given | fields)


def peaks(workload: Workload) -> list[int]:
    ranks = range(workload.pipeline_parallel)
    return [trace(workload, BATCH_SIZE, None, rank=rank).peak_by_category()[0] for rank in ranks]


@pytest.mark.parametrize(
    ("micro_batches", "fields"),
    [(2, {}), (5, {}), (2, {"precision": "bf16-mixed", "gradient_checkpointing": True})],
)
def test_real_processes_take_what_is_predicted_but_for_losses(
    micro_batches: int, fields: dict[str, Any]
) -> None:
    workload = staged(2, micro_batches, **fields)
    found = measure(TrialOrder(workload, BATCH_SIZE, memory_limit_bytes=2**30))
    assert found.peak_allocated_bytes is not None
    losses = 4 * micro_batches
    assert 0 <= found.peak_allocated_bytes - max(peaks(workload)) <= losses


def test_earlier_stages_keep_more_micro_batches() -> None:
    """Of four stages with a layer each, the second keeps one micro-batch more than the third."""
    first, second, third, last = peaks(staged(4, 4))
    assert second - third > 5 * HIDDEN_BYTES
    assert second < max(first, last)


def test_a_micro_batch_more_is_a_buffer_more() -> None:
    fewer, more = (peaks(staged(2, count))[0] for count in (4, 5))
    assert 0 < more - fewer < 1.1 * HIDDEN_BYTES


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_answer_is_computed_and_has_the_bubble(checkpointing: bool) -> None:
    workload = staged(gradient_checkpointing=checkpointing)
    request = AnalysisRequest(workload=workload, gpu="a100-80gb", current_batch_size=2)
    result = analyze_predicted(request, lambda _: None)
    assert result.source is Source.COMPUTED
    assert {trial.source for trial in result.trials} == {Source.COMPUTED}
    assert any("1F1B" in caveat for caveat in result.caveats)


def test_more_micro_batches_fill_the_bubble() -> None:
    few, many = (
        predict_trial(workload, A100, trace(workload, BATCH_SIZE, AMPERE))
        for workload in (staged(2, 2), staged(2, 16))
    )
    assert few.samples_per_second is not None
    assert many.samples_per_second is not None
    assert 1.2 < many.samples_per_second / few.samples_per_second < 1.5


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"world_size": 4}, "pipeline_parallel", "as many stages as GPUs"),
        ({"world_size": 4, "tensor_parallel": 2}, "tensor_parallel", "alone"),
        ({"parallelism": "fsdp"}, "parallelism", "choose none"),
        ({"lora_rank": 8}, "lora_rank", "not predicted"),
        ({"precision": "fp16-mixed"}, "precision", "bf16-mixed"),
    ],
)
def test_what_does_not_combine_is_refused(fields: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        staged(**fields)
    assert message in refused.value.fields[field]


def test_fewer_micro_batches_than_stages_are_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        AnalysisRequest(workload=staged(4, 3), gpu="a100-80gb")
    assert "enter 4 or more" in refused.value.fields["gradient_accumulation"]


def test_a_global_batch_is_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        AnalysisRequest(workload=staged(), gpu="a100-80gb", global_batch_size=64)
    assert "gradient_accumulation" in refused.value.fields["global_batch_size"]


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        trace(staged(8, 8), BATCH_SIZE, None)
    assert "fewer than the stages" in refused.value.fields["pipeline_parallel"]
