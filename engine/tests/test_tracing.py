from __future__ import annotations

import pytest

from engine.allocator import ALLOCATE, FREE
from engine.lowering import cuda_behaviour
from engine.tests.conftest import small_workload
from engine.trace import AffineTrace, Category, NotAffine, Operation, Trace
from engine.tracing import trace, trace_every_batch_size
from engine.training import build_model
from engine.workload import Precision

small = pytest.mark.usefixtures("small_models")


@small
@pytest.mark.parametrize("model", ["bert", "gpt2", "resnet"])
@pytest.mark.parametrize("precision", [p for p in Precision if p is not Precision.TF32])
@pytest.mark.parametrize("capability", [8.6, 9.0])
def test_two_traces_give_every_batch_size(
    model: str, precision: Precision, capability: float
) -> None:
    workload = small_workload(model, precision=precision)
    behaviour = cuda_behaviour(capability)
    trace_at = trace_every_batch_size(workload, behaviour)
    for batch_size in (1, 11):
        assert trace_at(batch_size) == trace(workload, batch_size, behaviour)


@small
def test_a_trace_repeats_itself_in_every_process_and_call() -> None:
    # Autocast drops its cached casts in the order of a hash table; a trace must not show it.
    workload = small_workload("bert", precision="bf16-mixed")
    assert trace(workload, 2, None) == trace(workload, 2, None)


@small
def test_a_step_gives_back_all_that_it_took_but_the_optimizers_state() -> None:
    traced = trace(small_workload("bert"), 2, None)
    live = {tensor for kind, tensor in traced.events if kind == ALLOCATE}
    live -= {tensor for kind, tensor in traced.events if kind == FREE}
    assert {traced.categories[tensor] for tensor in live} == {
        Category.PARAMETERS,
        Category.OPTIMIZER_STATE,
    }
    last = traced.events[traced.last_step :]
    begun = sorted(tensor for kind, tensor in last if kind == ALLOCATE)
    assert begun == sorted(tensor for kind, tensor in last if kind == FREE)


@small
def test_categories_hold_what_the_model_says() -> None:
    workload = small_workload("bert")
    traced = trace(workload, 2, None)
    model = build_model(workload)
    parameters = sum(p.nbytes for p in model.parameters())
    buffers = sum(b.nbytes for b in model.buffers())

    def total(category: Category) -> int:
        return sum(
            size
            for size, sorted_into in zip(traced.sizes, traced.categories, strict=True)
            if sorted_into is category
        )

    assert total(Category.PARAMETERS) == parameters + buffers
    assert total(Category.GRADIENTS) == 2 * parameters  # once in each of the two steps
    steps = 4 * len(list(model.parameters()))  # AdamW counts its steps in a scalar a parameter
    assert total(Category.OPTIMIZER_STATE) == 2 * parameters + steps
    assert total(Category.INPUTS) == 2 * (2 * 32 * 8 + 2 * 32 * 8 + 2 * 8)


@small
def test_the_peak_by_category_adds_up() -> None:
    peak, categories = trace(small_workload("gpt2"), 2, None).peak_by_category()
    assert sum(categories.values()) == peak
    assert all(size >= 0 for size in categories.values())


def by_hand(batch_size: int, name: str = "aten.mm") -> Trace:
    return Trace(
        batch_size=batch_size,
        events=[(ALLOCATE, 0), (ALLOCATE, 1), (FREE, 1)],
        sizes=[100, 7 * batch_size + 3],
        categories=[Category.PARAMETERS, Category.ACTIVATIONS],
        last_step=1,
        operations=[Operation(name, "float32", 10 * batch_size, 4 * batch_size + 8)],
    )


def test_traces_far_apart_give_the_sizes_between() -> None:
    assert AffineTrace(by_hand(2), by_hand(10)).at(5) == by_hand(5)


def test_traces_of_unlike_steps_are_refused() -> None:
    with pytest.raises(NotAffine, match="not alike at batch 2 and 3"):
        AffineTrace(by_hand(2), by_hand(3, name="aten.bmm"))
