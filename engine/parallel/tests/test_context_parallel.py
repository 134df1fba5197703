"""Context parallelism: what one GPU holds of every sequence.

PyTorch's ring attention has no kernel for the CPU, so traces are held against arithmetic.
"""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.errors import InvalidInput
from engine.gpus import GPUS
from engine.interface.workload import Workload
from engine.parallel.group import place
from engine.parallel.interconnect import caveats
from engine.parallel.tests.several_gpus import bytes_of
from engine.prediction.probe import predict_trial
from engine.step.training import build_model
from engine.tests.small import SMALL
from engine.traces.batch_rule import trace_every_batch_size
from engine.traces.shallow_models import ShallowModels
from engine.traces.tracer import WholeModel, trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Category, Trace

pytestmark = [pytest.mark.slow, pytest.mark.torch]

A100 = GPUS["a100-80gb"]
AMPERE = cuda_behaviour(8.0)
BATCH_SIZE = 3
LENGTH = 64
KEYS_AND_VALUES = 2 * BATCH_SIZE * 2 * 16
"""Numbers of both for a token: two heads that are 16 wide."""


def among(gpus: int = 2, model: str = "llama", **fields: Any) -> Workload:
    given = {
        "model": "small",
        "config": {"model_type": model} | SMALL[model],
        "sequence_length": LENGTH,
        "precision": "bf16-mixed",
        "parallelism": "fsdp",
        "world_size": gpus,
        "context_parallel": min(gpus, 4),
    }
    return Workload.parse(given | fields)


def waited_for(traced: Trace) -> int:
    return sum(one.bytes_moved for one in traced.operations if "c10d_functional" in one.name)


@pytest.mark.parametrize("gpus", [2, 4])
def test_each_gpu_has_its_part_of_the_logits(gpus: int) -> None:
    traced = trace(among(gpus), BATCH_SIZE, AMPERE)
    logits = BATCH_SIZE * LENGTH // gpus * 1000 * 4
    assert logits in traced.sizes
    assert BATCH_SIZE * LENGTH * 1000 * 4 not in traced.sizes


def test_weights_are_sharded_among_all_gpus_of_the_group() -> None:
    """As Accelerate and torchtitan have it: over data and context parallel GPUs together."""
    of_context, of_data = (
        bytes_of(trace(among(4, context_parallel=count), BATCH_SIZE, AMPERE), Category.PARAMETERS)
        for count in (4, 1)
    )
    assert of_context == of_data


@pytest.mark.parametrize("rotation", ["allgather", "alltoall"])
@pytest.mark.parametrize("gpus", [2, 4])
def test_keys_and_values_go_around_once_forward_and_twice_backward(
    rotation: str, gpus: int
) -> None:
    """Each GPU sends a part to every other one; their gradients, in fp32, come all the way home."""
    traced = trace(among(gpus, context_rotation=rotation), BATCH_SIZE, AMPERE)
    part = KEYS_AND_VALUES * LENGTH // gpus
    layer = 2 * (gpus - 1) * part * 2 + gpus * part * 4
    assert waited_for(traced) == 2 * layer


@pytest.mark.parametrize("fields", [{}, {"gradient_checkpointing": True}])
def test_no_gpu_of_the_group_needs_more_than_the_first(fields: dict[str, Any]) -> None:
    workload = among(4, sequence_length=512, **fields)
    first, *others = (
        trace(workload, 2, AMPERE, rank=rank).replay().peak_allocated_bytes for rank in range(4)
    )
    assert first == max(first, *others)
    assert min(others) > 0.99 * first


def test_twice_the_gpus_take_twice_the_length() -> None:
    def activations(gpus: int, length: int) -> int:
        workload = among(gpus, sequence_length=length, precision="bf16-true", world_size=8)
        return trace(workload, BATCH_SIZE, AMPERE).peak_by_category()[1]["activations"]

    assert activations(4, 1024) == pytest.approx(activations(2, 512), rel=0.02)


