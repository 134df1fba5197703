"""The ladder's order, and how its moves are named in few words."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.answer.conclusion import Findings, decision
from engine.answer.economics import within
from engine.answer.ladder import (
    ALIKE,
    CHECKPOINTING,
    MAX_RUNGS,
    MAX_WORDS,
    NO_CACHE,
    NO_CHECKPOINTING,
    WORTH_A_MOVE,
    Effort,
    Learning,
    Move,
    Rung,
    about_training,
    best_of,
    by_gain,
    effort_of,
    fits_with,
    in_order,
    learning_of,
)
from engine.answer.recommendation import Bound
from engine.answer.search import SearchOutcome
from engine.core.border import read_json
from engine.interface.result import AnalysisResult
from engine.interface.trial import GpuFacts, Source, Trial

TIMES = "\N{MULTIPLICATION SIGN}"
MOVES = (
    "tf32",
    "bf16",
    "bf16 weights",
    CHECKPOINTING,
    NO_CHECKPOINTING,
    NO_CACHE,
    "8-bit AdamW",
    "fused AdamW",
    "LoRA",
    f"accumulate 4{TIMES} less",
    "8 GPUs with FSDP",
)


def trial(batch_size: int, fits: bool, speed: float) -> Trial:
    return Trial(
        batch_size,
        fits,
        Source.PREDICTED,
        device_used_bytes=2**30,
        samples_per_second=speed if fits else None,
    )


def findings(
    moves: list[str], current: int, then: int, ratio: float | None, **more: Any
) -> Findings:
    return Findings(
        gpu=GpuFacts("A GPU", 2**34, 2**34),
        outcome=SearchOutcome(65_536, 65_537, True, []),
        current=trial(current, ratio is not None, 10.0),
        recommended=trial(then, True, 10.0 * (ratio or 1.0)),
        fastest_batch_size=then,
        curve=(),
        price_per_hour_usd=1.0,
        source=Source.PREDICTED,
        moves=moves,
        **more,
    )


SIZES = st.integers(1, 65_536)
FINDINGS = st.builds(
    findings,
    st.lists(st.sampled_from(MOVES), unique=True, max_size=len(MOVES)),
    SIZES,
    SIZES,
    st.none() | st.floats(0.01, 1000),
    span=st.sampled_from([within(0.03), within(0.15)]),
    safe_batch_size=st.sampled_from([0, 1, 65_536]),
    bound=st.sampled_from(Bound),
)


@given(FINDINGS)
def test_a_decision_has_at_most_fifteen_words(found: Findings) -> None:
    assert len(decision(found).split()) <= MAX_WORDS


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (findings(["bf16"], 16, 128, 2.9), f"Switch to bf16 and batch 128: 2.9{TIMES} faster."),
        (findings(["bf16"], 16, 16, 1.9), f"Switch to bf16: 1.90{TIMES} faster."),
        (
            findings([CHECKPOINTING], 8, 8, None),
            "It does not fit: turn on gradient checkpointing, then batch 8 fits.",
        ),
        (
            findings([NO_CHECKPOINTING], 8, 16, 1.3),
            f"Turn off gradient checkpointing and use batch 16: 1.30{TIMES} faster.",
        ),
        (
            findings(["LoRA", "bf16 weights", CHECKPOINTING], 8, 8, None),
            "Switch to LoRA, bf16 weights and gradient checkpointing: then batch 8 fits.",
        ),
        (
            findings(["bf16"], 16, 16, 1.1, span=within(0.15)),
            f"Keep batch 16: bf16 may be 1.10{TIMES} faster, which is not sure.",
        ),
        (findings(["bf16"], 16, 16, 0.5), "Keep batch 16: bf16 would be no faster."),
        (
            findings(["bf16"], 16, 32, 1.04),
            "Keep batch 16: bf16 and batch 32 would be only about 4% faster.",
        ),
    ],
)
def test_the_decision_names_its_moves(found: Findings, expected: str) -> None:
    assert decision(found) == expected


def test_many_moves_are_counted() -> None:
    assert fits_with(list(MOVES), 8) == (
        f"It does not fit: make these {len(MOVES)} changes, then batch 8 fits."
    )


# --- the order --------------------------------------------------------------------------------

FIELDS: dict[str, dict[str, object]] = {
    "bf16": {"precision": "bf16-mixed"},
    "LoRA": {"lora_rank": 8},
    CHECKPOINTING: {"gradient_checkpointing": True},
}
TODAY = Rung([], {}, fits=True, batch_size=16, samples_per_second=10.0, speedup=1.0)


def rung(moves: frozenset[str], speed: float | None, **more: Any) -> Rung:
    fields = {name: value for move in sorted(moves) for name, value in FIELDS[move].items()}
    return Rung(sorted(moves), fields, fits=speed is not None, samples_per_second=speed, **more)


RUNGS = st.lists(
    st.builds(
        rung,
        st.frozensets(st.sampled_from(sorted(FIELDS)), min_size=1),
        st.none() | st.floats(1, 100),
        learning=st.sampled_from(Learning),
        effort=st.sampled_from(Effort),
    ),
    unique_by=lambda one: tuple(one.moves),
)


@given(st.sampled_from([TODAY, replace(TODAY, fits=False, samples_per_second=None)]), RUNGS)
def test_the_ladder_begins_with_today_and_goes_from_good_to_worse(
    today: Rung, found: list[Rung]
) -> None:
    ladder = in_order([today, *found])
    assert ladder[0] is today
    assert len(ladder) <= MAX_RUNGS
    fits = [one.fits for one in ladder[1:]]
    assert fits == sorted(fits, reverse=True)
    here = [one for one in ladder[1:] if one.fits and one.effort is not Effort.MACHINE]
    for better, worse in itertools.pairwise(here):
        assert (better.samples_per_second or 0) >= ALIKE * (worse.samples_per_second or 0)


@given(RUNGS)
def test_a_rung_is_worth_each_of_its_moves(found: list[Rung]) -> None:
    ladder = in_order([TODAY, *found])
    for one in ladder:
        for simpler in ladder:
            order = list(Learning)
            if order.index(simpler.learning) > order.index(one.learning):
                continue
            if simpler.fits and one.fits and simpler.fields.items() < one.fields.items():
                least = WORTH_A_MOVE * (simpler.samples_per_second or 0)
                assert (one.samples_per_second or 0) >= least


def test_of_equally_fast_rungs_the_one_that_changes_less_comes_first() -> None:
    lora = rung(frozenset({"LoRA"}), 20.0, learning=Learning.TRAINED)
    half = rung(frozenset({"bf16"}), 19.5, learning=Learning.NUMERICS)
    assert in_order([TODAY, lora, half])[1:] == [half, lora]
    assert in_order([TODAY, replace(lora, samples_per_second=30.0), half])[1].moves == ["LoRA"]


def test_the_most_of_its_moves_counts() -> None:
    moves = [
        Move("bf16", {}, Learning.NUMERICS),
        Move("LoRA", {}, Learning.TRAINED, Effort.FEW_LINES),
    ]
    assert (learning_of(moves), effort_of(moves)) == (Learning.TRAINED, Effort.FEW_LINES)
    assert (learning_of([]), effort_of([])) == (Learning.NONE, Effort.ONE_LINE)


def test_a_rung_can_be_stored_and_read() -> None:
    stored = rung(frozenset({"bf16"}), 20.0, learning=Learning.NUMERICS).to_dict()
    assert read_json(Rung, stored).to_dict() == stored


def test_what_is_no_faster_than_today_is_left_out() -> None:
    slow = rung(frozenset({"LoRA"}), 10.2, speedup=1.02)
    assert in_order([TODAY, slow]) == [TODAY]
    elsewhere = replace(slow, gpu="l4", speedup=0.5)
    assert in_order([TODAY, elsewhere]) == [TODAY, elsewhere]


def kept(name: str, speed: float, **more: Any) -> Rung:
    return Rung([name], {name: 1}, fits=True, samples_per_second=speed, **more)


def test_what_raises_the_global_batch_does_not_stand_for_what_keeps_it() -> None:
    raises = rung(frozenset(), 20.0, learning=Learning.GLOBAL_BATCH, keeps_global_batch=False)
    half = rung(
        frozenset({"bf16"}), 15.0, learning=Learning.NUMERICS, keeps_global_batch=True, speedup=1.5
    )
    assert in_order([raises, half])[1:] == [half]
    assert in_order([raises, replace(half, keeps_global_batch=False)])[1:] == []


def test_of_alike_rungs_the_one_that_keeps_the_global_batch_comes_first() -> None:
    raises = kept("a", 20.0, keeps_global_batch=False)
    keeps = kept("b", 19.5, keeps_global_batch=True)
    assert in_order([TODAY, raises, keeps])[1:] == [keeps, raises]


def test_what_does_not_fit_alone_is_left_out_where_it_does_with_another_move() -> None:
    today = replace(TODAY, fits=False, samples_per_second=None)
    alone = rung(frozenset({"LoRA"}), None, why_not="even batch 1 needs 48.9 of 14.6 GiB")
    both = rung(frozenset({"LoRA", CHECKPOINTING}), 1.0)
    assert in_order([today, alone, both])[1:] == [both]
    assert in_order([today, alone])[1:] == [alone]


def test_shorter_samples_come_after_whole_ones_and_only_where_nothing_else_fits() -> None:
    today = replace(TODAY, fits=False, samples_per_second=None)
    shorter = Rung(["512"], {"sequence_length": 512}, fits=True, samples_per_second=50.0)
    whole = rung(frozenset({CHECKPOINTING}), 5.0)
    both = replace(shorter, fields=shorter.fields | whole.fields, samples_per_second=60.0)
    assert in_order([today, shorter, whole, both])[1:] == [whole, shorter]
    assert by_gain([shorter, today, whole]) == [whole, shorter, today]


def test_a_table_goes_by_gain() -> None:
    slow, fast = kept("a", 10.0), kept("b", 30.0)
    refused = rung(frozenset({"LoRA"}), None)
    assert by_gain([refused, slow, fast]) == [fast, slow, refused]


def test_another_batch_alone_is_offered_only_where_no_other_move_helps() -> None:
    """The unchanged workload is first in a ladder, with its batch as its only move."""
    result = cast("AnalysisResult", SimpleNamespace(safe_batch_size=128))

    def changed(moves: list[str], fields: dict[str, object], speedup: float) -> Rung:
        return Rung(
            moves,
            fields,
            fits=True,
            result=result,
            keeps_global_batch=False,
            speedup=speedup,
            speedup_low=0.95 * speedup,
            speedup_high=1.1 * speedup,
        )

    alone = changed(["batch 128"], {}, 1.2)
    faster = changed(["bf16", "batch 112"], {"precision": "bf16-mixed"}, 4.9)
    assert best_of([alone, faster], keeps_global_batch=False) is faster
    assert best_of([alone], keeps_global_batch=False) is alone
    assert best_of([alone, faster], keeps_global_batch=True) is None


def test_a_long_ladder_still_names_another_gpu() -> None:
    many = [
        Rung([f"move {n}"], {f"field {n}": n}, fits=True, samples_per_second=100.0 + n)
        for n in range(2 * MAX_RUNGS)
    ]
    gpu = Rung(["H100"], {"gpu": "h100"}, effort=Effort.MACHINE, fits=True, gpu="h100")
    ladder = in_order([TODAY, *many, gpu])
    assert len(ladder) == MAX_RUNGS
    assert ladder[-1] is gpu


# --- what they do to training -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moves", "learning", "before", "after", "said"),
    [
        (["fused AdamW"], Learning.NONE, 16, 16, "keeps the training as it is"),
        (
            ["less accumulation", "batch 64"],
            Learning.NONE,
            64,
            64,
            "keeps the training as it is",
        ),
        (
            ["batch 128"],
            Learning.GLOBAL_BATCH,
            16,
            1280,
            "raises the batch per optimizer step from 16 to 1,280",
        ),
        (
            ["bf16", "batch 128"],
            Learning.NUMERICS,
            16,
            128,
            "raises the batch per optimizer step from 16 to 128 and changes the numerics",
        ),
        (
            ["batch 8"],
            Learning.GLOBAL_BATCH,
            16,
            8,
            "lowers the batch per optimizer step from 16 to 8",
        ),
        (
            ["bf16"],
            Learning.NUMERICS,
            16,
            16,
            "keeps the batch per optimizer step and changes the numerics",
        ),
        (
            ["LoRA"],
            Learning.TRAINED,
            16,
            16,
            "keeps the batch per optimizer step and changes what is trained",
        ),
        (
            ["batch 64"],
            Learning.GLOBAL_BATCH,
            64,
            64,
            "keeps the batch per optimizer step, but compares samples in other groups",
        ),
        ([], Learning.NONE, 16, 16, ""),
        (["bf16"], Learning.NUMERICS, None, None, ""),
    ],
)
def test_a_rung_says_whether_it_raises_the_batch_or_keeps_the_training(
    moves: list[str], learning: Learning, before: int | None, after: int | None, said: str
) -> None:
    made = Rung(moves, {}, learning, global_batch_before=before, global_batch_size=after)
    assert about_training(made) == said


@pytest.mark.parametrize(
    ("ratio", "low", "worth"),
    [(1.2, 1.03, True), (1.2, 1.02, False), (1.049, 1.04, False), (None, None, False)],
)
def test_a_rung_is_a_change_only_if_it_is_worth_it(
    ratio: float | None, low: float | None, worth: bool
) -> None:
    high = None if ratio is None else 2 * ratio
    made = Rung(["bf16"], {}, speedup=ratio, speedup_low=low, speedup_high=high)
    assert made.is_worth_it is worth
