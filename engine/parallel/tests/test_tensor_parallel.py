"""Tensor and sequence parallelism: what one GPU holds, compared with real processes."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.errors import InvalidInput
from engine.gpus import GPUS
from engine.interface.workload import Workload
from engine.measurement.parent import measure
from engine.measurement.protocol import TrialOrder
from engine.parallel.interconnect import caveats
from engine.prediction.probe import predict_step, predict_trial
from engine.tests.small import SMALL
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Category, Trace

pytestmark = [pytest.mark.slow, pytest.mark.torch]

A100 = GPUS["a100-80gb"]
AMPERE = cuda_behaviour(8.0)
BATCH_SIZE = 3


def among(gpus: int = 2, model: str = "llama", **fields: Any) -> Workload:
    given = {
        "model": "small",
        "config": {"model_type": model} | SMALL[model],
        "sequence_length": 32,
        "world_size": gpus,
        "tensor_parallel": min(gpus, 2),
    }
    return Workload.parse(given | fields)


def held(traced: Trace, category: Category) -> int:
    pairs = zip(traced.sizes, traced.categories, strict=True)
    return sum(size for size, kind in pairs if kind is category)


@pytest.mark.parametrize(
    ("gpus", "model", "fields"),
    [
        pytest.param(2, "llama", {}, marks=pytest.mark.full),
        (2, "qwen3", {}),
        (2, "llama", {"sequence_parallel": True, "optimizer": "adamw-foreach"}),
        (
            2,
            "llama",
            {"precision": "bf16-mixed", "gradient_checkpointing": True, "gradient_accumulation": 2},
        ),
        (4, "llama", {"parallelism": "fsdp", "sequence_parallel": True}),
    ],
)
def test_real_processes_take_what_is_predicted_to_the_byte(
    gpus: int, model: str, fields: dict[str, Any]
) -> None:
    workload = among(gpus, model, **fields)
    found = measure(TrialOrder(workload, BATCH_SIZE, memory_limit_bytes=2**30))
    assert found.peak_allocated_bytes == trace(workload, BATCH_SIZE, None).peak_by_category()[0]


def test_layers_are_split_and_the_rest_is_copied() -> None:
    whole, half = (trace(among(gpus), 2, None) for gpus in (1, 2))
    embedding_and_norms = 4 * (1000 * 64 + 5 * 64)
    split = held(whole, Category.PARAMETERS) - embedding_and_norms
    rotary = 2 * 4 * 8  # of the position embedding, two buffers
    assert held(half, Category.PARAMETERS) == embedding_and_norms + (split + rotary) // 2


def test_sequence_parallelism_keeps_less_between_the_layers() -> None:
    whole, part = (
        trace(among(sequence_parallel=value), 2, AMPERE).peak_by_category()[0]
        for value in (False, True)
    )
    assert part < whole


def test_a_step_waits_for_the_sums_of_split_layers() -> None:
    workload = among()
    traced = trace(workload, BATCH_SIZE, AMPERE)
    waited = sum(one.bytes_moved for one in traced.operations if "c10d_functional" in one.name)
    output = BATCH_SIZE * 32 * 64 * 4
    # Two layers, each with two blocks that add up forward and five inputs that add up backward;
    # the head gathers its logits, and its input adds up backward.
    sums = 2 * (2 + 5) + 1
    assert waited == sums * output + BATCH_SIZE * 32 * 500 * 4
    assert predict_step(workload, A100, traced).seconds > 0


def test_the_batch_is_that_of_the_group() -> None:
    workload = among(4, parallelism="fsdp")
    trial = predict_trial(workload, A100, trace(workload, BATCH_SIZE, AMPERE))
    assert trial.step_seconds is not None
    assert trial.samples_per_second == pytest.approx(2 * BATCH_SIZE / trial.step_seconds)
    assert any("splits each layer among 2 GPUs" in one for one in caveats(workload, A100))


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"world_size": 3}, "tensor_parallel", "divides the number of GPUs"),
        ({"world_size": 4}, "parallelism", "choose fsdp"),
        ({"world_size": 4, "parallelism": "ddp"}, "parallelism", "choose fsdp"),
        ({"parallelism": "fsdp"}, "parallelism", "no GPUs are left over"),
        ({"lora_rank": 8}, "lora_rank", "not predicted"),
        ({"optimizer": "adafactor"}, "optimizer", "choose adamw"),
        (
            {"tensor_parallel": 1, "world_size": 1, "sequence_parallel": True},
            "sequence_parallel",
            "",
        ),
        ({"sequence_parallel": True, "sequence_length": 31}, "sequence_parallel", "divide"),
    ],
)
def test_what_does_not_combine_is_refused(fields: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        among(**fields)
    assert message in refused.value.fields[field]


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (among(4, tensor_parallel=4), "divides the number of key value heads, which is 2"),
        (among(2, "gpt2"), "no plan to split this model"),
    ],
)
def test_a_model_that_does_not_split_evenly_is_refused(workload: Workload, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        trace(workload, BATCH_SIZE, None)
    assert message in refused.value.fields["tensor_parallel"]
