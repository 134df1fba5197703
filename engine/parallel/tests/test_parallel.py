"""Several GPUs, however they share: batch sizes, ranks, NCCL and links."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from engine.allocator.caching import replay
from engine.core.errors import EngineError
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.parallel.group import among_gpus
from engine.parallel.interconnect import NCCL_GROUP_BYTES, NCCL_PAIR_BYTES
from engine.parallel.tests.several_gpus import (
    BATCH_SIZE,
    one_process,
    shared,
)
from engine.prediction.predicted_analysis import analyze_predicted
from engine.prediction.probe import predict_trial
from engine.tests.shared import small_workload
from engine.traces.batch_rule import trace_every_batch_size
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small_models"), pytest.mark.torch]

A100 = GPUS["a100-80gb"]
AMPERE = cuda_behaviour(8.0)


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
    predicted = trace_every_batch_size(workload, AMPERE).at(7)
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
