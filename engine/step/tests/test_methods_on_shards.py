"""Learning from answers on several GPUs that divide the model: policy, reference, generation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest

from engine.allocator.caching import ALLOCATE
from engine.core.errors import InvalidInput
from engine.interface.workload import Workload
from engine.measurement.parent import measure
from engine.measurement.protocol import TrialOrder
from engine.models.presets import PRESETS
from engine.parallel.group import among_gpus
from engine.parallel.tests.several_gpus import (
    BATCH_SIZE,
    bytes_of,
    large,
    most_alive,
    shared,
    two_steps,
)
from engine.parallel.tests.test_zero import small_weights
from engine.parallel.zero_division import Division
from engine.step import scoring
from engine.step.methods import method_caveats
from engine.step.ppo import ActorCritic
from engine.step.rollouts import SCORING
from engine.step.training import build_model, prepare
from engine.tests.shared import small_workload
from engine.tests.small import made_small
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Category, Trace, is_generating

AMPERE = cuda_behaviour(8.0)
GPU_COUNT = 4
LLAMA = "llama-3.2-1b"


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "TILE_TOKENS", 16)
    monkeypatch.setattr(scoring, "TILE_WORDS", 300)


def weights(**fields: Any) -> int:
    """The numbers in the whole model, without a reference."""
    model = build_model(small_workload(LLAMA, **fields))
    return sum(parameter.numel() for parameter in model.parameters())


def zero(stage: int, **fields: Any) -> Workload:
    fields = {"reduce_bucket_size": 5_000, "precision": "bf16-mixed", "optimizer": "adamw"} | fields
    return shared(LLAMA, f"zero-{stage}", GPU_COUNT, **fields)


# FSDP: what is traced is what runs


@pytest.mark.slow
@pytest.mark.usefixtures("small_models", "small_tiles")
@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (LLAMA, {"method": "dpo"}),
        (LLAMA, {"method": "dpo", "precision": "bf16-mixed", "gradient_checkpointing": True}),
        (LLAMA, {"method": "dpo", "precision": "bf16-true", "lora_rank": 4}),
        (LLAMA, {"method": "dpo", "reshard_after_forward": False}),
        ("mistral-7b", {"method": "kto"}),
        ("gpt2", {"method": "orpo", "precision": "bf16-mixed"}),
        ("qwen3-0.6b", {"method": "distillation", "teacher": "qwen3-8b"}),
        (LLAMA, {"method": "grpo", "kl_reference": True, "rollout": "server"}),
    ],
    ids=str,
)
def test_fsdp_on_fake_tensors_equals_fsdp_on_real_ones(model: str, fields: dict[str, Any]) -> None:
    workload = shared(model, "fsdp", **fields)
    with among_gpus(workload) as group:
        training = prepare(workload, group.spread(build_model(workload)))
        real = two_steps(group.recorder(training, BATCH_SIZE, None), training, workload)
    fake = trace(workload, BATCH_SIZE, None)
    assert fake.peak_by_category() == real.peak_by_category()
    assert large(fake.sizes) == large(real.sizes)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dpo", "orpo"])
def test_processes_over_gloo_need_what_is_predicted(method: str) -> None:
    config = made_small(PRESETS[LLAMA].config())
    given = {"model": "small", "config": config, "sequence_length": 16, "method": method}
    workload = Workload.parse(given | {"parallelism": "fsdp", "world_size": 2})
    found = measure(TrialOrder(workload, BATCH_SIZE, memory_limit_bytes=2**31))
    predicted, parts = trace(workload, BATCH_SIZE, None).peak_by_category()
    assert found.peak_allocated_bytes is not None, found.failure
    # Unlike NCCL, Gloo reduces and scatters a copy of its input.
    whole = sum(parameter.nbytes for parameter in build_model(workload).parameters())
    assert predicted <= found.peak_allocated_bytes <= predicted + whole
    assert found.breakdown["optimizer_state"] == parts["optimizer_state"]


@pytest.mark.slow
@pytest.mark.usefixtures("small_models")
def test_a_reference_on_fsdp_is_a_shard_that_is_gathered_whole() -> None:
    alone, beside = (
        trace(shared(LLAMA, "fsdp", GPU_COUNT, method=method), BATCH_SIZE, AMPERE)
        for method in ("orpo", "dpo")
    )
    whole = 4 * weights()
    kept = bytes_of(beside, Category.PARAMETERS) - bytes_of(alone, Category.PARAMETERS)
    assert kept == pytest.approx(whole / GPU_COUNT, rel=0.02)
    assert bytes_of(beside, Category.OPTIMIZER_STATE) == bytes_of(alone, Category.OPTIMIZER_STATE)
    # What is gathered at once is there twice for a moment: as it came, and as weights.
    assert most_alive(beside, Category.PARAMETERS) >= 2 * whole + 2 * kept


@pytest.mark.slow
@pytest.mark.usefixtures("small_models")
def test_a_teacher_on_fsdp_is_whole() -> None:
    student, teacher = ("qwen3-0.6b", "qwen3-8b")
    alone = trace(shared(student, "fsdp", GPU_COUNT), BATCH_SIZE, AMPERE)
    taught = shared(student, "fsdp", GPU_COUNT, method="distillation", teacher=teacher)
    more = bytes_of(trace(taught, BATCH_SIZE, AMPERE), Category.PARAMETERS)
    model = build_model(small_workload(teacher))
    whole = sum(parameter.nbytes for parameter in model.parameters())
    assert more - bytes_of(alone, Category.PARAMETERS) == pytest.approx(whole, rel=0.01)


# ZeRO: arithmetic on TRL's and DeepSpeed's source


@pytest.fixture
def no_weight_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of small models would all stay whole."""
    usual = Division.of
    monkeypatch.setattr(Division, "of", lambda workload: replace(usual(workload), small_elements=0))


