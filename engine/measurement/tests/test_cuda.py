"""The CUDA backend on a real GPU, where there is one.

On a machine with PyTorch, transformers and pytest alone, without this repository's other packages:
``python -m pytest -c /dev/null --rootdir=. --confcutdir=engine FILE``, with this file.
"""

from __future__ import annotations

import os
import pickle
from itertools import accumulate
from pathlib import Path

import pytest
import torch
import torch.cuda._memory_viz as memory_viz

from benchmarks.gpu.processes import describe_device, time_search
from benchmarks.gpu.results import Search
from engine.interface.workload import Workload
from engine.measurement.parent import local_device, measure, measured_on, record, snapshot
from engine.measurement.protocol import TrialOrder
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour

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
    # What libraries load during the steps is not subtracted, so a bit more than a GiB is left.
    assert trial.peak_reserved_bytes <= 2**30 * 1.25


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
def test_memory_over_a_step_comes_from_the_allocators_history(precision: str) -> None:
    workload = Workload.parse({"model": "bert", "precision": precision})
    measured, step = measure(TrialOrder(workload, 8)), record(TrialOrder(workload, 8))
    assert measured.peak_allocated_bytes is not None
    # The allocator rounds each tensor up a little, never down.
    assert sum(step.breakdown.values()) == pytest.approx(measured.peak_allocated_bytes, rel=0.02)
    assert sum(step.breakdown.values()) <= measured.peak_allocated_bytes
    phases = list(dict.fromkeys(point.phase for point in step.timeline))
    assert phases == ["inputs", "forward", "backward", "optimizer"]
    assert step.largest_tensors[0].module == "bert.embeddings.word_embeddings"
    behaviour = cuda_behaviour(local_device().compute_capability)
    predicted = trace(workload, 8, behaviour).peak_by_category()[1]
    for category in ("parameters", "optimizer_state", "activations"):
        assert step.breakdown[category] == pytest.approx(predicted[category], rel=0.05)


def test_a_memory_snapshot_is_read_by_pytorchs_tools_and_has_the_trials_peak(
    tmp_path: Path,
) -> None:
    file, order = tmp_path / "step.pickle", TrialOrder(Workload("bert"), 8)
    trial = snapshot(order, file)
    written = pickle.loads(file.read_bytes())  # noqa: S301  # our own
    assert "<script" in memory_viz.trace_plot(written)
    signs = {"alloc": 1, "free_requested": -1}
    events = written["device_traces"][0]
    peak = max(accumulate(signs.get(one["action"], 0) * one["size"] for one in events))
    assert peak == pytest.approx(trial.peak_allocated_bytes, rel=0.02)
    assert any(one.get("frames") for one in events)


def test_recording_takes_no_more_memory_than_the_step() -> None:
    workload = Workload("bert", sequence_length=32)
    options = "expandable_segments:True"
    step = record(TrialOrder(workload, 4, allocator=options))
    assert step.timeline[0].bytes["parameters"] == step.timeline[-1].bytes["parameters"]


def test_the_environment_is_recorded() -> None:
    found = measured_on(TrialOrder(Workload.parse({"model": "bert", "precision": "tf32"}), 2))
    assert found.device == torch.cuda.get_device_name()
    assert found.cuda == torch.version.cuda
    assert found.matmul_precision == "tf32"


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("parallelism", ["ddp", "fsdp"])
def test_several_gpus_use_the_predicted_memory(parallelism: str) -> None:
    workload = Workload.parse({"model": "bert", "parallelism": parallelism, "world_size": 2})
    measured = measure(TrialOrder(workload, 8))
    behaviour = cuda_behaviour(local_device().compute_capability)
    predicted = trace(workload, 8, behaviour).replay()
    assert predicted.peak_allocated_bytes == pytest.approx(measured.peak_allocated_bytes, rel=0.05)


def test_the_benchmark_counts_the_memory_of_an_idle_process() -> None:
    device = describe_device(os.environ, 120, quick=False)
    assert device.facts.name == local_device().name
    assert device.facts.context_bytes == pytest.approx(local_device().context_bytes, rel=0.1)
    used = [cost.device_used_bytes for cost in device.fixed_costs]
    assert used == sorted(used)
    assert all(cost.reserved_bytes <= cost.device_used_bytes for cost in device.fixed_costs)
    assert device.fixed_costs[2].allocated_bytes > 0  # cuBLAS keeps its workspaces


def test_the_benchmark_searches_on_the_gpu() -> None:
    limit = local_device().context_bytes + 4 * 2**30
    asked = Search("linear scan by 8", None, "bert", limit)
    found = time_search(asked, {"model": "bert"}, os.environ, 240)
    assert found.answer is not None
    assert found.answer > 0
    assert found.tried[-1] == (found.answer + 8, False)
