from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.power import (
    WAITS_FOR_DATA,
    Rule,
    Run,
    fit,
    interval,
    left_out,
    ratios,
    read_runs,
    report,
)
from engine.answer import energy

RUNS = read_runs()
FITTED = [run for run in RUNS if run.network not in WAITS_FOR_DATA]


def test_every_sweep_has_one_fastest_batch_and_no_gpu_exceeds_its_limit_by_much() -> None:
    for sweep in {run.sweep for run in RUNS}:
        assert max(run.load for run in RUNS if run.sweep == sweep) == 1
    assert 0 < min(run.share for run in RUNS) < max(run.share for run in RUNS) < 1.01


def test_the_engine_uses_the_fitted_rule_and_its_residuals() -> None:
    rule = fit(FITTED)
    fitted = (round(rule.idle, 3), round(rule.busy, 3), rule.load)
    assert fitted == (energy.IDLE_SHARE, energy.BUSY_SHARE, energy.BUSY_LOAD)
    splits = [
        left_out(FITTED, rule.load, lambda run: run.network),
        left_out(FITTED, rule.load, lambda run: run.gpu),
    ]
    power = [run.share / other.share(run.load) for pairs in splits for run, other in pairs]
    assert interval(power) == pytest.approx(energy.POWER_RANGE, abs=0.005)
    for alike, expected in ((True, energy.RATIO_RANGE), (False, energy.RATIO_RANGE_UNLIKE)):
        found = [ratio for pairs in splits for ratio in ratios(pairs, alike=alike)]
        assert interval(found) == pytest.approx(expected, abs=0.005)


@given(st.floats(0.05, 0.4), st.floats(0.5, 1.0), st.integers(3, 10))
def test_the_fit_finds_the_rule_that_made_the_runs(idle: float, busy: float, tenths: int) -> None:
    made = Rule(idle, busy, tenths / 10)
    loads = [step / 40 for step in range(1, 41)]
    runs = [Run("gpu", "net", (), size, load, made.share(load)) for size, load in enumerate(loads)]
    found = fit(runs)
    assert found.load == made.load
    assert (found.idle, found.busy) == pytest.approx((idle, busy))


def test_what_is_left_out_does_not_take_part_in_its_rule() -> None:
    odd = Run("odd", "net", ("odd",), 8, 1.0, 0.01)
    rules = dict(left_out([*FITTED, odd], 0.7, lambda run: run.gpu))
    assert rules[odd] == fit(FITTED, 0.7)


def test_the_report_names_the_error_of_each_gpu() -> None:
    text = report(RUNS)
    assert all(f"| {gpu} |" in text for gpu in ("a40", "p100", "rtx6000", "v100"))
    assert "| waits for data, not fitted | 52 |" in text
