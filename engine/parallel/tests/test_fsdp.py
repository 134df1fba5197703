"""FSDP: shards and gathered weights, compared with the real implementation."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import pytest
import torch
import torch.distributed as dist

from engine.core.errors import InvalidInput
from engine.gpus import GPUS
from engine.models.presets import Preset
from engine.parallel.fsdp import repeated_blocks
from engine.parallel.group import among_gpus
from engine.parallel.tests.several_gpus import (
    BATCH_SIZE,
    bytes_of,
    count,
    large,
    most_alive,
    padded,
    shapes,
    shared,
    two_steps,
)
from engine.prediction.probe import predict_trial
from engine.step.training import build_model, prepare
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import COPY, Category

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small_models"), pytest.mark.torch]

A100 = GPUS["a100-80gb"]
AMPERE = cuda_behaviour(8.0)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("bert", {}),
        ("gpt2", {"optimizer": "sgd"}),
        ("resnet", {"optimizer": "adamw-foreach"}),
        ("llama-3.2-1b", {"gradient_checkpointing": True}),
        ("bert", {"precision": "bf16-mixed"}),
        ("bert", {"frozen_backbone": True}),
        ("bert", {"lora_rank": 4}),
        ("llama-3.2-1b", {"lora_rank": 4, "precision": "bf16-true"}),
        ("gpt2", {"reshard_after_forward": False}),
        ("gpt2", {"reshard_after_forward": True, "precision": "bf16-mixed"}),
        ("bert", {"reduce_dtype": "fp32", "precision": "bf16-mixed"}),
        ("llama-3.2-1b", {"reduce_dtype": "fp32", "precision": "bf16-true"}),
        ("gpt2", {"shard_size": 2}),
        ("llama-3.2-1b", {"cpu_offload": True, "precision": "bf16-mixed"}),
        ("bert", {"cpu_offload": True, "gradient_accumulation": 2}),
        ("llama-3.2-1b", {"cross_entropy": "chunked", "precision": "bf16-mixed"}),
        ("llama-3.2-1b", {"cross_entropy": "chunked", "reshard_after_forward": True}),
        ("mistral-7b", {"cross_entropy": "liger", "gradient_checkpointing": True}),
        ("mistral-7b", {"cross_entropy": "liger", "precision": "bf16-mixed"}),
        ("mistral-7b", {"cross_entropy": "liger", "precision": "bf16-true", "lora_rank": 4}),
        ("gpt2", {"cross_entropy": "liger", "reshard_after_forward": True}),
        ("mistral-7b", {"cross_entropy": "trl", "precision": "bf16-mixed"}),
        ("llama-3.2-1b", {"activation_offload": True, "gradient_checkpointing": True}),
    ],
)
def test_fsdp_on_fake_tensors_equals_fsdp_on_real_ones(model: str, fields: dict[str, Any]) -> None:
    workload = shared(model, "fsdp", **fields)
    with among_gpus(workload) as group:
        training = prepare(workload, group.spread(build_model(workload)))
        recorder = group.recorder(training, BATCH_SIZE, None)
        training.offload_to(group.on_host())
        real = two_steps(recorder, training, workload)
    fake = trace(workload, BATCH_SIZE, None)
    assert fake.peak_by_category() == real.peak_by_category()
    assert large(fake.sizes) == large(real.sizes)


@pytest.mark.parametrize("world_size", [2, 3, 8, 1024])
def test_fsdp_state_is_one_share_with_its_padding(world_size: int) -> None:
    workload = shared("bert", "fsdp", world_size)
    traced = trace(workload, BATCH_SIZE, AMPERE)
    all_shapes = shapes(workload)
    share = sum(4 * -(-shape[0] // world_size) * prod(shape[1:]) for shape in all_shapes)
    buffers = 2 * 512 * 8  # position and token type ids
    steps = 4 * len(all_shapes)
    assert bytes_of(traced, Category.PARAMETERS) == share + buffers
    # The state excludes the shard's padding: the first GPU has none.
    assert bytes_of(traced, Category.OPTIMIZER_STATE) == 2 * share + steps


def test_more_gpus_never_need_more_memory_each() -> None:
    peaks = [
        trace(shared("gpt2", "fsdp", world_size), BATCH_SIZE, AMPERE).replay().peak_allocated_bytes
        for world_size in (2, 4, 16, 128)
    ]
    assert peaks == sorted(peaks, reverse=True)


def test_at_most_two_blocks_are_unsharded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    smaller = Preset.config
    monkeypatch.setattr(Preset, "config", lambda preset: smaller(preset) | {"num_hidden_layers": 8})
    workload = shared("vit-b", "fsdp", optimizer="none")
    with torch.device("meta"):
        model = build_model(workload)
    blocks = repeated_blocks(model)
    assert len(blocks) == 8
    block, whole = padded(blocks[0], 4), padded(model, 4)
    root = whole - 8 * block
    unsharded = most_alive(trace(workload, 1, None), Category.PARAMETERS) - whole / 4
    # Two blocks, or the root and one; each a second time in the buffer it is gathered into.
    assert root + 2 * block < unsharded < 1.01 * max(root + 4 * block, 2 * root + 2 * block)


def test_weights_that_are_not_resharded_are_gathered_once_and_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    smaller = Preset.config
    monkeypatch.setattr(Preset, "config", lambda preset: smaller(preset) | {"num_hidden_layers": 5})
    again, once = (
        trace(shared("vit-b", "fsdp", optimizer="none", reshard_after_forward=value), 1, AMPERE)
        for value in (True, False)
    )
    assert count(once, "c10d._allgather_base_") < count(again, "c10d._allgather_base_")
    assert most_alive(once, Category.PARAMETERS) > most_alive(again, Category.PARAMETERS)


def test_groups_that_hold_replicas_shard_as_one_group_alone() -> None:
    alone = trace(shared("bert", "fsdp", 4), BATCH_SIZE, AMPERE)
    several = trace(shared("bert", "fsdp", 8, shard_size=4), BATCH_SIZE, AMPERE)
    for category in (Category.PARAMETERS, Category.OPTIMIZER_STATE):
        assert bytes_of(several, category) == bytes_of(alone, category)
    assert count(several, "c10d.allreduce_") == 3  # each block's gradients, and the root's
    assert count(alone, "c10d.allreduce_") == 0


def test_offloaded_shards_take_memory_of_the_host_alone() -> None:
    workload = shared("bert", "fsdp", cpu_offload=True)
    traced = trace(workload, BATCH_SIZE, AMPERE)
    share = sum(4 * -(-shape[0] // 4) * prod(shape[1:]) for shape in shapes(workload))
    buffers = 2 * 512 * 8  # position and token type ids, on the GPU
    assert bytes_of(traced, Category.PARAMETERS) == buffers
    assert bytes_of(traced, Category.OPTIMIZER_STATE) == 0
    assert bytes_of(traced, Category.GRADIENTS) == 0
    # Weights, gradients and both moments of AdamW, with its step counts.
    assert traced.host_bytes == pytest.approx(4 * share, rel=0.01)


def test_offloaded_shards_cross_the_link_whenever_they_are_gathered() -> None:
    kept, offloaded = (
        trace(shared("bert", "fsdp", cpu_offload=value), BATCH_SIZE, AMPERE)
        for value in (False, True)
    )
    gathered = sum(op.bytes_moved for op in kept.operations if op.name == "c10d._allgather_base_")
    share = sum(4 * -(-shape[0] // 4) * prod(shape[1:]) for shape in shapes(shared("bert", "fsdp")))
    copied = sum(op.bytes_moved for op in offloaded.operations if op.name == COPY)
    # A ring of four sends three shards for each that is gathered; each gradient comes back.
    assert copied == pytest.approx(gathered / 3 + share, rel=0.01)
    assert not any(op.name.startswith("aten._fused_adam") for op in offloaded.operations)
    slow, fast = (
        predict_trial(shared("bert", "fsdp", cpu_offload=value), A100, traced).step_seconds or 0
        for value, traced in ((True, offloaded), (False, kept))
    )
    assert slow > fast


def test_gradients_reduced_in_fp32_are_sent_in_full() -> None:
    sent = {}
    for reduce_dtype in ("gathered", "fp32"):
        workload = shared("bert", "fsdp", precision="bf16-mixed", reduce_dtype=reduce_dtype)
        sent[reduce_dtype] = sum(
            operation.bytes_moved
            for operation in trace(workload, BATCH_SIZE, AMPERE).operations
            if operation.name == "c10d._reduce_scatter_base_"
        )
    assert sent["fp32"] == 2 * sent["gathered"]


@pytest.mark.parametrize("shard_size", [3, 4])
def test_shard_groups_divide_the_gpus(shard_size: int) -> None:
    with pytest.raises(InvalidInput) as refused:
        shared("bert", "fsdp", 4, shard_size=shard_size)
    assert "divides the number of GPUs" in refused.value.fields["shard_size"]


@pytest.mark.parametrize(
    "field",
    [
        {"reshard_after_forward": False},
        {"reduce_dtype": "fp32"},
        {"shard_size": 2},
        {"cpu_offload": True},
    ],
)
def test_only_fsdp_has_its_options(field: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        shared("bert", "ddp", **field)
    assert refused.value.fields.keys() == field.keys()


def test_fsdp_gathers_in_half_precision_under_autocast() -> None:
    sent = {}
    for precision in ("fp32", "bf16-mixed"):
        traced = trace(shared("bert", "fsdp", precision=precision), BATCH_SIZE, AMPERE)
        sent[precision] = sum(
            op.bytes_moved for op in traced.operations if op.name.startswith("c10d.")
        )
    assert sent["bf16-mixed"] * 2 == sent["fp32"]


def test_communication_has_its_own_streams() -> None:
    traced = trace(shared("bert", "fsdp"), BATCH_SIZE, AMPERE)
    assert set(traced.streams) == {0, 1, 2}
    assert len(traced.streams) == len(traced.sizes)
    one_stream = replace(traced, streams=[])
    assert traced.replay().peak_reserved_bytes > one_stream.replay().peak_reserved_bytes


@pytest.mark.parametrize("optimizer", ["adafactor", "adamw-8bit"])
def test_an_optimizer_that_does_not_run_on_shards_is_refused(optimizer: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        shared("bert", "fsdp", optimizer=optimizer)
    assert "choose adamw" in refused.value.fields["optimizer"]


def test_a_model_that_cannot_be_sharded_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidInput) as refused:
        trace(shared("clip", "fsdp"), BATCH_SIZE, AMPERE)
    assert "logit_scale" in refused.value.fields["parallelism"]
    assert not dist.is_initialized()
