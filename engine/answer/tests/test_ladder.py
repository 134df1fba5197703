"""The ladder of real steps of small models, predicted in this process."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException

from engine.answer.ladder import (
    CHECKPOINTING,
    MAX_WORDS,
    WORTH_A_MOVE,
    Effort,
    Learning,
    Rung,
)
from engine.answer.plan import Plan
from engine.answer.recommendation import is_friendly
from engine.core.errors import EngineError, InvalidInput
from engine.events import Event
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.prediction.plans import climbing
from engine.prediction.plans import plan as plan_module
from engine.prediction.plans.combinations import Combination
from engine.prediction.plans.model_ladder import ModelClimb
from engine.prediction.plans.plan import plan
from engine.traces.workloads import KeptTraces

pytestmark = pytest.mark.usefixtures("small_models", "few_gpus")

MIB = 2**20
KEPT = KeptTraces(most=64)


@pytest.fixture
def few_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    some = {name: GPUS[name] for name in ("a10", "h100")}
    monkeypatch.setattr(plan_module, "known_gpus", lambda *_: some)
    monkeypatch.setattr(climbing, "processes_here", lambda: 1)


def ask(**fields: object) -> AnalysisRequest:
    given = {"model": "bert", "gpu": "a10", "sequence_length": 32, "batch_multiple": 8}
    return AnalysisRequest.parse(given | fields)


@functools.cache
def _planned(request: AnalysisRequest) -> tuple[list[Event], Plan]:
    events: list[Event] = []
    return events, plan(request, events.append, traced=KEPT)


def _climbed(request: AnalysisRequest) -> tuple[list[Event], list[Rung]]:
    events, made = _planned(request)
    return events, made.ladder


def climbed(**fields: Any) -> list[Rung]:
    return _climbed(ask(**fields))[1]


ASKED: dict[str, dict[str, Any]] = {
    "fits": {"current_batch_size": 64},
    "does not fit": {"memory_limit_bytes": 460 * MIB, "current_batch_size": 1024},
    "accumulates": {"current_batch_size": 64, "gradient_accumulation": 4, "optimizer": "sgd"},
}
asked = pytest.mark.parametrize("fields", ASKED.values(), ids=ASKED)


@pytest.mark.slow
@asked
def test_the_first_rung_is_the_unchanged_workload(fields: dict[str, Any]) -> None:
    events, ladder = _climbed(ask(**fields))
    assert ladder[0].fields == {}
    assert next(event for event in events if isinstance(event, Rung)) == ladder[0]
    assert {id(rung) for rung in ladder} <= {id(event) for event in events}


@pytest.mark.slow
@asked
def test_every_rung_has_an_answer_of_its_own(fields: dict[str, Any]) -> None:
    ladder = climbed(**fields)
    for rung in ladder:
        if rung.fits:
            assert len(rung.decision.split()) <= MAX_WORDS
        else:
            assert rung.why_not
        if rung.result is None:
            continue
        result = rung.result
        assert result.decision == rung.decision
        assert result.current_batch_size == fields["current_batch_size"]
        assert result.recommended_batch_size == rung.batch_size
        assert is_friendly(rung.batch_size or 0)
        assert (rung.batch_size or 0) <= (result.safe_batch_size or 0)
        assert (result.today is None) == (rung.fields == {})
        trial = next(t for t in result.trials if t.batch_size == rung.batch_size)
        assert trial.samples_per_second == rung.samples_per_second


@pytest.mark.slow
@asked
def test_no_rung_is_worse_than_a_simpler_one(fields: dict[str, Any]) -> None:
    ladder = [rung for rung in climbed(**fields) if rung.fits and not rung.gpu]
    for rung in ladder:
        for simpler in ladder:
            changes_more = simpler.learning is Learning.GLOBAL_BATCH
            if simpler.fields.items() < rung.fields.items() and not changes_more:
                assert simpler.samples_per_second is not None
                assert rung.samples_per_second is not None
                assert rung.samples_per_second >= WORTH_A_MOVE * simpler.samples_per_second


@pytest.mark.slow
def test_speedups_are_over_the_current_batch_without_a_move() -> None:
    ladder = climbed(**ASKED["fits"])
    half = next(rung for rung in ladder if rung.fields == {"precision": "bf16-mixed"})
    assert half.result is not None
    today = half.result.today
    assert today is not None
    assert today.samples_per_second is not None
    assert half.samples_per_second is not None
    assert half.speedup == pytest.approx(half.samples_per_second / today.samples_per_second)
    assert half.usd_per_run == pytest.approx(
        8 * (GPUS["a10"].price_per_hour_usd or 0) / (half.speedup or 0)
    )
    assert half.learning is Learning.NUMERICS
    assert half.result.savings is not None
    assert half.result.savings.energy is None


@pytest.mark.slow
def test_without_a_current_batch_moves_are_compared_with_the_one_to_start_with() -> None:
    made = _planned(ask(current_batch_size=None))[1]
    unchanged, *others = made.ladder
    assert unchanged.batch_size == made.current_batch_size
    assert unchanged.decision.startswith(f"Start with batch {unchanged.batch_size:,}: ")
    assert (unchanged.moves, unchanged.speedup, unchanged.usd_per_run) == ([], None, None)
    half = next(rung for rung in others if rung.fields == {"precision": "bf16-mixed"})
    assert half.result is not None
    assert half.result.today is not None
    assert half.result.today.batch_size == unchanged.batch_size
    assert half.speedup is not None
    assert {rung.result.savings for rung in made.ladder if rung.result} == {None}
    assert {rung.result.current_batch_size for rung in made.ladder if rung.result} == {None}


@pytest.mark.slow
def test_without_a_current_batch_what_does_not_fit_is_made_to_fit() -> None:
    ladder = climbed(memory_limit_bytes=460 * MIB, current_batch_size=None, batch_multiple=512)
    assert any(rung.fits for rung in ladder)


@pytest.mark.slow
def test_what_does_not_fit_is_made_to_fit() -> None:
    today, best, *_ = climbed(**ASKED["does not fit"])
    assert (today.fits, today.speedup) == (True, None)  # a smaller batch does
    assert best.fits
    assert best.decision.startswith("It does not fit: ")


@pytest.mark.slow
def test_accumulation_is_traded_for_batch() -> None:
    ladder = climbed(**ASKED["accumulates"])
    less = next(rung for rung in ladder if "less accumulation" in str(rung.moves))
    assert less.fields["global_batch_size"] == 256
    assert less.moves[-1] == "batch 256"


class Refusing(ModelClimb):
    """A climb in which one kind of move cannot be predicted."""

    def _reached(self, moves: Combination, *rest: Any) -> Any:
        errors = {
            CHECKPOINTING: InvalidInput({"gradient_checkpointing": "transformers has none"}),
            "bf16": DataDependentOutputException(torch.ops.aten._local_scalar_dense.default),
            "LoRA": EngineError("LoRA needs the package peft"),
        }
        for move in moves:
            if move.name in errors:
                raise errors[move.name]
        return super()._reached(moves, *rest)


@pytest.mark.slow
def test_a_move_that_is_not_possible_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "ModelClimb", Refusing)
    request = ask(memory_limit_bytes=350 * MIB, current_batch_size=8, optimizer="sgd")
    ladder = plan(request, lambda _: None, traced=KEPT).ladder
    refused = {rung.moves[0]: rung.why_not for rung in ladder[1:] if not rung.fits}
    assert refused["bf16"].startswith("such a step depends on the values of tensors")
    assert refused["LoRA"] == "LoRA needs the package peft"


@pytest.mark.slow
def test_another_gpu_is_a_move_of_its_own() -> None:
    rung = next(rung for rung in climbed(**ASKED["fits"]) if rung.gpu)
    assert (rung.gpu, rung.effort, rung.result) == ("h100", Effort.MACHINE, None)
    assert rung.fields == {"gpu": "h100"}
    assert rung.usd_per_run is not None
    assert "H100" in rung.decision


@pytest.mark.slow
def test_a_plan_says_what_its_room_is_for() -> None:
    made = _planned(ask(**ASKED["fits"]))[1]
    assert made.room is not None
    assert made.room.sequence_length == 512
    assert made.room.runs > 1
    assert _planned(ask(**ASKED["does not fit"]))[1].room is None
