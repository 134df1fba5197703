"""The CUDA backend against a real GPU; these run where there is one."""

from __future__ import annotations

import pytest
import torch

from engine.measurement.parent import local_device, measure
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