@pytest.mark.slow
@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize(("stage", "share"), [(1, 1), (2, 1), (3, GPU_COUNT)])
@pytest.mark.parametrize("offloads", [False, True])
def test_with_zero_a_reference_adds_its_weights_in_bf16_and_nothing_else(
    stage: int, share: int, offloads: bool
) -> None:
    """``prepare_deepspeed`` of TRL: divided with stage 3, else whole, never with an optimizer."""
    alone, beside = (
        trace(zero(stage, method=method, optimizer_offload=offloads), BATCH_SIZE, AMPERE)
        for method in ("orpo", "dpo")
    )
    added = bytes_of(beside, Category.PARAMETERS) - bytes_of(alone, Category.PARAMETERS)
    assert added == pytest.approx(2 * weights() / share, rel=0.01)
    for category in (Category.OPTIMIZER_STATE, Category.GRADIENTS):
        assert bytes_of(beside, category) == bytes_of(alone, category)
    assert beside.host_bytes == alone.host_bytes


@pytest.mark.slow
@pytest.mark.usefixtures("small_models")
def test_the_reference_goes_to_the_host_with_the_weights_of_stage_3() -> None:
    alone, beside = (
        trace(zero(3, method=method, cpu_offload=True), BATCH_SIZE, AMPERE)
        for method in ("orpo", "dpo")
    )
    shard = 2 * weights() / GPU_COUNT
    assert beside.host_bytes - alone.host_bytes == pytest.approx(shard, rel=0.02)
    assert bytes_of(beside, Category.PARAMETERS) == pytest.approx(
        bytes_of(alone, Category.PARAMETERS), abs=1_000
    )


@pytest.mark.slow
@pytest.mark.usefixtures("small_models", "no_weight_is_small")
def test_all_weights_are_gathered_to_generate_with_zero_3() -> None:
    fields: dict[str, Any] = {"method": "grpo", "completion_length": 20}
    traced = trace(zero(3, **fields), BATCH_SIZE, AMPERE)
    served = trace(zero(3, **fields, rollout="server"), BATCH_SIZE, AMPERE)
    held = bytes_of(served, Category.PARAMETERS)
    assert _most_generating(traced) >= held + 2 * weights()
    assert bytes_of(traced, Category.PARAMETERS) == held  # and let go of


