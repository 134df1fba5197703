"""The learning rate where the global batch changes, by the optimizer's kind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.answer.learning_rate import about_global_batch, learning_rate_advice
from engine.core.optimizers import Optimizer, Scaling
from engine.interface.result import AnalysisResult, OptimizerStep
from engine.interface.trial import GpuFacts, Source

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
            Optimizer.NONE,
            "Learning rate: there is none, since no optimizer updates the weights.",
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


def about_script(classes: list[str], batches: tuple[int, int], micro: tuple[int, int]) -> str:
    """The line of a script's answer that goes from one batch to another on two GPUs."""
    result = replace(
        answer_of_a_script(*batches), optimizer_step=OptimizerStep(classes, *micro, gpus=2)
    )
    return about_global_batch(result)


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (["AdamW"], f"start from 2.0{TIMES} yours, by the square root rule"),
        (["PagedAdamW8bit"], f"start from 2.0{TIMES} yours, by the square root rule"),
        (["SGD"], f"start from 4.0{TIMES} yours, by the linear rule"),
        (["Adam", "AdamW"], f"start from 2.0{TIMES} yours, by the square root rule"),
        (["AdamW", "SGD"], "no rule is established for AdamW and SGD."),
        (["Muon"], "no rule is established for Muon."),
        ([], "no rule is established for this optimizer."),
    ],
)
def test_a_script_has_the_rule_of_the_optimizers_that_stepped(
    classes: list[str], said: str
) -> None:
    line = about_script(classes, (16, 64), (1, 1))
    assert line.startswith("Raises the global batch from 32 to 128. Learning rate: ")
    assert said in line


@pytest.mark.parametrize(
    ("batches", "micro", "said"),
    [
        ((16, 64), (8, 8), ", which 2 micro-batches of 64 would keep."),
        ((16, 64), (4, 4), ", which 1 micro-batch of 64 would keep."),
        ((16, 48), (8, 8), "from 256 to 768. "),
        ((64, 16), (1, 1), "Lowers the global batch from 128 to 32, which 4 micro-batches of 16"),
        ((16, 64), (4, 1), ""),
        ((16, 16), (4, 4), ""),
    ],
)
def test_a_script_is_told_which_micro_batches_keep_its_global_batch(
    batches: tuple[int, int], micro: tuple[int, int], said: str
) -> None:
    line = about_script(["SGD"], batches, micro)
    assert (said in line) if said else line == ""


def test_a_script_that_was_not_traced_has_no_line() -> None:
    assert about_global_batch(answer_of_a_script(16, 64)) == ""


def answer_of_a_script(current: int, recommended: int) -> AnalysisResult:
    gpu = GpuFacts("NVIDIA A10", 2**34, 2**34)
    return AnalysisResult(
        model_name="train.py",
        workload=None,
        gpu=gpu,
        source=Source.PREDICTED,
        largest_batch_size=recommended,
        next_batch_size=recommended + 8,
        next_batch_size_fails=True,
        recommended_batch_size=recommended,
        current_batch_size=current,
        current_headroom_bytes=None,
        largest_headroom_bytes=0,
        speedup=None,
        savings=None,
        verdict="",
        curve=[],
        trials=[],
        caveats=[],
    )
