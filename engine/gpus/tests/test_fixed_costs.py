"""Context and libraries: known where measured, wide where taken from elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.allocator.caching import ALLOCATE, FREE
from engine.gpus import GPUS, Gpu
from engine.gpus.fixed_costs import (
    CUDNN_BYTES,
    MIB,
    cublas_workspace_bytes,
    fixed_costs,
    uses_cudnn,
)
from engine.interface.trial import GpuFacts, Trial
from engine.prediction.probe import predict_memory
from engine.tracing.trace import Category, Operation, Trace


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS.keys())
def test_a_context_is_as_unsure_as_its_source(gpu: Gpu) -> None:
    costs = fixed_costs(gpu)
    assert costs.context_bytes == gpu.context_bytes
    lower, higher = costs.unsure_bytes
    assert (lower == higher == 0) is costs.measured
    assert lower < costs.context_bytes


def test_what_was_assumed_of_the_h100_would_have_been_within_its_own_range() -> None:
    h100 = GPUS["h100"]
    sources = h100.sources | {"context_bytes": "assumed from a100-40gb"}
    assumed = fixed_costs(replace(h100, context_bytes=563 * MIB, sources=sources))
    assert assumed.context_bytes + assumed.unsure_bytes[1] + CUDNN_BYTES > 771 * MIB


def test_hopper_and_later_have_the_larger_workspace() -> None:
    sizes = [cublas_workspace_bytes(one) for one in (7.5, 8.9, 9.0, 12.0)]
    assert sizes == [8_519_680, 8_519_680, 32 * MIB, 32 * MIB]


def predicted(operator: str, unsure: tuple[int, int] = (0, 0)) -> Trial:
    trace = Trace(
        batch_size=1,
        events=[(ALLOCATE, 0), (FREE, 0)],
        sizes=[64 * MIB],
        categories=[Category.ACTIVATIONS],
        modules=[""],
        makers=[""],
        operations=[Operation(operator, "float32", 1, 1, "forward")],
        phases=[(0, "forward")],
    )
    return predict_memory(GpuFacts("a GPU", 2**33, 2**33 - 2**29), trace, unsure_bytes=unsure)


@pytest.mark.parametrize(
    ("operator", "loads"),
    [
        ("aten.convolution", True),
        ("aten.convolution_backward", True),
        ("aten._scaled_dot_product_cudnn_attention", True),
        ("aten.addmm", False),
        ("aten._scaled_dot_product_efficient_attention", False),
    ],
)
def test_a_step_that_uses_cudnn_takes_more_of_the_device(operator: str, loads: bool) -> None:
    trial = predicted(operator)
    assert uses_cudnn([operator]) is loads
    assert trial.peak_reserved_bytes is not None
    assert trial.device_used_bytes is not None
    beside = trial.device_used_bytes - trial.peak_reserved_bytes
    assert beside == 2**29 + CUDNN_BYTES * loads


def test_an_unsure_context_widens_the_interval_by_as_much() -> None:
    sure, unsure = predicted("aten.addmm"), predicted("aten.addmm", (10, 20))
    assert sure.device_used_low_bytes is not None
    assert sure.device_used_high_bytes is not None
    assert unsure.device_used_low_bytes == sure.device_used_low_bytes - 10
    assert unsure.device_used_high_bytes == sure.device_used_high_bytes + 20
