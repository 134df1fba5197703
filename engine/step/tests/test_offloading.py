"""Tensors on the host: which, how much that is, and how long copies take."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.errors import InvalidInput
from engine.gpus import GPUS
from engine.interface.workload import Workload
from engine.measurement import cpu
from engine.measurement.protocol import TrialOrder
from engine.parallel.group import Alone
from engine.prediction.timing.host import (
    LINK_BYTES_PER_SECOND,
    MEMORY_BYTES_PER_SECOND,
    offload_caveats,
)
from engine.prediction.timing.step_time import predict_step_seconds
from engine.step.batches import make_batch
from engine.step.training import build_model, prepare, training_step
from engine.tests.shared import slow, small_workload
from engine.traces.batch_rule import trace_every_batch_size
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import COPY, ON_HOST, WAITING_COPY, Trace

A10 = cuda_behaviour(8.6)
BATCH_SIZE = 3

pytestmark = pytest.mark.usefixtures("small_models")


def offloaded(**fields: Any) -> Workload:
    return small_workload("llama-3.2-1b", activation_offload=True, **fields)


def copied(found: Trace) -> int:
    return sum(one.bytes_moved for one in found.operations if one.name == WAITING_COPY)


def of_real_steps(workload: Workload) -> Trace:
    """Two real steps on the CPU, in which what is copied to the host does not count."""
    training = prepare(workload, build_model(workload), predicting=True)
    alone = Alone(workload)
    recorder = alone.recorder(training, BATCH_SIZE, None)
    training.offload_to(alone.on_host())
    batch = make_batch(workload, BATCH_SIZE)
    for _ in range(2):
        recorder.record_step(lambda: training_step(training, batch))
    return recorder.trace


@pytest.mark.longer
@pytest.mark.parametrize(
    "fields",
    [
        slow({}),
        slow({"gradient_checkpointing": True}),
        slow({"precision": "bf16-mixed"}),
        {"gradient_checkpointing": True, "precision": "bf16-true", "lora_rank": 2},
    ],
    ids=str,
)
def test_device_and_host_are_equal_to_the_byte(fields: dict[str, Any]) -> None:
    workload = offloaded(**fields)
    predicted, measured = trace(workload, BATCH_SIZE, None), of_real_steps(workload)
    assert predicted.peak_by_category() == measured.peak_by_category()
    assert predicted.host_bytes == measured.host_bytes > 0
    assert copied(predicted) == copied(measured) > 0


@pytest.mark.longer
@pytest.mark.parametrize(
    "fields",
    [
        slow({}),
        {"precision": "bf16-true", "gradient_accumulation": 2},
        slow({"activation_offload": True, "gradient_checkpointing": True}),
    ],
    ids=str,
)
def test_an_optimizer_on_the_host_is_equal_to_the_byte(fields: dict[str, Any]) -> None:
    workload = small_workload("llama-3.2-1b", optimizer_offload=True, **fields)
    predicted, measured = trace(workload, BATCH_SIZE, None), of_real_steps(workload)
    assert predicted.peak_by_category() == measured.peak_by_category()
    assert predicted.host_bytes == measured.host_bytes > 0


@pytest.mark.longer
def test_an_optimizer_on_the_host_keeps_its_state_there() -> None:
    workload = small_workload("llama-3.2-1b", optimizer_offload=True)
    away = trace(workload, 1, A10)
    sizes = [one.numel() for one in build_model(workload).parameters()]
    large = [size for size in sizes if size >= 4096]
    state = 2 * 4 * sum(size for size in sizes if size < 4096)
    steps = 4 * (len(sizes) - len(large))
    optimizer = away.peak_by_category()[1]["optimizer_state"]
    assert optimizer == state + steps
    assert away.host_bytes == 16 * sum(large) + 4 * len(large)  # weight, gradient, two moments
    crossing = [one.bytes_moved for one in away.operations if one.name == COPY]
    assert sum(crossing) == 2 * 4 * sum(large)  # gradients there, weights back
    on_host = sum(one.bytes_moved for one in away.operations if one.name.startswith(ON_HOST))
    assert on_host >= 28 * sum(large)
    seconds = predict_step_seconds(away.operations, GPUS["a10"], workload.precision)
    assert seconds > on_host / MEMORY_BYTES_PER_SECOND


@pytest.mark.parametrize(
    "fields",
    [
        {"optimizer": "sgd"},
        {"precision": "fp16-mixed"},
        {"parallelism": "ddp", "world_size": 2},
        {"optimizer_in_backward": True},
    ],
    ids=str,
)
def test_an_optimizer_on_the_host_is_refused_where_torchao_has_none(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as raised:
        Workload.parse({"model": "bert", "optimizer_offload": True} | fields)
    assert "optimizer_offload" in raised.value.fields


@pytest.mark.longer
def test_the_host_holds_the_input_of_each_checkpointed_layer() -> None:
    length, width, layers = 32, 64, 2
    found = trace(offloaded(gradient_checkpointing=True, optimizer="sgd"), BATCH_SIZE, A10)
    inputs = layers * BATCH_SIZE * length * width * 4
    assert inputs <= found.host_bytes < 1.3 * inputs  # and what is given beside it
    assert copied(found) == 2 * found.host_bytes  # there and back


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, slow(True)])
def test_less_memory_takes_more_time(checkpointing: bool) -> None:
    fields = {"optimizer": "sgd", "sequence_length": 128, "gradient_checkpointing": checkpointing}
    away = trace(offloaded(**fields), 8, A10)
    here = trace(small_workload("llama-3.2-1b", **fields), 8, A10)
    assert away.peak_by_category()[0] < here.peak_by_category()[0]
    seconds = [
        predict_step_seconds(one.operations, GPUS["a10"], offloaded().precision)
        for one in (away, here)
    ]
    assert seconds[0] - seconds[1] >= 0.99 * copied(away) / LINK_BYTES_PER_SECOND


@pytest.mark.slow
def test_the_host_holds_more_for_more_samples() -> None:
    workload = offloaded(gradient_checkpointing=True)
    every = trace_every_batch_size(workload, A10)
    assert every.at(7).host_bytes == trace(workload, 7, A10).host_bytes


@pytest.mark.longer
def test_the_answer_says_what_the_host_holds_and_does() -> None:
    (told,) = offload_caveats(trace(offloaded(), BATCH_SIZE, A10))
    assert told.startswith("The host holds <0.01 GiB for each GPU (predicted)")
    assert "24 GB/s (PCIe 4.0), and the GPU waits for it" in told
    assert offload_caveats(trace(small_workload("bert"), 2, A10)) == []


@pytest.mark.parametrize(
    "fields",
    [{"model": "bert", "parallelism": "ddp", "world_size": 2}, {"model": "timm/resnet50"}],
    ids=str,
)
def test_what_is_not_predicted_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as raised:
        Workload.parse(fields | {"activation_offload": True})
    assert "leave it off" in raised.value.fields["activation_offload"]


def test_a_cpu_has_nothing_to_offload_to() -> None:
    with pytest.raises(InvalidInput) as raised:
        cpu.run_trial(TrialOrder(offloaded(), BATCH_SIZE))
    assert "no other memory" in raised.value.fields["activation_offload"]
