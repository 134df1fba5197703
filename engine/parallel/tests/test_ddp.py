"""DDP: gradient buckets, compared with the real reducer."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

import pytest
from torch.nn.parallel import DistributedDataParallel

from engine.models.presets import Preset
from engine.parallel.tests.several_gpus import (
    BATCH_SIZE,
    bytes_of,
    one_process,
    shapes,
    shared,
    two_steps,
)
from engine.prediction.memory.timeline import timeline
from engine.step.training import build_model, prepare
from engine.tests.shared import small_workload
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.recorder import MemoryRecorder
from engine.tracing.trace import Category

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small_models"), pytest.mark.torch]

AMPERE = cuda_behaviour(8.0)


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