@pytest.mark.slow
@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize(("stage", "share"), [(1, 1), (2, 1), (3, GPU_COUNT)])
def test_with_zero_ppo_keeps_four_models_and_updates_two(stage: int, share: int) -> None:
    """``PPOTrainer`` of TRL 1.12: one engine for policy and value model, one for each frozen."""
    model = build_model(small_workload(LLAMA, method="ppo"))
    assert isinstance(model, ActorCritic)
    learn, stay = (
        sum(parameter.numel() for one in models for parameter in one.parameters())
        for models in (model.trained, model.frozen)
    )
    traced = trace(zero(stage, method="ppo"), BATCH_SIZE, AMPERE)
    whole = small_weights(*model.trained) if stage == 3 else 0
    weights = 2 * (learn + stay) / share + 2 * whole
    assert bytes_of(traced, Category.PARAMETERS) == pytest.approx(weights, rel=0.01)
    state = 12 * learn / GPU_COUNT
    assert bytes_of(traced, Category.OPTIMIZER_STATE) == pytest.approx(state, rel=0.01)


@pytest.mark.slow
@pytest.mark.usefixtures("small_models", "no_weight_is_small")
def test_policy_and_value_model_are_gathered_to_generate_and_not_to_score() -> None:
    traced = trace(zero(3, method="ppo", completion_length=20), BATCH_SIZE, AMPERE)
    model = build_model(small_workload(LLAMA, method="ppo"))
    whole = 2 * sum(one.numel() for one in model.parameters() if one.requires_grad)
    held = bytes_of(traced, Category.PARAMETERS)
    assert _most_generating(traced) >= held + whole
    assert _weights_at(traced, lambda phase: phase == SCORING) < held + whole / 2


def _most_generating(traced: Trace) -> int:
    """The most bytes of weights while text is generated."""
    return _weights_at(traced, is_generating)


def _weights_at(traced: Trace, wanted: Callable[[str], bool]) -> int:
    """The most bytes of weights when such a phase begins."""
    starts = [start for start, name in traced.phases if wanted(name)]
    assert starts
    changes = (
        (traced.sizes[tensor] if kind == ALLOCATE else -traced.sizes[tensor])
        * (traced.categories[tensor] is Category.PARAMETERS)
        for kind, tensor in traced.events
    )
    alive = list(accumulate(changes))
    return max(alive[start] for start in starts)


@pytest.mark.slow
@pytest.mark.usefixtures("small_models")
def test_fsdp_generates_block_by_block() -> None:
    workload = shared(LLAMA, "fsdp", GPU_COUNT, method="grpo", completion_length=20)
    traced = trace(workload, BATCH_SIZE, AMPERE)
    assert any(is_generating(name) for name in traced.peak_by_phase())
    assert bytes_of(traced, Category.PARAMETERS) == bytes_of(
        trace(shared(LLAMA, "fsdp", GPU_COUNT), BATCH_SIZE, AMPERE), Category.PARAMETERS
    )


# What is said and refused


@pytest.mark.parametrize(
    ("fields", "wrong", "message"),
    [
        ({"method": "ppo", "parallelism": "fsdp"}, "method", "choose zero-2 or zero-3"),
        (
            {"method": "distillation", "teacher": "qwen3-8b", "parallelism": "zero-3"},
            "method",
            "choose zero-2 or fsdp",
        ),
    ],
)
def test_what_is_not_predicted_on_shards_is_refused(
    fields: dict[str, Any], wrong: str, message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        small_workload("qwen3-0.6b", world_size=4, precision="bf16-mixed", **fields)
    assert message in refused.value.fields[wrong]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"method": "dpo", "parallelism": "fsdp"}, "all of it is gathered on each GPU"),
        ({"method": "kto", "parallelism": "zero-2"}, "whole on each GPU"),
        ({"method": "dpo", "parallelism": "zero-3"}, "divided among the GPUs"),
        ({"method": "dpo", "parallelism": "zero-3", "lora_rank": 4}, "adapters switched off"),
        ({"method": "grpo", "parallelism": "zero-3"}, "ds3_gather_for_generation"),
        ({"method": "ppo", "parallelism": "zero-2"}, "The reward model is whole on each GPU"),
        ({"method": "ppo", "parallelism": "zero-3"}, "All weights of policy and value model are"),
        (
            {"method": "distillation", "teacher": "qwen3-8b", "parallelism": "fsdp"},
            "whole on each GPU",
        ),
    ],
)
def test_an_answer_says_where_the_reference_is(fields: dict[str, Any], said: str) -> None:
    workload = small_workload("qwen3-0.6b", world_size=4, precision="bf16-mixed", **fields)
    assert said in " ".join(method_caveats(workload))
