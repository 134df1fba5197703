"""The CUDA backend against a real GPU; these run where there is one."""

from __future__ import annotations

import pytest
import torch

from engine.measurement.parent import local_device, measure, measured_on, record
from engine.measurement.protocol import TrialOrder
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.tracer import trace
from engine.workload import Workload

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@pytest.mark.parametrize("model", ["bert", "gpt2", "resnet"])
@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
def test_the_predicted_peak_is_within_three_percent(model: str, precision: str) -> None:
    workload = Workload.parse({"model": model, "precision": precision})
    measured = measure(TrialOrder(workload, 8))
    assert measured.fits
    assert measured.alloc_retries == 0
    behaviour = cuda_behaviour(local_device().compute_capability)
    predicted = trace(workload, 8, behaviour).replay()
    assert predicted.peak_allocated_bytes == pytest.approx(measured.peak_allocated_bytes, rel=0.03)


def test_a_smaller_gpu_is_emulated() -> None:
    limit = local_device().context_bytes + 2**30
    trial = measure(TrialOrder(Workload("bert"), 64, memory_limit_bytes=limit))
    assert not trial.fits
    assert "out of memory in" in trial.failure
    assert trial.peak_reserved_bytes is not None
    assert trial.peak_reserved_bytes <= 2**30


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
def test_memory_along_a_step_is_the_allocators_own_history(precision: str) -> None:
    workload = Workload.parse({"model": "bert", "precision": precision})
    measured, step = measure(TrialOrder(workload, 8)), record(TrialOrder(workload, 8))
    assert measured.peak_allocated_bytes is not None
    # The allocator rounds each tensor up: by little, and never down.
    assert sum(step.breakdown.values()) == pytest.approx(measured.peak_allocated_bytes, rel=0.02)
    assert sum(step.breakdown.values()) <= measured.peak_allocated_bytes
    phases = list(dict.fromkeys(point.phase for point in step.timeline))
    assert phases == ["inputs", "forward", "backward", "optimizer"]
    assert step.largest_tensors[0].module == "bert.embeddings.word_embeddings"
    behaviour = cuda_behaviour(local_device().compute_capability)
    predicted = trace(workload, 8, behaviour).peak_by_category()[1]
    for category in ("parameters", "optimizer_state", "activations"):
        assert step.breakdown[category] == pytest.approx(predicted[category], rel=0.05)


def test_recording_takes_nothing_more_than_the_step() -> None:
    workload = Workload("bert", sequence_length=32)
    options = "expandable_segments:True"
    step = record(TrialOrder(workload, 4, allocator=options))
    assert step.timeline[0].bytes["parameters"] == step.timeline[-1].bytes["parameters"]


def test_what_it_ran_on_is_known() -> None:
    found = measured_on(TrialOrder(Workload.parse({"model": "bert", "precision": "tf32"}), 2))
    assert found.device == torch.cuda.get_device_name()
    assert found.cuda == torch.version.cuda
    assert found.matmul_precision == "tf32"


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("parallelism", ["ddp", "fsdp"])
def test_several_gpus_hold_what_is_predicted(parallelism: str) -> None:
    workload = Workload.parse({"model": "bert", "parallelism": parallelism, "world_size": 2})
    measured = measure(TrialOrder(workload, 8))
    behaviour = cuda_behaviour(local_device().compute_capability)
    predicted = trace(workload, 8, behaviour).replay()
    assert predicted.peak_allocated_bytes == pytest.approx(measured.peak_allocated_bytes, rel=0.05)
