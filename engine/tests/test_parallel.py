"""Several GPUs: memory per GPU with DDP and FSDP, compared with the real implementations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel

from engine.allocator.caching import ALLOCATE, CachingAllocator, replay
from engine.errors import EngineError, InvalidInput
from engine.gpus import GPUS
from engine.models.presets import Preset
from engine.parallel.fsdp import repeated_blocks
from engine.parallel.group import among_gpus
from engine.parallel.interconnect import NCCL_GROUP_BYTES, NCCL_PAIR_BYTES
from engine.prediction.analysis import analyze_predicted
from engine.prediction.every_batch_size import trace_every_batch_size
from engine.prediction.probe import predict_trial
from engine.prediction.timeline import timeline
from engine.prediction.tracer import trace
from engine.request import AnalysisRequest
from engine.step.batches import make_batch
from engine.step.training import build_model, prepare, training_step
from engine.tests.conftest import small_workload
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.recorder import MemoryRecorder
from engine.tracing.trace import COPY, Category, Trace
from engine.workload import Workload

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small_models"), pytest.mark.torch]

A100 = GPUS["a100-80gb"]
AMPERE = cuda_behaviour(8.0)
BATCH_SIZE = 3


def shared(model: str, parallelism: str, world_size: int = 4, **fields: Any) -> Workload:
    return small_workload(model, parallelism=parallelism, world_size=world_size, **fields)


def bytes_of(traced: Trace, category: Category) -> int:
    """Bytes of a category alive between steps."""
    alive: set[int] = set()
    for kind, tensor in traced.events:
        (alive.add if kind == ALLOCATE else alive.discard)(tensor)
    return sum(traced.sizes[tensor] for tensor in alive if traced.categories[tensor] is category)


def shapes(workload: Workload) -> list[torch.Size]:
    with torch.device("meta"):
        return [parameter.shape for parameter in build_model(workload).parameters()]


@contextmanager
def one_process() -> Iterator[None]:
    """A real process group with only this process."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def two_steps(recorder: MemoryRecorder, training: Any, workload: Workload) -> Trace:
    batch = make_batch(workload, BATCH_SIZE)
    for _ in range(2):
        recorder.record_step(lambda: training_step(training, batch))
    return recorder.trace


# DDP


