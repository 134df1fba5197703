"""Layers that are recomputed, and the cost of it."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.errors import InvalidInput
from engine.gpus import GPUS
from engine.interface.workload import Workload
from engine.prediction.timing.step_time import predict_step_seconds
from engine.step.building import new_model
from engine.step.training import build_model
from engine.step.transformers_versions import checkpointed_layers
from engine.tests.shared import small_workload
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Trace

A10 = cuda_behaviour(8.6)
LAYERS = 6

pytestmark = pytest.mark.usefixtures("small_models")


def llama(**fields: Any) -> Workload:
    config = small_workload("llama-3.2-1b").preset.config() | {"num_hidden_layers": LAYERS}
    return Workload("own", config=config, sequence_length=64, **fields)


def traced(**fields: Any) -> Trace:
    return trace(llama(optimizer="sgd", **fields), 4, A10)


def seconds(found: Trace) -> float:
    return predict_step_seconds(found.operations, GPUS["a10"], llama().precision)


def test_kept_products_need_layers_that_are_recomputed() -> None:
    with pytest.raises(InvalidInput) as raised:
        Workload.parse({"model": "bert", "recompute": "cheap"})
    assert "switch it on" in raised.value.fields["recompute"]


@pytest.mark.parametrize("every", [1, 2, 4])
def test_the_layers_chosen_are_those_of_transformers(every: int) -> None:
    workload = llama(gradient_checkpointing=True, checkpoint_every=every)
    theirs: Any = new_model(workload)
    theirs.activation_checkpointing_enable(every_n_layers=every)
    ours = build_model(workload)
    chosen = [layer.gradient_checkpointing for layer in checkpointed_layers(ours)]
    assert chosen == [layer.gradient_checkpointing for layer in checkpointed_layers(theirs)]
    assert len(chosen) == LAYERS


@pytest.mark.slow
def test_fewer_layers_recomputed_take_less_time_and_more_memory() -> None:
    every = {n: traced(gradient_checkpointing=True, checkpoint_every=n) for n in (1, 2, 3)}
    in_order = [*every.values(), traced()]
    peaks = [one.peak_by_category()[0] for one in in_order]
    flops = [sum(operation.flops for operation in one.operations) for one in in_order]
    assert peaks == sorted(peaks)
    assert flops == sorted(flops, reverse=True)
    assert flops[0] - flops[3] == 2 * (flops[1] - flops[3])  # twice as many layers
    assert seconds(every[1]) > seconds(every[2]) > seconds(in_order[3])


@pytest.mark.slow
def test_products_that_are_kept_are_not_computed_again() -> None:
    checkpointed, cheap, whole = (
        traced(gradient_checkpointing=True),
        traced(gradient_checkpointing=True, recompute="cheap"),
        traced(),
    )
    peaks = [one.peak_by_category()[0] for one in (checkpointed, cheap, whole)]
    assert peaks[0] < peaks[1] < peaks[2]
    flops = [sum(one.flops for one in found.operations) for found in (cheap, whole)]
    assert flops[0] == flops[1]
    assert seconds(whole) < seconds(cheap) < seconds(checkpointed)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"checkpoint_every": 2}, "switch it on"),
        ({"checkpoint_every": 0, "gradient_checkpointing": True}, "1"),
    ],
)
def test_a_wrong_choice_is_refused(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        Workload.parse({"model": "bert"} | fields)
    assert expected in raised.value.fields["checkpoint_every"]


def test_a_model_whose_layers_cannot_be_chosen_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.step.transformers_versions.VERSION", (4, 44))
    with pytest.raises(InvalidInput) as raised:
        build_model(small_workload("bert", gradient_checkpointing=True, checkpoint_every=2))
    assert "BERT" in raised.value.fields["checkpoint_every"]
