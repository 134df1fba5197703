"""The verdict is one sentence that says what fits, what to use, and what it gains."""

from __future__ import annotations

import pytest

from engine.answer.economics import Speedup, speedup
from engine.answer.recommendation import Bound
from engine.answer.search import SearchOutcome
from engine.answer.verdict import verdict
from engine.result import Source


def sentence(
    recommended: int,
    current: int,
    ratio: float | None,
    *,
    largest: int = 288,
    next_fails: bool = True,
    source: Source = Source.PREDICTED,
    noise: float = 0.02,
) -> str:
    return verdict(
        SearchOutcome(largest, largest + 8, next_fails, []),
        recommended_batch_size=recommended,
        current_batch_size=current,
        speedup=None if ratio is None else speedup(1.0, ratio, noise),
        source=source,
    )


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            sentence(64, 16, 1.3126),
            "Batch 288 fits, 296 does not; 64 gives at least 95 % of the best speed, "
            "1.31 times that of your batch of 16 (predicted).",
        ),
        (
            sentence(64, 16, 1.3126, source=Source.MEASURED),
            "Batch 288 fits, 296 does not; 64 gives at least 95 % of the best speed, "
            "1.31 times that of your batch of 16 (measured).",
        ),
        (
            sentence(64, 16, 1.01),
            "Batch 288 fits, 296 does not; 64 is no faster than your batch of 16: no gain "
            "(predicted).",
        ),
        (
            sentence(64, 64, 1.0),
            "Batch 288 fits, 296 does not; your batch of 64 already gives at least 95 % of the "
            "best speed: no gain (predicted).",
        ),
        (
            sentence(64, 128, 0.97),
            "Batch 288 fits, 296 does not; your batch of 128 is larger than speed needs, as 64 "
            "gives at least 95 % of the best speed: no gain (predicted).",
        ),
        (
            sentence(64, 1024, None),
            "Batch 288 fits, 296 does not; your batch of 1,024 is too large: use 64, which gives "
            "at least 95 % of the best speed (predicted).",
        ),
        (
            sentence(64, 16, 1.3, largest=65_536, next_fails=False),
            "Batch 65,536 fits, and no larger one is tried; 64 gives at least 95 % of the best "
            "speed, 1.30 times that of your batch of 16 (predicted).",
        ),
        (sentence(0, 16, None, largest=0), "Not even batch 8 fits (predicted)."),
    ],
)
def test_it_reads_well(said: str, expected: str) -> None:
    assert said == expected


def test_a_smaller_batch_that_is_faster_is_a_gain() -> None:
    assert "64 gives at least 95 % of the best speed, 1.10 times" in sentence(64, 128, 1.1)


def test_the_measured_interval_decides_what_is_a_gain() -> None:
    assert "no gain" in sentence(64, 16, 1.05, noise=0.06)
    assert "1.01 times" in sentence(64, 16, 1.014, noise=0.01)


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (Bound.MEMORY, "64 gives the best speed that is safe in memory, 1.31 times"),
        (Bound.GLOBAL_BATCH, "64 gives the best speed that the global batch allows, 1.31 times"),
    ],
)
def test_what_keeps_the_recommended_batch_from_the_best_speed_is_said(
    bound: Bound, words: str
) -> None:
    said = verdict(
        SearchOutcome(288, 296, True, []),
        recommended_batch_size=64,
        current_batch_size=16,
        speedup=Speedup(1.3126, 1.3, 1.33),
        source=Source.PREDICTED,
        bound=bound,
    )
    assert words in said


@pytest.mark.parametrize(
    ("current", "ratio", "safe", "expected"),
    [
        (16, None, 0, "your batch of 16 is too large: 1 is the likeliest to fit, as no batch is"),
        (3, 0.5, 0, "; 1 is the likeliest to fit, as no batch is sure to (predicted)."),
        (280, 0.8, 264, "your batch of 280 is not sure to fit, and 1 gives the best speed that is"),
        (200, 0.99, 264, "your batch of 200 is larger than speed needs, as 1 gives the best speed"),
    ],
)
def test_what_is_not_sure_to_fit_is_not_called_safe(
    current: int, ratio: float | None, safe: int, expected: str
) -> None:
    said = verdict(
        SearchOutcome(288, 289, True, []),
        recommended_batch_size=1,
        current_batch_size=current,
        speedup=None if ratio is None else speedup(1.0, ratio),
        source=Source.PREDICTED,
        bound=Bound.MEMORY,
        safe_batch_size=safe,
    )
    assert expected in said