@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("bert", {}),
        ("bert", {"vocab_size": 30_000, "hidden_size": 256}),  # several buckets
        ("gpt2", {}),
        ("resnet", {}),
    ],
)
def test_ddp_buckets_are_those_of_the_real_reducer(
    model: str, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    smaller = Preset.config
    monkeypatch.setattr(Preset, "config", lambda preset: smaller(preset) | config)
    workload = small_workload(model)
    built = build_model(workload)
    with one_process():
        training = prepare(workload, built)
        training.model = DistributedDataParallel(built)
        real = two_steps(MemoryRecorder(training, BATCH_SIZE), training, workload)
    ours = trace(shared(model, "ddp"), BATCH_SIZE, None)
    alone = Counter(trace(workload, BATCH_SIZE, None).sizes)
    # The real one also broadcasts the model's buffers and the order of the gradients, and code that
    # looks at values does so on real tensors only.
    little = max(256, sum(buffer.nbytes for buffer in built.buffers()))
    for added in (real_ones := Counter(real.sizes) - alone, buckets := Counter(ours.sizes) - alone):
        for size in list(added):
            if size <= little:
                del added[size]
    assert buckets == real_ones
    assert buckets.total() >= 2  # one in the first step, then at least one


@pytest.mark.parametrize("world_size", [2, 64, 1024])
@pytest.mark.parametrize("optimizer", ["none", "adamw", "adafactor"])
def test_ddp_adds_exactly_the_buckets_to_the_peak(world_size: int, optimizer: str) -> None:
    alone = trace(small_workload("bert", optimizer=optimizer), BATCH_SIZE, AMPERE)
    together = trace(shared("bert", "ddp", world_size, optimizer=optimizer), BATCH_SIZE, AMPERE)
    gradients = sum(prod(shape) * 4 for shape in shapes(small_workload("bert")))
    assert together.peak_by_category()[0] - alone.peak_by_category()[0] == gradients
    assert bytes_of(together, Category.GRADIENTS) == gradients


def test_gradients_in_buckets_are_held_once() -> None:
    def most(**fields: Any) -> int:
        points = timeline(trace(shared("bert", "ddp", 2, **fields), BATCH_SIZE, AMPERE))
        return max(point.bytes["gradients"] for point in points)

    gradients = sum(prod(shape) * 4 for shape in shapes(small_workload("bert")))
    largest = max(prod(shape) * 4 for shape in shapes(small_workload("bert")))
    assert 2 * gradients - largest <= most() <= 2 * gradients
    assert gradients <= most(gradient_as_bucket_view=True) <= gradients + largest


def test_only_trained_parameters_have_buckets() -> None:
    frozen = trace(shared("bert", "ddp", frozen_backbone=True), BATCH_SIZE, AMPERE)
    assert bytes_of(frozen, Category.GRADIENTS) == 4 * (2 * 64 + 2)  # the head


@pytest.mark.parametrize("world_size", [2, 8])
def test_ddp_sends_each_gradient_around_the_ring_twice(world_size: int) -> None:
    traced = trace(shared("bert", "ddp", world_size), BATCH_SIZE, AMPERE)
    gradients = sum(prod(shape) * 4 for shape in shapes(small_workload("bert")))
    sent = sum(op.bytes_moved for op in traced.operations if op.name.startswith("c10d."))
    assert sent == pytest.approx(
        2 * gradients * (world_size - 1) / world_size, abs=len(traced.sizes)
    )


# FSDP


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
    ],
)
def test_fsdp_on_fake_tensors_equals_fsdp_on_real_ones(model: str, fields: dict[str, Any]) -> None:
    workload = shared(model, "fsdp", **fields)
    with among_gpus(workload) as group:
        training = prepare(workload, group.spread(build_model(workload)))
        real = two_steps(group.recorder(training, BATCH_SIZE, None), training, workload)
    fake = trace(workload, BATCH_SIZE, None)
    assert fake.peak_by_category() == real.peak_by_category()
    assert large(fake.sizes) == large(real.sizes)


def large(sizes: list[int]) -> Counter[int]:
    """Sizes above a few bytes; smaller ones come from code that reads values of real tensors."""
    return Counter(size for size in sizes if size > 64)


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
    unsharded = _most_alive(trace(workload, 1, None), Category.PARAMETERS) - whole / 4
    # Two blocks, or the root and one; each a second time in the buffer it is gathered into.
    assert root + 2 * block < unsharded < 1.01 * max(root + 4 * block, 2 * root + 2 * block)


def padded(module: torch.nn.Module, world_size: int) -> int:
    """Bytes of a module's parameters, each padded to an equal share for every GPU."""
    shapes = [parameter.shape for parameter in module.parameters()]
    return sum(4 * world_size * -(-shape[0] // world_size) * prod(shape[1:]) for shape in shapes)


def _most_alive(traced: Trace, category: Category) -> int:
    alive = most = 0
    for kind, tensor in traced.events:
        if traced.categories[tensor] is category:
            alive += traced.sizes[tensor] if kind == ALLOCATE else -traced.sizes[tensor]
            most = max(most, alive)
    return most


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
    assert _most_alive(once, Category.PARAMETERS) > _most_alive(again, Category.PARAMETERS)


def count(traced: Trace, name: str) -> int:
    return sum(operation.name == name for operation in traced.operations)


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


# Both


@pytest.mark.parametrize("parallelism", ["ddp", "fsdp"])
@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("bert", {}),
        ("gpt2", {"precision": "fp16-mixed"}),
        ("resnet", {"precision": "bf16-true"}),
        ("t5-small", {"gradient_accumulation": 3, "optimizer": "lion"}),
        ("llama-3.2-1b", {"gradient_checkpointing": True, "precision": "bf16-mixed"}),
        ("bert", {"lora_rank": 4, "optimizer": "sgd-momentum"}),
    ],
)
def test_sizes_are_affine_in_the_batch(
    parallelism: str, model: str, fields: dict[str, Any]
) -> None:
    if "lora_rank" in fields:
        pytest.importorskip("peft")
    workload = shared(model, parallelism, **fields)
    at_seven = trace(workload, 7, AMPERE)
    predicted = trace_every_batch_size(workload, AMPERE)(7)
    assert predicted.sizes == at_seven.sizes
    assert predicted.events == at_seven.events


