"""DeepSpeed's ZeRO with its optimizer on the host, against what DeepSpeed says of it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from engine.core.errors import InvalidInput
from engine.parallel.tests.test_zero import AMPERE, BATCH_SIZE, BUCKET, alive, count, zero
from engine.traces.tracer import trace
from engine.tracing.trace import COPY, ON_HOST, WAITING_COPY, Category, Trace

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small_models"), pytest.mark.torch]

BUFFERS = 1.5
"""``additional_buffer_factor`` of DeepSpeed's estimators."""


@cache
def traced(stage: int, *, offload: str = "optimizer_offload", accumulation: int = 1) -> Trace:
    fields: dict[str, Any] = {
        offload: True,
        "gradient_accumulation": accumulation,
        "optimizer": "adamw",
    }
    return trace(zero(stage, **fields), BATCH_SIZE, AMPERE)


def part() -> float:
    """Weights of one GPU's part."""
    return count(zero(2)) / 8


def moved(found: Trace, name: str) -> float:
    """Bytes for each weight of a part."""
    return sum(one.bytes_moved for one in found.operations if one.name.startswith(name)) / part()


@pytest.mark.parametrize("stage", [1, 2])
def test_the_gpu_keeps_the_weights_and_room_for_the_largest_gradient(stage: int) -> None:
    """``estimate_zero2_model_states_mem_needs`` with ``cpu_offload``: 2 bytes a weight."""
    kept = alive(traced(stage))
    assert kept[Category.PARAMETERS] == pytest.approx(2 * 8 * part(), rel=0.02)
    assert kept[Category.OPTIMIZER_STATE] == 0
    assert 0 < kept[Category.GRADIENTS] < 2 * 8 * part()


@pytest.mark.parametrize(
    ("stage", "offload", "each"),
    [
        (2, "optimizer_offload", 16),  # fp32 weights, their gradients and two moments
        (3, "optimizer_offload", 16),
        (3, "cpu_offload", 18),  # and the shards in bf16
    ],
)
def test_the_host_holds_what_the_published_formula_says(
    stage: int, offload: str, each: int
) -> None:
    """``estimate_zero2_…`` and ``estimate_zero3_model_states_mem_needs``, with their buffers."""
    held = traced(stage, offload=offload).host_bytes
    assert each * part() <= held <= each * part() * BUFFERS


def test_offloaded_weights_leave_the_gpu() -> None:
    optimizer = alive(traced(3))
    everything = alive(traced(3, offload="cpu_offload"))
    gone = optimizer[Category.PARAMETERS] - everything[Category.PARAMETERS]
    assert gone == pytest.approx(2 * part(), rel=0.05)
    assert optimizer[Category.GRADIENTS] == pytest.approx(2 * BUCKET, rel=0.01)


@pytest.mark.parametrize(
    ("stage", "bytes_of_gradients"),
    [
        (2, 4),  # in fp32
        (3, 2 + 2 + 4),  # in bf16, back to be converted, and in fp32
    ],
)
def test_gradients_cross_the_link_and_the_gpu_waits_for_weights(
    stage: int, bytes_of_gradients: int
) -> None:
    found = traced(stage)
    assert moved(found, COPY) == pytest.approx(bytes_of_gradients, rel=0.05)
    assert moved(found, WAITING_COPY) == pytest.approx(2, rel=0.05)
    assert moved(found, ON_HOST) >= 28  # AdamW reads four numbers and writes three


def test_micro_batches_are_added_up_in_bf16() -> None:
    """Each sends its part to the host and fetches it; the sums follow in fp32."""
    found = traced(2, accumulation=4)
    assert moved(found, COPY) == pytest.approx(2 * (2 + 2) + 4, rel=0.05)
    assert found.host_bytes - traced(2).host_bytes == pytest.approx(2 * part(), rel=0.01)


@pytest.mark.parametrize(
    ("field", "stage", "fields"),
    [
        ("cpu_offload", 2, {"cpu_offload": True}),
        ("cpu_offload", 3, {"cpu_offload": True, "optimizer": "lion"}),
        ("optimizer_offload", 2, {"optimizer_offload": True, "optimizer": "lion"}),
        ("optimizer_offload", 3, {"optimizer_offload": True, "cpu_offload": True}),
    ],
)
def test_what_is_not_predicted_is_refused(field: str, stage: int, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        zero(stage, **fields)
    assert field in refused.value.fields
