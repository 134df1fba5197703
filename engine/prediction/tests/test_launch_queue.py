"""How far the host runs ahead of the GPU within a step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.prediction.tests.test_step_time import A10, FP32, micro_batch, product, work
from engine.prediction.timing.launch_queue import places, queue_seconds
from engine.prediction.timing.step_time import predict_step_seconds, step_work
from engine.tracing.trace import Operation

READ = Operation("aten.add", "float32", 0, 4, "forward", waits=True)
"""An operation that runs after a value was read."""
PARTS = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), max_size=5)
PHASES = st.lists(PARTS, max_size=4)


@given(PHASES)
def test_a_step_takes_no_less_than_host_and_gpu_and_no_more_than_both(
    phases: list[list[tuple[float, float]]],
) -> None:
    host, gpu = (sum(one[side] for parts in phases for one in parts) for side in (0, 1))
    seconds = queue_seconds(phases)
    assert max(host, gpu) - 1e-9 <= seconds <= host + gpu + 1e-9


@given(PARTS)
def test_a_host_that_waits_between_parts_is_no_sooner_done(
    parts: list[tuple[float, float]],
) -> None:
    ahead = queue_seconds([[part] for part in parts])
    assert queue_seconds([parts]) >= ahead - 1e-9
    assert queue_seconds([parts]) == pytest.approx(sum(map(max, parts)))


def test_a_host_that_is_ahead_stays_ahead() -> None:
    assert queue_seconds([[(1, 5)], [(3, 2)]]) == 7  # the second is launched behind the first
    assert queue_seconds([[(5, 1)], [(1, 4)]]) == 9  # the GPU waits for the first, then works
    assert queue_seconds([]) == 0


def test_a_host_that_reads_a_value_launches_nothing_ahead() -> None:
    """Where the GPU decides the first half of a pass, and the host the second."""
    first = [product(flops=2 * 10**11), work("aten.add", "float32", 0, 10)]
    second = [work("aten.mul", "float32", 0, 10) for _ in range(2000)]
    ahead = predict_step_seconds([*first, *second], A10, FP32)
    waiting = predict_step_seconds([*first, READ, *second], A10, FP32)
    one, another = (predict_step_seconds(half, A10, FP32) for half in (first, [READ, *second]))
    assert waiting == pytest.approx(one + another)
    timed = step_work([*first, READ, *second], A10, FP32).timed()
    without = predict_step_seconds([*first, replace(READ, waits=False), *second], A10, FP32)
    assert (timed.seconds, timed.ahead) == pytest.approx((waiting, without))
    assert ahead < 0.9 * waiting


def test_a_value_that_is_read_after_the_step_divides_none() -> None:
    step = [*micro_batch(10**13), work("aten._fused_adamw_", "float32", 0, 10**8, "optimizer")]
    logged = [*step, replace(READ, phase="idle")]
    assert list(places(logged, 1)) == [0] * len(logged)
    assert step_work(logged, A10, FP32).passes[1] == step_work(step, A10, FP32).passes[1]


def test_each_micro_batch_waits_anew() -> None:
    batch = [*micro_batch(10**13)[:2], READ, *micro_batch(10**13)[1:]]
    assert list(places(batch, 1)) == [0, 0, 1, 1, 0]
    assert list(places([*batch, *batch], 2)) == [0, 0, 1, 1, 0] * 2
    once = predict_step_seconds(batch, A10, FP32)
    assert predict_step_seconds([*batch, *batch], A10, FP32, 8) == pytest.approx(8 * once)