@pytest.mark.parametrize("parallelism", ["ddp", "fsdp"])
def test_the_last_step_can_be_repeated(parallelism: str) -> None:
    traced = trace(shared("bert", parallelism), BATCH_SIZE, AMPERE)
    last = traced.events[traced.last_step :]
    repeated = replay(traced.events + 3 * last, traced.sizes, None, streams=traced.streams)
    assert repeated.peak_allocated_bytes == traced.replay().peak_allocated_bytes


def test_one_gpu_is_traced_as_without_parallelism() -> None:
    workload = small_workload("bert")
    with among_gpus(workload) as group:
        model = torch.nn.Linear(2, 2)
        assert group.spread(model) is model
        assert not dist.is_initialized()
    assert trace(workload, BATCH_SIZE, AMPERE).streams == []


def test_a_process_of_a_group_cannot_trace_another_rank() -> None:
    with one_process(), pytest.raises(EngineError, match="belongs to a torch"):
        trace(shared("bert", "ddp"), BATCH_SIZE, AMPERE)


@pytest.mark.parametrize(("world_size", "nccl"), [(2, NCCL_PAIR_BYTES), (8, NCCL_GROUP_BYTES)])
def test_nccl_takes_memory_outside_the_allocator(world_size: int, nccl: int) -> None:
    workload = shared("bert", "ddp", world_size)
    trial = predict_trial(workload, A100, trace(workload, BATCH_SIZE, AMPERE))
    assert trial.device_used_bytes is not None
    assert trial.peak_reserved_bytes is not None
    assert trial.device_used_bytes - trial.peak_reserved_bytes == A100.context_bytes + nccl


def test_a_slow_link_dominates_the_step_time() -> None:
    seconds = {}
    for world_size in (8, 16):  # within a machine, and across the network
        workload = shared("bert", "ddp", world_size, sequence_length=8)
        traced = trace(workload, 1, AMPERE)
        heavy = [
            replace(op, bytes_moved=op.bytes_moved * 10_000) if op.name.startswith("c10d") else op
            for op in traced.operations
        ]
        trial = predict_trial(workload, A100, replace(traced, operations=heavy))
        assert trial.step_seconds is not None
        seconds[world_size] = trial.step_seconds
    assert seconds[16] > 5 * seconds[8]


@pytest.mark.parametrize("parallelism", ["ddp", "fsdp"])
def test_an_analysis_states_its_assumptions(parallelism: str) -> None:
    request = AnalysisRequest(
        shared("bert", parallelism), gpu="a10", current_batch_size=8, memory_limit_bytes=2 * 2**30
    )
    result = analyze_predicted(request, lambda event: None)
    told = " ".join(result.caveats)
    assert "for all 4 GPUs together" in told
    assert "NCCL is assumed" in told
    assert "GB/s" in told
    largest = next(t for t in result.trials if t.batch_size == result.largest_batch_size)
    assert largest.fits
    assert result.next_batch_size_fails


# The allocator


def test_a_stream_does_not_reuse_memory_freed_in_another() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(30 << 20))
    allocator.free(allocator.allocate(30 << 20, stream=1))
    assert allocator.reserved_bytes == 60 << 20
    allocator.allocate(30 << 20, stream=1)
    assert allocator.reserved_bytes == 60 << 20


def test_a_streams_cache_is_freed_for_another() -> None:
    allocator = CachingAllocator(capacity_bytes=40 << 20)
    allocator.free(allocator.allocate(30 << 20, stream=1))
    allocator.allocate(30 << 20)
    assert allocator.retries == 1
    assert allocator.reserved_bytes == 30 << 20
