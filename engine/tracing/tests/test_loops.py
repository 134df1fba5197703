"""Steps that handle samples one by one are traced at three batch sizes, which give all others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.allocator.caching import ALLOCATE, FREE
from engine.events import Event, Log
from engine.tests.shared import slow, small_workload
from engine.traces.tracer import trace
from engine.traces.workloads import trace_workload
from engine.tracing.every_batch import NotAffine
from engine.tracing.loops import LoopingTrace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Category, Operation, Trace

HOPPER = cuda_behaviour(9.0)


class Step:
    """Records what a made-up step does at one batch size."""

    def __init__(self, batch_size: int) -> None:
        self.trace = Trace(batch_size, phases=[(0, "forward")])

    def make(self, maker: str, size: int) -> int:
        tensor = len(self.trace.sizes)
        self.trace.events.append((ALLOCATE, tensor))
        self.trace.sizes.append(size)
        self.trace.categories.append(Category.ACTIVATIONS)
        self.trace.modules.append("images")
        self.trace.makers.append(maker)
        self.trace.operations.append(Operation(maker, "float32", 0, size, "forward"))
        return tensor

    def free(self, tensors: Iterable[int]) -> None:
        self.trace.events += [(FREE, tensor) for tensor in tensors]


def attention_by_image(step: Step, images: int) -> None:
    batch = step.make("copy", 96 * images)
    kept = [[step.make("attention", 32) for _ in range(3)] for _ in range(images)]
    joined = [step.make("copy", 64 * images) for _ in range(2)]
    for part in (2, 0, 1):
        step.free(image[part] for image in kept)
    step.free([*joined, batch])


def the_last_is_padded(step: Step, images: int) -> None:
    texts = [step.make("copy", 8 if image < images - 1 else 6) for image in range(images)]
    step.free(reversed(texts))


def each_makes_more_than_the_one_before(step: Step, images: int) -> None:
    for image in range(images):
        step.make("copy", 8 * image)


def one_keeps_all_until_four(step: Step, images: int) -> None:
    made = [step.make("copy", 16) for _ in range(images)]
    step.free(made if images < 4 else made[1:])


def traced(run: Callable[[Step, int], None], batch_size: int) -> Trace:
    step = Step(batch_size)
    run(step, batch_size)
    return step.trace


@pytest.mark.parametrize("run", [attention_by_image, the_last_is_padded])
def test_three_batch_sizes_give_all_others(run: Callable[[Step, int], None]) -> None:
    every = LoopingTrace(*(traced(run, batch_size) for batch_size in (2, 3, 4)))
    for batch_size in (2, 3, 4, 5, 9):
        found, expected = every.at(batch_size), traced(run, batch_size)
        assert found == expected
        assert found.operations == expected.operations


@pytest.mark.parametrize("run", [each_makes_more_than_the_one_before, one_keeps_all_until_four])
def test_what_is_not_the_same_for_each_sample_is_refused(run: Callable[[Step, int], None]) -> None:
    with pytest.raises(NotAffine, match="not alike at batch 2 and"):
        LoopingTrace(*(traced(run, batch_size) for batch_size in (2, 3, 4)))


@st.composite
def steps_of_any_order(draw: st.DrawFn) -> Callable[[Step, int], None]:
    """A step that makes tensors and frees some of them, in an order of its own at each batch."""
    sizes = st.sampled_from((8, 16))
    orders = {images: draw(st.lists(st.none() | sizes, max_size=8)) for images in (2, 3, 4)}
    from_last = {images: draw(st.booleans()) for images in orders}

    def run(step: Step, images: int) -> None:
        alive: list[int] = []
        for size in orders[images]:
            if size is not None:
                alive.append(step.make("copy", size))
            elif alive:
                step.free([alive.pop(-1 if from_last[images] else 0)])

    return run


@given(steps_of_any_order())
def test_any_other_order_is_refused_as_one_that_is_not_alike(
    run: Callable[[Step, int], None],
) -> None:
    traces = [traced(run, batch_size) for batch_size in (2, 3, 4)]
    try:
        every = LoopingTrace(*traces)
    except NotAffine:
        return
    assert every.at(4) == traces[2]


@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize(
    ("model", "fields"),
    [
        slow("qwen2.5-vl-7b", {"image_size": 112, "precision": "bf16-mixed"}),
        slow("qwen3-vl-8b", {"image_size": 64, "gradient_checkpointing": True}),
        slow("qwen3-vl-8b", {"image_size": 64, "lora_rank": 2, "image_count": 2}),
    ],
)
def test_a_model_that_attends_to_images_one_by_one_comes_out_as_if_traced(
    model: str, fields: dict[str, Any]
) -> None:
    workload = small_workload(model, **fields)
    events: list[Event] = []
    traces = trace_workload(workload, HOPPER, events.append)
    for batch_size in (1, 4, 11):
        found, expected = traces.at(batch_size), trace(workload, batch_size, HOPPER)
        assert found == expected
        assert found.operations == expected.operations
        assert found.host_bytes == expected.host_bytes
        assert not found.alone
    logged = [event.message for event in events if isinstance(event, Log)]
    assert "some of them once more for each sample more" in logged[-1]
