"""Memory of a model's weights, which is reported before it is traced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.core.choices import Precision, Quantization
from engine.core.optimizers import Optimizer
from engine.interface.workload import Workload
from engine.models.presets import PRESETS
from engine.prediction.memory.weights import weight_bytes

pytestmark = pytest.mark.torch


def test_weights_are_weighed_as_they_are_kept() -> None:
    name = "llama-3.3-70b"
    workload = Workload(name, precision=Precision.BF16_TRUE, optimizer=Optimizer.NONE)
    whole = weight_bytes(workload)
    assert whole == pytest.approx(2 * PRESETS[name].parameters, rel=0.01)
    assert weight_bytes(replace(workload, quantization=Quantization.NF4)) < 0.3 * whole
