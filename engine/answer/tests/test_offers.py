"""A script's two offers: what keeps its global batch, and what changes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import engine
from engine.answer.ladder import Rung
from engine.answer.offers import Offer, offers_of_ladder, offers_of_script
from engine.answer.tests.test_learning_rate import answer_of_a_script
from engine.interface.result import AnalysisResult, KeptBatch, OptimizerStep
from engine.script.factory import Factory
from engine.script.request import ScriptRequest
from engine.script.tests.scripts import ACCUMULATING, written
from engine.script_analysis import predict_script

KEPT = KeptBatch(64, 2, 500.0, 1.4, 1.2, 1.6)


def offers(
    batches: tuple[int, int], micro_batches: int, kept: KeptBatch | None = None
) -> tuple[Offer, Offer]:
    """Both offers of an answer that goes from one batch to another, with AdamW on one GPU."""
    step = OptimizerStep(["AdamW"], micro_batches, micro_batches, gpus=1)
    result = answer_of_a_script(*batches)
    first, second = offers_of_script(replace(result, optimizer_step=step, kept_batch=kept))
    return first, second


def test_both_are_side_by_side_each_with_its_learning_rate() -> None:
    kept, raised = offers((16, 64), 8, KEPT)
    assert kept.title == "Keeps the global batch of 128"
    assert kept.change == "batch 64 in 2 micro-batches"
    assert (kept.speedup, kept.speedup_low, kept.speedup_high) == (1.4, 1.2, 1.6)
    assert kept.learning_rate == "Learning rate: as it is."
    assert raised.title == "Raises the global batch from 128 to 512"
    assert raised.change == "batch 64 in 8 micro-batches"
    assert "square root rule for Adam-like optimizers" in raised.learning_rate


@pytest.mark.parametrize(
    ("batches", "micro_batches", "why"),
    [
        ((16, 64), 1, "does not accumulate, so its code decides the rest"),
        ((16, 64), 8, "No other split of its 8 micro-batches is known to be surely faster."),
        ((64, 16), 1, "Accumulating would keep it, as batch 16 in 4 micro-batches"),
        ((60, 16), 1, "No allowed batch that surely fits divides it evenly."),
    ],
)
def test_where_nothing_keeps_the_global_batch_the_reason_is_given(
    batches: tuple[int, int], micro_batches: int, why: str
) -> None:
    kept, _ = offers(batches, micro_batches)
    assert why in kept.why_none
    assert not kept.change


def test_where_nothing_changes_the_global_batch_the_reason_is_given() -> None:
    _, changed = offers((16, 16), 4)
    assert changed.title == "Another global batch than 64"
    assert changed.why_none == "No other batch is surely faster."


def test_a_script_that_was_not_traced_has_none() -> None:
    assert offers_of_script(answer_of_a_script(16, 64)) == []


@pytest.fixture(scope="module")
def accumulating(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Factory, AnalysisResult]]:
    """A factory that accumulates 8 micro-batches of 16, and the answer for it."""
    folder: Path = tmp_path_factory.mktemp("scripts")
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(folder)
        factory = written(folder, ACCUMULATING.format(last="pass"), "accumulating")
        result = engine.analyze(
            "accumulating:make_step", gpu="t4", current_batch_size=16, gradient_accumulation=8
        )
        yield factory, result


def test_a_script_that_accumulates_is_offered_larger_micro_batches_of_the_same_global_batch(
    accumulating: tuple[Factory, AnalysisResult],
) -> None:
    _, result = accumulating
    kept = result.kept_batch
    assert kept is not None
    assert kept.batch_size * kept.micro_batches == 16 * 8
    assert kept.batch_size > 16
    assert kept.speedup_low <= kept.speedup <= kept.speedup_high
    first, second = offers_of_script(result)
    assert first.batch_size == kept.batch_size
    assert second.batch_size == result.recommended_batch_size


def test_its_speed_is_that_of_the_script_when_it_is_split_so(
    accumulating: tuple[Factory, AnalysisResult],
) -> None:
    factory, result = accumulating
    kept = result.kept_batch
    assert kept is not None
    request = ScriptRequest.parse(
        factory, {"gpu": "t4", "gradient_accumulation": kept.micro_batches}
    )
    (trial,) = predict_script(request, lambda _: None, [kept.batch_size]).trials
    assert trial.samples_per_second == pytest.approx(kept.samples_per_second, rel=0.02)


def _rung(move: str, batch_size: int, speedup: float, *, keeps: bool) -> Rung:
    moves = [move] if move else []
    return Rung(
        moves,
        {"precision": move} if move else {},
        fits=True,
        batch_size=batch_size,
        global_batch_before=128,
        global_batch_size=128 if keeps else 512,
        keeps_global_batch=keeps,
        speedup=speedup,
        speedup_low=speedup / 1.1,
        speedup_high=speedup * 1.1,
        result=answer_of_a_script(16, batch_size),
    )


@pytest.mark.parametrize(
    ("speedup", "change"), [(1.2, "batch 64 in 2 micro-batches"), (2.0, "bf16")]
)
def test_another_split_is_offered_where_it_is_faster_than_what_keeps_the_batch(
    speedup: float, change: str
) -> None:
    step = OptimizerStep(["AdamW"], 8, 8, gpus=1)
    today = _rung("", 16, 1.0, keeps=True)
    own = replace(answer_of_a_script(16, 16), optimizer_step=step, kept_batch=KEPT)
    moved = [_rung("bf16", 16, speedup, keeps=True), _rung("tf32", 64, 3.0, keeps=False)]

    (kept, rung), (raised, _) = offers_of_ladder([replace(today, result=own), *moved])
    assert kept.change == change
    assert (rung is None) == (change != "bf16")
    assert (raised.title, raised.change) == ("Raises the global batch from 128 to 512", "tf32")


def test_a_ladder_on_which_nothing_helps_offers_nothing() -> None:
    assert offers_of_ladder([_rung("", 16, 1.0, keeps=True)]) == []
    assert offers_of_ladder([]) == []
