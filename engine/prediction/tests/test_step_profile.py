"""The profile of a step adds up to its peak, and names equal layers alike."""

from __future__ import annotations

import pytest

from engine.core.choices import Precision
from engine.gpus import GPUS
from engine.interface.result import StepProfile, TensorGroup
from engine.prediction.step_profile import layers_alike, step_profile
from engine.prediction.timing.step_time import kernel_times
from engine.tests.shared import small_workload
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.tests.test_timeline import by_hand
from engine.tracing.trace import Operation, Trace

A10 = GPUS["a10"]


def test_equal_layers_of_a_list_have_one_name() -> None:
    assert layers_alike("bert.encoder.layer.11.output") == "bert.encoder.layer.*.output"
    assert layers_alike("0.conv1.2") == "*.conv1.*"
    assert layers_alike("") == ""


def test_it_has_what_is_alive_at_the_peak_and_nothing_else() -> None:
    profile = step_profile(by_hand(), A10, Precision.FP32)
    assert profile.peak_phase == "forward"
    assert profile.tensors == [
        TensorGroup("layer", "", "parameters", 1, 100),
        TensorGroup("layer.act", "aten.gelu", "temporaries", 1, 70),
        TensorGroup("layer", "aten.mm", "activations", 1, 10),
    ]


def test_a_trace_without_a_step_has_an_empty_profile() -> None:
    assert step_profile(Trace(3), A10, Precision.FP32) == StepProfile(3, "", [], [])


def test_kernels_of_one_operator_are_added_up_and_copies_left_out() -> None:
    product = Operation("aten.mm", "float32", 2 * 64**3, 3 * 64**2 * 4, "forward", (1, 64, 64, 64))
    elsewhere = [
        Operation(name, "float32", 0, 1024, phase)
        for name, phase in (
            ("aten.copy_", "inputs"), ("host.adam", "optimizer"), ("c10d.allreduce_", "backward"),
            ("link.copy", "forward"),
        )
    ]  # fmt: skip
    step = Trace(1, operations=[product, *elsewhere, product])
    (found,) = step_profile(step, A10, Precision.FP32).operations
    taken = kernel_times(A10, Precision.FP32)(product)
    assert taken is not None
    assert (found.operation, found.count) == ("aten.mm", 2)
    assert found.seconds == pytest.approx(2 * taken.seconds())


@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
def test_the_groups_of_a_real_step_add_up_to_its_peak() -> None:
    step = trace(small_workload("bert"), 8, cuda_behaviour(8.6))
    profile = step_profile(step, A10, Precision.FP32)
    assert sum(group.size_bytes for group in profile.tensors) == step.peak_of_last_step()
    modules = {group.module for group in profile.tensors}
    assert "bert.encoder.layer.*.attention.self.query" in modules
    assert profile.operations == sorted(profile.operations, key=lambda one: -one.seconds)
