"""What becomes of the learning rate where the global batch changes, by the optimizer's kind."""

from __future__ import annotations

import pytest

from engine.answer.learning_rate import learning_rate_advice
from engine.core.optimizers import Optimizer, Scaling

TIMES = "\N{MULTIPLICATION SIGN}"


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (
            Optimizer.SGD,
            f"Learning rate: start from 4.0{TIMES} yours, by the linear rule for SGD "
            "(Goyal et al. 2017).",
        ),
        (
            Optimizer.ADAMW,
            f"Learning rate: start from 2.0{TIMES} yours, by the square root rule for Adam-like "
            "optimizers (Malladi et al. 2022).",
        ),
        (
            Optimizer.LION,
            "Learning rate: search for it anew; no rule is established for Lion.",
        ),
        (
            None,
            "Learning rate: search for it anew; no rule is established for this optimizer.",
        ),
    ],
)
def test_the_rule_is_the_optimizers(optimizer: Optimizer | None, expected: str) -> None:
    assert learning_rate_advice(optimizer, 16, 64) == expected


@pytest.mark.parametrize("optimizer", [*Optimizer, None])
def test_the_same_global_batch_keeps_the_learning_rate(optimizer: Optimizer | None) -> None:
    assert learning_rate_advice(optimizer, 16, 16) == "Learning rate: as it is."


def test_what_trains_something_else_needs_another_search() -> None:
    said = learning_rate_advice(Optimizer.ADAMW, 16, 16, is_retrained=True)
    assert said == "Learning rate: search for it anew."


def test_the_rules_are_of_the_families_that_they_were_shown_for() -> None:
    linear = {one for one in Optimizer if one.spec.scaling is Scaling.LINEAR}
    assert linear == {Optimizer.SGD, Optimizer.SGD_MOMENTUM}
    unknown = {one for one in Optimizer if one.spec.scaling is None}
    assert {Optimizer.LION, Optimizer.MUON, Optimizer.SHAMPOO, Optimizer.SOAP} <= unknown
