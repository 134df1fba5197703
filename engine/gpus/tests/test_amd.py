"""AMD GPUs: what is predicted, and what is said not to be known."""

from dataclasses import replace

import pytest

from engine.core.errors import InvalidInput
from engine.gpus import GPUS, Gpu, Vendor
from engine.gpus.fixed_costs import MIB, fixed_costs
from engine.interface.request import AnalysisRequest
from engine.prediction.caveats import gpu_caveats
from engine.prediction.one_batch import predict_batch
from engine.prediction.probe import ROCM_RANGE
from engine.prediction.timing.step_time import GUESSED, time_range
from engine.tests.shared import step_of

AMD = [gpu for gpu in GPUS.values() if gpu.vendor is Vendor.AMD]

every_amd = pytest.mark.parametrize("gpu", AMD, ids=[gpu.name for gpu in AMD])


@every_amd
def test_the_workspace_of_matrix_products_is_that_of_rocm(gpu: Gpu) -> None:
    size = 32 if gpu.name == "mi250x" else 128
    assert fixed_costs(gpu).cublas_workspace_bytes == size * MIB


@every_amd
def test_what_is_not_known_is_said(gpu: Gpu) -> None:
    memory, speed = gpu_caveats(gpu)
    assert gpu.display_name in memory
    assert "Not known are the workspaces of its libraries (MIOpen, hipBLASLt)" in memory
    assert str(ROCM_RANGE) in memory
    assert "are a guess" in speed
    assert str(GUESSED) in speed
    assert time_range([], gpu, step_of(1.0)) == GUESSED


def test_of_nvidias_gpus_nothing_of_that_is_said() -> None:
    assert [gpu_caveats(gpu) for gpu in GPUS.values() if gpu.rates_known and gpu_caveats(gpu)] == []


@pytest.mark.slow
def test_tensors_are_as_on_nvidia_and_the_intervals_wider() -> None:
    asked = AnalysisRequest.parse(
        {"model": "bert", "gpu": "mi300x", "sequence_length": 16, "current_batch_size": 2}
    )
    there = predict_batch(asked, lambda _: None).trial
    here = predict_batch(replace(asked, gpu="a100-80gb"), lambda _: None).trial
    assert there.peak_allocated_bytes is not None
    assert here.peak_allocated_bytes is not None
    workspaces = 2 * (128 * MIB - 8_519_680)
    assert there.peak_allocated_bytes == pytest.approx(
        here.peak_allocated_bytes + workspaces, rel=0.01
    )
    assert there.device_used_high_bytes is not None
    assert there.device_used_bytes is not None
    assert there.device_used_high_bytes >= 1.25 * there.device_used_bytes
    assert there.step_seconds_high is not None
    assert there.step_seconds is not None
    assert there.step_seconds_high >= 3 * there.step_seconds


def test_tf32_is_refused() -> None:
    with pytest.raises(InvalidInput, match="AMD Instinct MI300X has no TF32"):
        AnalysisRequest.parse({"model": "bert", "gpu": "mi300x", "precision": "tf32"})
