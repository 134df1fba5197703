"""Pipeline parallelism: what each stage holds, compared with real processes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from engine.core.errors import InvalidInput
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Source
from engine.interface.workload import Workload
from engine.measurement.parent import measure
from engine.measurement.protocol import TrialOrder
from engine.prediction.predicted_analysis import analyze_predicted
from engine.prediction.probe import predict_trial
from engine.tests.small import SMALL
from engine.traces.pipeline_stages import candidates
from engine.traces.tracer import trace
from engine.traces.workloads import trace_workload
from engine.tracing.lowering import cuda_behaviour

pytestmark = [pytest.mark.slow, pytest.mark.torch]

A100 = GPUS["a100-80gb"]
AMPERE = cuda_behaviour(8.0)
BATCH_SIZE = 3
HIDDEN_BYTES = BATCH_SIZE * 32 * 64 * 4
"""Size of the tensor that one micro-batch passes from stage to stage."""


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
    stages = workload.pipeline_parallel
    ranks = (stage * workload.world_size // stages for stage in range(stages))
    return [trace(workload, BATCH_SIZE, None, rank=rank).peak_by_category()[0] for rank in ranks]


@pytest.mark.parametrize(
    ("micro_batches", "fields"),
    [
        (2, {}),
        (5, {}),
        (2, {"precision": "bf16-mixed", "gradient_checkpointing": True}),
        (2, {"stage_layers": "3,1"}),
        (2, {"world_size": 4, "tensor_parallel": 2}),
    ],
)
def test_real_processes_take_what_is_predicted_but_for_losses(
    micro_batches: int, fields: dict[str, Any]
) -> None:
    workload = staged(2, micro_batches, **fields)
    found = measure(TrialOrder(workload, BATCH_SIZE, memory_limit_bytes=2**30))
    assert found.peak_allocated_bytes is not None
    losses = 4 * micro_batches
    assert 0 <= found.peak_allocated_bytes - max(peaks(workload)) <= losses


def test_a_sharded_stage_takes_what_is_predicted_plus_gloos_copies() -> None:
    workload = staged(world_size=4, parallelism="fsdp")
    found = measure(TrialOrder(workload, BATCH_SIZE, memory_limit_bytes=2**30))
    assert found.peak_allocated_bytes is not None
    # Unlike NCCL, Gloo reduces and scatters a copy of its input: here the head's gradients.
    more = found.peak_allocated_bytes - max(peaks(workload))
    assert 0 <= more <= 4 * 1000 * 64 + 4 * 2


def test_stages_divide_what_fsdp_divides_further() -> None:
    alone, sharded = (peaks(staged(world_size=gpus, **fields)) for gpus, fields in _SHARDED)
    assert all(one < other for one, other in zip(sharded, alone, strict=True))


_SHARDED: list[tuple[int, dict[str, Any]]] = [(2, {}), (4, {"parallelism": "fsdp"})]


def test_all_three_divide_a_model() -> None:
    """8 GPUs: 2 have a stage each, of which 2 split its layers and 2 shard what is left."""
    given: dict[str, Any] = {"world_size": 8, "tensor_parallel": 2, "parallelism": "fsdp"}
    workload = staged(precision="bf16-mixed", **given)
    assert workload.data_parallel == 2
    traced = trace(workload, BATCH_SIZE, AMPERE)
    names = {operation.name for operation in traced.operations}
    assert {"c10d.send", "c10d._allgather_base_", "_c10d_functional.all_reduce"} <= names
    trial = predict_trial(workload, A100, traced)
    assert trial.step_seconds is not None
    assert trial.samples_per_second == pytest.approx(2 * 2 * BATCH_SIZE / trial.step_seconds)


def test_the_first_trace_of_a_process_is_as_any_other() -> None:
    code = (
        "from engine.parallel.tests.test_pipeline import AMPERE, staged, trace\n"
        "first, second = (trace(staged(), 2, AMPERE) for _ in range(2))\n"
        "assert first == second"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_middle_stage_with_more_layers_may_be_the_fullest() -> None:
    assert candidates(staged(4, 4, stage_layers="1,1,1,1")) == [0, 1, 3]
    assert candidates(staged(4, 4, stage_layers="1,1,2,1")) == [0, 1, 2, 3]
    assert candidates(staged(2, 2)) == [0, 1]
    workload = staged(3, 3, stage_layers="1,2,1")
    first, middle, last = peaks(workload)
    assert middle > first
    traces = trace_workload(workload, AMPERE, lambda _: None)
    why = traces.at(BATCH_SIZE).caveats[-1]
    assert why.startswith("Stage ")
    assert ("Stage 2 of 3" in why) == (middle > last)


def test_layers_of_stages_that_the_model_does_not_have_are_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        trace(staged(stage_layers="3,3"), BATCH_SIZE, None)
    assert "has 4 layers, not 6" in refused.value.fields["stage_layers"]


def test_earlier_stages_keep_more_micro_batches() -> None:
    """The second of four stages keeps one micro-batch more than the third."""
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
    assert any("needs the most memory" in caveat for caveat in result.caveats)


def test_more_micro_batches_fill_the_bubble() -> None:
    few, many = (
        predict_trial(workload, A100, trace(workload, BATCH_SIZE, AMPERE))
        for workload in (staged(2, 2), staged(2, 16))
    )
    assert few.samples_per_second is not None
    assert many.samples_per_second is not None
    # The bubble alone gives 24 / 17; the optimizer, which runs once in a step, gives the rest.
    assert 24 / 17 < many.samples_per_second / few.samples_per_second < 2


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"world_size": 4}, "parallelism", "choose fsdp"),
        ({"world_size": 3}, "pipeline_parallel", "product divides the number of GPUs"),
        ({"world_size": 6, "tensor_parallel": 2}, "tensor_parallel", "product divides"),
        ({"parallelism": "fsdp"}, "parallelism", "no GPUs are left over"),
        ({"world_size": 4, "parallelism": "ddp"}, "parallelism", "go with fsdp only"),
        (
            {"world_size": 4, "tensor_parallel": 2, "sequence_parallel": True},
            "sequence_parallel",
            "leave it off",
        ),
        ({"stage_layers": "2,1,1"}, "stage_layers", "for each stage"),
        ({"stage_layers": "4,0"}, "stage_layers", "above 0"),
        ({"stage_layers": "half,half"}, "stage_layers", "whole number"),
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