def test_below_ddp_each_gpu_keeps_all_weights() -> None:
    workload = among(4, context_parallel=2, parallelism="ddp", gradient_checkpointing=True)
    assert workload.data_parallel == 2
    traced = trace(workload, BATCH_SIZE, AMPERE)
    whole = trace(among(2, context_parallel=1, parallelism="ddp"), BATCH_SIZE, AMPERE)
    assert bytes_of(traced, Category.PARAMETERS) == bytes_of(whole, Category.PARAMETERS)
    trial = predict_trial(workload, A100, traced)
    assert trial.step_seconds is not None
    assert trial.samples_per_second == pytest.approx(2 * BATCH_SIZE / trial.step_seconds)


@pytest.mark.parametrize(
    "fields",
    [
        {"tensor_parallel": 2, "sequence_parallel": True},
        {"lora_rank": 4},
        {"cpu_offload": True},
        {"shard_size": 4},
        {"attention": "flash", "precision": "bf16-true"},
        {"cross_entropy": "trl"},
        {"activation_offload": True, "gradient_checkpointing": True},
    ],
)
def test_what_it_combines_with(fields: dict[str, Any]) -> None:
    if "lora_rank" in fields:
        pytest.importorskip("peft")
    workload = among(8, **{"context_parallel": 2} | fields)
    whole = among(8, **{"context_parallel": 1} | fields)
    part, all_of_it = (
        trace(one, BATCH_SIZE, AMPERE).peak_by_category()[1] for one in (workload, whole)
    )
    assert part["temporaries"] < all_of_it["temporaries"]


def test_sizes_are_affine_in_the_batch() -> None:
    workload = among(4)
    assert trace_every_batch_size(workload, AMPERE).at(7).sizes == trace(workload, 7, AMPERE).sizes


def test_deep_models_are_traced_by_way_of_shallow_ones() -> None:
    config = {"model_type": "llama"} | SMALL["llama"] | {"num_hidden_layers": 16}
    workload = among(2, config=config)
    depths = ShallowModels(WholeModel(workload, AMPERE))
    given, whole = depths.at(BATCH_SIZE), trace(workload, BATCH_SIZE, AMPERE)
    assert "blocks in place of 16" in depths.how
    assert given.sizes == whole.sizes
    assert given.events == whole.events


def test_the_answer_says_what_a_gpu_has() -> None:
    told = " ".join(caveats(among(4), A100))
    assert "each of 4 GPUs has 16 tokens of every sequence" in told
    assert "full sharding" in told


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"parallelism": "none"}, "parallelism", "choose fsdp, or ddp"),
        ({"parallelism": "zero-3"}, "parallelism", "choose fsdp, or ddp"),
        ({"world_size": 3, "context_parallel": 2}, "context_parallel", "product divides"),
        ({"sequence_length": 66}, "sequence_length", "multiple of twice"),
        ({"cross_entropy": "chunked"}, "cross_entropy", "parts of a sequence"),
        ({"attention": "eager"}, "attention", "parts of a sequence"),
        ({"shard_size": 2, "world_size": 8}, "shard_size", "multiple of the context"),
        ({"context_rotation": "alltoall", "context_parallel": 1}, "context_rotation", "allgather"),
        (
            {"pipeline_parallel": 2, "world_size": 8},
            "pipeline_parallel",
            "leave one of the two at 1",
        ),
    ],
)
def test_what_does_not_combine_is_refused(fields: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        among(4, **fields)
    assert message in refused.value.fields[field]


@pytest.mark.parametrize(
    ("workload", "field", "message"),
    [
        (among(2, "mistral"), "context_parallel", "this model has sliding_attention"),
        (among(2, precision="fp32"), "attention", "needs a fused kernel"),
    ],
)
def test_attention_that_cannot_go_around_is_refused(
    workload: Workload, field: str, message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        trace(workload, BATCH_SIZE, AMPERE)
    assert message in refused.value.fields[field]


def test_a_cpu_cannot_run_it() -> None:
    with pytest.raises(InvalidInput) as refused:
        place(build_model(among()), among(), "cpu")
    assert "choose a GPU" in refused.value.fields["context_parallel"]
    with pytest.raises(InvalidInput, match="does not run on a CPU"):
        trace(among(), BATCH_SIZE, None)
