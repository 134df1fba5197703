"""A process that traces again and again, like a waiting engine, keeps nothing of its traces."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch

from engine.script.factory import Factory
from engine.script.trace import trace_script
from engine.tests.shared import small_workload
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("small_models")]

AMPERE = cuda_behaviour(8.6)


def alive() -> int:
    """Modules and tensors that Python holds."""
    gc.collect()
    return sum(
        issubclass(type(thing), torch.nn.Module | torch.Tensor) for thing in gc.get_objects()
    )


def kept_by(work: Callable[[], object]) -> int:
    work()  # load and create one-time objects first
    before = alive()
    work()
    return alive() - before


@pytest.mark.longer
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"precision": "fp16-mixed", "gradient_accumulation": 2},
        pytest.param(
            {"gradient_checkpointing": True, "optimizer": "adafactor"}, marks=pytest.mark.slow
        ),
        pytest.param({"lora_rank": 4, "optimizer": "adamw-8bit"}, marks=pytest.mark.slow),
        pytest.param({"parallelism": "ddp", "world_size": 2}, marks=pytest.mark.slow),
        pytest.param({"parallelism": "fsdp", "world_size": 2}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_trace_keeps_no_model(fields: dict[str, object]) -> None:
    workload = small_workload("bert", **fields)
    assert kept_by(lambda: trace(workload, 2, AMPERE)) == 0


@pytest.mark.slow
def test_a_trace_of_a_script_keeps_no_model() -> None:
    factory = Factory.of("engine.examples.my_training:make_step")
    assert kept_by(lambda: trace_script(factory, 2, AMPERE)) == 0
