"""Expert parallelism: what one GPU holds and sends, compared with real tensors and processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.core.errors import InvalidInput
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.interface.workload import Workload
from engine.measurement.parent import measure
from engine.measurement.protocol import TrialOrder
from engine.parallel.group import among_gpus
from engine.parallel.interconnect import caveats
from engine.parallel.tests.several_gpus import bytes_of, large, two_steps
from engine.prediction.predicted_analysis import analyze_predicted
from engine.step.training import build_model, prepare
from engine.tests.small import SMALL
from engine.traces.batch_rule import trace_every_batch_size
from engine.traces.shallow_models import ShallowModels
from engine.traces.tracer import WholeModel, trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Category

pytest.importorskip("transformers.distributed.expert_parallel")
pytestmark = [pytest.mark.slow, pytest.mark.torch]

A100 = GPUS["a100-80gb"]
AMPERE = cuda_behaviour(8.0)
BATCH_SIZE = 3
LENGTH = 32
CHOICES = BATCH_SIZE * LENGTH * 2
"""Each token goes to two experts."""


def among(gpus: int = 2, model: str = "qwen3_moe", **fields: Any) -> Workload:
    given = {
        "model": "small",
        "config": {"model_type": model} | SMALL[model],
        "sequence_length": LENGTH,
        "parallelism": "fsdp",
        "world_size": gpus,
        "expert_parallel": 2,
    }
    return Workload.parse(given | fields)


@pytest.mark.parametrize(
    ("gpus", "model", "fields"),
    [
        (2, "qwen3_moe", {}),
        (4, "mixtral", {"precision": "bf16-mixed", "gradient_checkpointing": True}),
        (4, "deepseek_v3", {"expert_load": 150, "shard_size": 2}),
    ],
)
def test_fake_tensors_take_what_real_ones_do(gpus: int, model: str, fields: dict[str, Any]) -> None:
    workload = among(gpus, model, **fields)
    with among_gpus(workload) as group:
        training = prepare(workload, group.spread(build_model(workload)))
        real = two_steps(group.recorder(training, BATCH_SIZE, None), training, workload)
    fake = trace(workload, BATCH_SIZE, None)
    assert fake.peak_by_category() == real.peak_by_category()
    wrapped = "_c10d_functional._wrap_tensor_autograd"  # stands for a tensor yet to arrive
    made = zip(real.sizes, real.makers, strict=True)
    assert large(fake.sizes) == large([size for size, maker in made if maker != wrapped])


def test_real_processes_need_what_is_predicted_of_their_routing() -> None:
    """Random routers send one of two GPUs more tokens than the other, and Gloo copies gradients."""
    workload = among(precision="bf16-true")
    routed = (replace(workload, expert_load=load) for load in (100, 200))
    found = measure(TrialOrder(workload, BATCH_SIZE, memory_limit_bytes=2**30))
    assert found.peak_allocated_bytes is not None
    even, most = (trace(one, BATCH_SIZE, None).peak_by_category()[0] for one in routed)
    embeddings = 2 * 2 * 1000 * 64
    assert even <= found.peak_allocated_bytes <= most + embeddings


@pytest.mark.parametrize("gpus", [2, 4])
def test_experts_are_divided_and_then_sharded_like_the_rest(gpus: int) -> None:
    """A GPU holds as much of all weights as with FSDP alone, though other parts of the experts."""
    divided, sharded = (
        trace(among(gpus, expert_parallel=count), BATCH_SIZE, AMPERE) for count in (2, 1)
    )
    for category in (Category.PARAMETERS, Category.OPTIMIZER_STATE):
        assert bytes_of(divided, category) == pytest.approx(bytes_of(sharded, category), rel=0.001)
    if gpus == 2:  # the experts are whole, so nothing of them is gathered
        gathered = [
            sum(one.bytes_moved for one in traced.operations if "allgather" in one.name)
            for traced in (divided, sharded)
        ]
        assert gathered[0] < gathered[1]


def test_tokens_are_sent_to_experts_and_back() -> None:
    traced = trace(among(precision="bf16-true"), BATCH_SIZE, AMPERE)
    sent = [one.bytes_moved for one in traced.operations if "all_to_all" in one.name]
    # Two layers, each to and fro, forward and backward; half of the tokens stay here.
    assert sent == [CHOICES // 2 * 64 * 2] * 8


def test_a_fuller_gpu_needs_more() -> None:
    peaks = [
        trace(among(expert_load=load), BATCH_SIZE, AMPERE).peak_by_category()[0]
        for load in (100, 150, 200)
    ]
    assert peaks == sorted(peaks)
    assert peaks[2] - peaks[1] == pytest.approx(peaks[1] - peaks[0], rel=0.05)


def test_sizes_are_affine_in_the_batch() -> None:
    workload = among(4)
    assert trace_every_batch_size(workload, AMPERE).at(7).sizes == trace(workload, 7, AMPERE).sizes


def test_deep_models_are_traced_by_way_of_shallow_ones() -> None:
    config = {"model_type": "qwen3_moe"} | SMALL["qwen3_moe"] | {"num_hidden_layers": 16}
    workload = among(config=config)
    depths = ShallowModels(WholeModel(workload, AMPERE))
    given, whole = depths.at(BATCH_SIZE), trace(workload, BATCH_SIZE, AMPERE)
    assert "blocks in place of 16" in depths.how
    assert given.sizes == whole.sizes
    assert given.events == whole.events


def test_an_answer_says_how_tokens_are_routed() -> None:
    request = AnalysisRequest(among(4), gpu="a10", current_batch_size=8, memory_limit_bytes=2**31)
    told = " ".join(analyze_predicted(request, lambda event: None).caveats)
    assert "each of 2 GPUs has 1/2 of the experts, sharded among 2" in told
    assert "as many tokens for its experts as it sends" in told
    assert "however tokens are routed" not in told
    assert "150% of the tokens" in " ".join(caveats(among(4, expert_load=150), A100))


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"parallelism": "ddp"}, "parallelism", "choose fsdp"),
        ({"expert_parallel": 3}, "expert_parallel", "divides that of the GPUs"),
        ({"tensor_parallel": 2, "world_size": 4}, "expert_parallel", "leave one of the two at 1"),
        ({"expert_parallel": 1, "expert_load": 150}, "expert_load", "leave it at 100"),
        ({"expert_load": 201}, "expert_load", "at most 100 for each"),
        ({"lora_rank": 8}, "lora_rank", "not predicted"),
    ],
)
def test_what_does_not_combine_is_refused(fields: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        among(**fields)
    assert message in refused.value.fields[field]


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (among(8, expert_parallel=8), "divides the 4 experts"),
        (among(2, "llama"), "no plan to divide this model's experts"),
    ],
)
def test_models_without_such_experts_are_refused(workload: Workload, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        trace(workload, BATCH_SIZE, None)
    assert message in refused.value.fields["expert_parallel"]
