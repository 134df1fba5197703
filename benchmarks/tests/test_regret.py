"""Recommended batches are judged by what was measured at them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.regret import __main__ as command
from benchmarks.regret.judging import Shares, group, groups, judge
from benchmarks.regret.sweeps import Point, Sweep, read_zeus
from benchmarks.step_time.rows import DATA
from engine.prediction.timing.step_time import FILLED
from engine.prediction.timing.work import StepTime


def point(size: int, measured: float, predicted: float, filled: float = 1.0) -> Point:
    seconds = size / predicted
    known = dict.fromkeys(("fastest", "slowest", "ahead"), seconds)
    step = StepTime(seconds, seconds, 0.0, filled, **known)
    return Point(size, measured, step)


def sweep(*points: Point, source: str = "us") -> Sweep:
    return Sweep(source, "a model", "h100", points)


RISING = sweep(point(8, 100, 100), point(32, 150, 160), point(128, 200, 170))
"""Batch 32 is predicted to have 94% of the best speed, so it is not enough."""


def test_the_engine_decides_by_predictions_and_is_judged_by_measurements() -> None:
    found = judge(RISING)
    assert [case.current for case in found.each] == [8, 32, 128]
    assert [case.recommended for case in found.each] == [128, 128, 128]
    assert (found.to_start.recommended, found.to_start.gained) == (128, None)
    assert [case.gained for case in found.each] == [2.0, 200 / 150, 1.0]
    assert [case.changes for case in found.each] == [True, True, False]


def test_what_is_not_sure_is_kept_and_may_be_missed() -> None:
    """A batch that leaves the GPU waiting has a wide interval: 1.1 times is not enough."""
    unsure = sweep(point(8, 100, 100, filled=FILLED / 2), point(32, 150, 110))
    kept = judge(unsure)
    assert [case.recommended for case in kept.each] == [8, 32]
    found = group("all", [kept])
    assert (found.changes, found.worst, found.missed) == (0, None, 1)
    assert found.smallest.median == pytest.approx(100 / 150)


def test_a_change_that_was_slower_is_counted() -> None:
    wrong = sweep(point(8, 100, 100), point(32, 90, 200))
    found = group("all", [judge(wrong), judge(RISING)])
    assert (found.sweeps, found.decisions, found.changes) == (2, 5, 3)
    assert (found.worst, found.slower, found.missed) == (0.9, 1, 0)


def test_shares_are_one_for_each_sweep() -> None:
    found = Shares.of([1.0, 0.99, 0.9])
    assert (found.median, found.enough) == (0.99, 2)
    assert 0.9 < found.percentile_5 < 0.91


def test_sweeps_are_grouped_by_source_and_by_what_bounds_their_smallest_batch() -> None:
    same_time = sweep(point(8, 100, 100), point(32, 400, 300), source="others")
    assert same_time.host_bound
    assert not RISING.host_bound
    found = groups([judge(RISING), judge(same_time)])
    assert [(one.name, one.sweeps) for one in found] == [
        ("all", 2),
        ("us", 1),
        ("others", 1),
        ("host-bound at the smallest batch", 1),
        ("GPU-bound at the smallest batch", 1),
    ]


SPEEDS = st.floats(1.0, 1000.0)


@settings(deadline=None)
@given(
    st.lists(st.tuples(SPEEDS, SPEEDS, st.floats(0.1, 1.0)), min_size=2, max_size=6),
)
def test_no_decision_is_outside_the_sweep_or_below_what_is_kept(
    speeds: list[tuple[float, float, float]],
) -> None:
    points = [point(2 ** (3 + n), *each) for n, each in enumerate(speeds)]
    for case in judge(sweep(*points)).each:
        assert case.current is not None
        assert case.recommended in {one.batch_size for one in points}
        assert case.recommended >= case.current
        assert 0 < case.share <= 1
        assert case.changes or case.gained == 1.0


def test_zeus_has_sweeps_of_one_data_set_each() -> None:
    rows = list(read_zeus(DATA / "power.csv"))
    setups = {row.setup for row in rows}
    assert len(setups) == 6
    assert len({(row.setup, row.batch) for row in rows}) == len(rows)
    assert {row.precision for row in rows if row.gpu == "a40"} == {"tf32"}


def test_it_prints_tables_and_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "all_sweeps", lambda: [RISING])
    assert command.main([]) == 0
    assert "a model" in capsys.readouterr().out
    assert command.main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["source"] == "predicted"
    assert found["groups"][0]["smallest"]["enough"] == 1
    assert [case["current"] for case in found["sweeps"][0]["decisions"]] == [None, 8, 32, 128]
