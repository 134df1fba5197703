"""Our own optimizers take the memory of the packages that people install, to the byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch

from engine.step.batches import make_batch
from engine.step.optimizers.adam_mini import adam_mini
from engine.step.optimizers.schedule_free import ScheduleFreeAdamW
from engine.step.training import Training, build_model, prepare, training_step
from engine.tests.conftest import small_workload
from engine.tracing.recorder import MemoryRecorder
from engine.tracing.trace import Category, Trace

pytestmark = pytest.mark.usefixtures("small_models")

STEPS = 3
RATE = 1e-3
Make = Callable[[Training], torch.optim.Optimizer]


def trained(model: str, make: Make) -> tuple[Trace, list[torch.Tensor]]:
    """What real steps on the CPU record, and the parameters that they lead to."""
    torch.manual_seed(0)
    workload = small_workload(model, mode="eval", optimizer="none")
    training = prepare(workload, build_model(workload))
    training.optimizer = make(training)
    recorder = MemoryRecorder(training, 2)
    batch = make_batch(workload, 2)
    for _ in range(STEPS):
        recorder.record_step(lambda: training_step(training, batch))
    return recorder.trace, [parameter.detach() for parameter in training.model.parameters()]


def assert_same(model: str, own: Make, published: Make) -> None:
    (ours, reached), (theirs, expected) = trained(model, own), trained(model, published)
    assert ours.peak_by_category() == theirs.peak_by_category()
    assert state_bytes(ours) == state_bytes(theirs)
    torch.testing.assert_close(reached, expected, rtol=1e-4, atol=1e-6)


def state_bytes(trace: Trace) -> int:
    """What the state takes that the last step leaves behind."""
    alive: set[int] = set()
    for _, tensor in trace.events:
        alive ^= {tensor}
    kept = (one for one in alive if trace.categories[one] is Category.OPTIMIZER_STATE)
    return sum(trace.sizes[one] for one in kept)


def parameters(training: Training) -> list[torch.nn.Parameter]:
    return list(training.model.parameters())


@pytest.mark.parametrize("model", ["bert", "gpt2", "resnet"])
def test_schedule_free_adamw_is_that_of_schedulefree(model: str) -> None:
    package: Any = pytest.importorskip("schedulefree")

    def published(training: Training) -> torch.optim.Optimizer:
        optimizer = package.AdamWScheduleFree(parameters(training), lr=RATE)
        optimizer.train()
        return cast(torch.optim.Optimizer, optimizer)

    assert_same(model, lambda t: ScheduleFreeAdamW(parameters(t), lr=RATE), published)


@pytest.mark.parametrize(("model", "heads", "kv"), [("gpt2", 4, 4), ("mistral-7b", 4, 2)])
def test_adam_mini_is_that_of_adam_mini(model: str, heads: int, kv: int) -> None:
    package: Any = pytest.importorskip("adam_mini")

    def published(training: Training) -> torch.optim.Optimizer:
        named = training.model.named_parameters()
        sizes = {"dim": 64, "n_heads": heads, "n_kv_heads": kv}
        optimizer = package.Adam_mini(named, lr=RATE, verbose=False, **sizes)
        return cast(torch.optim.Optimizer, optimizer)

    assert_same(model, lambda t: adam_mini(t.model, lr=RATE), published)
