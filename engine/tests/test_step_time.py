from __future__ import annotations

import math

import pytest

from engine.gpus import GPUS
from engine.prediction.step_time import (
    ASSUMED,
    Efficiencies,
    predict_step_seconds,
    step_work,
)
from engine.prediction.tracer import trace
from engine.step.batches import make_batch
from engine.tests.conftest import small_workload
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Operation
from engine.workload import Precision

A10 = GPUS["a10"]
T4 = GPUS["t4"]
FP32 = Precision.FP32


def work(name: str, dtype: str, flops: int, moved: int, phase: str = "forward") -> Operation:
    return Operation(name, dtype, flops, moved, phase)


def gpu_seconds(operation: Operation, precision: Precision = FP32) -> float:
    return predict_step_seconds([operation], A10, precision) - ASSUMED.kernel_seconds


def test_a_matrix_product_is_limited_by_its_flops() -> None:
    product = work("aten.mm", "float32", 10**13, 10**6)
    assert gpu_seconds(product) == pytest.approx(10**13 / (A10.fp32_flops * ASSUMED.compute))


def test_an_elementwise_operation_is_limited_by_its_bytes() -> None:
    addition = work("aten.add", "float32", 0, 10**10)
    bandwidth = A10.memory_bytes_per_second * ASSUMED.bandwidth
    assert gpu_seconds(addition) == pytest.approx(10**10 / bandwidth)


def test_a_small_step_is_limited_by_the_hosts_launches() -> None:
    tiny = [work("aten.add", "float32", 0, 16)] * 100
    assert predict_step_seconds(tiny, A10, FP32) == pytest.approx(100 * ASSUMED.host_seconds)


def test_tf32_speeds_up_matrix_products_only_if_enabled() -> None:
    product = work("aten.mm", "float32", 10**13, 0)
    assert gpu_seconds(product, Precision.TF32) < gpu_seconds(product) * 0.6


def test_convolutions_use_tf32_by_default() -> None:
    convolution = work("aten.convolution", "float32", 10**13, 0)
    assert gpu_seconds(convolution) < gpu_seconds(work("aten.mm", "float32", 10**13, 0)) * 0.6


def test_half_precision_uses_the_tensor_cores() -> None:
    product = work("aten.mm", "float16", 10**13, 0)
    assert gpu_seconds(product) == pytest.approx(10**13 / (A10.fp16_flops * ASSUMED.compute))


def test_without_tf32_hardware_fp32_stays_fp32() -> None:
    convolution = work("aten.convolution", "float32", 10**13, 0)
    seconds = predict_step_seconds([convolution], T4, FP32) - ASSUMED.kernel_seconds
    assert seconds == pytest.approx(10**13 / (T4.fp32_flops * ASSUMED.compute))


def micro_batch(flops: int) -> list[Operation]:
    return [
        work("aten._to_copy", "float32", 0, 10**6, "inputs"),
        work("aten.mm", "float32", flops, 0, "forward"),
        work("aten.mm", "float32", flops, 0, "backward"),
    ]


@pytest.mark.parametrize("operator", ["aten._fused_adamw_", "aten.mul", "aten.lerp_"])
def test_an_accumulated_step_runs_the_optimizer_once(operator: str) -> None:
    update = work(operator, "float32", 0, 10**10, "optimizer")
    optimizer = predict_step_seconds([update], A10, FP32)
    first, later = micro_batch(10**13), micro_batch(2 * 10**13)
    one, another = (predict_step_seconds(each, A10, FP32) for each in (first, later))
    for micro_batches in (2, 3, 16):
        # A trace of an accumulated step has two micro-batches; only the second is repeated.
        seconds = predict_step_seconds([*first, *later, update], A10, FP32, micro_batches)
        assert seconds == pytest.approx(one + (micro_batches - 1) * another + optimizer)


def test_a_step_without_accumulation_is_timed_as_traced() -> None:
    traced = [work("aten.mm", "float32", 10**13, 0), work("aten.add", "float32", 0, 10)]
    assert predict_step_seconds(traced, A10, FP32, 1) == predict_step_seconds(traced, A10, FP32)


def test_the_efficiencies_scale_the_times_at_peak_rates() -> None:
    operations = [
        work("aten.mm", "float32", 10**13, 10**6),
        work("aten.mm", "float32", 10**13, 10**6),
        work("aten.add", "float32", 0, 10**10),
    ]
    found = step_work(operations, A10, FP32)
    assert sorted(found.kernels.values()) == [1, 2]
    assert found.seconds(ASSUMED) == predict_step_seconds(operations, A10, FP32)
    perfect = Efficiencies(
        compute=1.0,
        bandwidth=1.0,
        kernel_seconds=0.0,
        host_seconds=0.0,
        copy_bytes_per_second=math.inf,
    )
    peaks = 2 * 10**13 / A10.fp32_flops + 10**10 / A10.memory_bytes_per_second
    assert found.seconds(perfect) == pytest.approx(peaks)


def test_a_batch_is_copied_over_the_hosts_link_before_the_step() -> None:
    copy = work("aten._to_copy", "float32", 0, 2 * 10**9, "inputs")
    rest = [work("aten.mm", "float32", 10**13, 0), work("aten.add", "float32", 0, 10**10)]
    without = predict_step_seconds(rest, A10, FP32)
    copying = 10**9 / ASSUMED.copy_bytes_per_second
    assert predict_step_seconds([copy, *rest], A10, FP32) == pytest.approx(copying + without)
    assert step_work([copy, *rest], A10, FP32).copied_bytes == 10**9


@pytest.mark.usefixtures("small_models")
def test_the_bytes_of_the_batch_are_copied() -> None:
    workload = small_workload("resnet")
    batch = sum(tensor.nbytes for tensor in make_batch(workload, 4).values())
    traced = trace(workload, 4, cuda_behaviour(9.0))
    assert step_work(traced.operations, A10, FP32).copied_bytes == batch
