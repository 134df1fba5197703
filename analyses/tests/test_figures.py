from __future__ import annotations

from dataclasses import replace

import pytest

from analyses.figures import has_gain, key_figures, worth_figures
from analyses.tests.factories import make_global_batch, make_result
from engine.result import AnalysisResult, Savings, Source


def assumed(result: AnalysisResult) -> Savings:
    assert result.savings is not None
    return result.savings


def test_every_key_figure_and_card_says_where_it_comes_from() -> None:
    result = make_result()
    for figure in [*key_figures(result), *worth_figures(result)]:
        assert figure.sources
    _, cost, savings = worth_figures(result)
    assert cost.sources == savings.sources == (Source.PREDICTED, Source.ASSUMED)


def test_the_largest_batch_comes_with_the_one_that_fails() -> None:
    largest = key_figures(make_result())[0]
    safe = int(largest.value) - 16
    assert largest.note == (
        f"{int(largest.value) + 1} does not fit; {safe} fits even at the high end of the prediction"
    )
    unbounded = key_figures(make_result(next_batch_size_fails=False))[0]
    assert "was not tried" in unbounded.note


def test_the_reason_for_the_recommended_batch_is_the_true_one() -> None:
    assert "within 5 %" in key_figures(make_result())[1].note
    bounded = make_result(recommended=16, current=8)
    assert "as fast as memory safely allows" in key_figures(bounded)[1].note
    bounded = replace(bounded, global_batch=make_global_batch())
    assert "memory and the global batch allow" in key_figures(bounded)[1].note


@pytest.mark.parametrize("safe", [None, make_result().largest_batch_size])
def test_a_limit_that_is_safe_itself_needs_no_second_figure(safe: int | None) -> None:
    assert key_figures(make_result(safe_batch_size=safe))[0].note.endswith("does not fit")


def test_a_limit_that_is_not_safe_at_all_is_said_so() -> None:
    note = key_figures(make_result(safe_batch_size=0))[0].note
    assert note.endswith("at the high end of the prediction not even the smallest batch fits")


def test_headroom_is_a_share_of_the_gpu_and_never_money() -> None:
    headroom = key_figures(make_result())[2]
    assert headroom.value.endswith("GiB")
    assert "% of the GPU unused at batch 16" in headroom.note
    assert "$" not in headroom.note


def test_a_current_batch_that_does_not_fit_has_no_headroom_and_no_speedup() -> None:
    result = make_result(current=384)
    headroom, speedup, cost, savings = key_figures(result)[2], *worth_figures(result)
    assert headroom.value == "none"
    assert "batch 384 does not fit" in headroom.note
    assert speedup.value == "none"
    assert "no speed to compare with" in speedup.note
    assert (cost.value, savings.value) == ("\N{EN DASH}", "\N{EN DASH}")


def test_a_speedup_inside_the_noise_is_no_gain() -> None:
    result = make_result(current=120, recommended=128)
    assert result.speedup is not None
    assert 1 < result.speedup < 1.02
    assert not has_gain(result)
    speedup, cost, savings = worth_figures(result)
    assert speedup.value == "no gain"
    assert "inside the noise" in speedup.note
    assert "\N{RIGHTWARDS ARROW}" not in cost.value
    assert savings.value == "$0"


def test_a_smaller_recommended_batch_that_is_slower_is_not_called_noise() -> None:
    speedup = worth_figures(make_result(current=128, recommended=64))[0]
    assert speedup.value == "no gain"
    assert "saves memory, not time" in speedup.note


def test_the_recommended_batch_in_use_is_no_gain_either() -> None:
    speedup = worth_figures(make_result(current=128, recommended=128))[0]
    assert speedup.value == "no gain"
    assert "already the recommended one" in speedup.note


def test_a_gain_stays_a_gain_where_nothing_runs() -> None:
    result = make_result()
    idle = replace(assumed(result), runs_per_year=0.0, gpu_hours_per_year=0.0, usd_per_year=0.0)
    assert has_gain(replace(result, savings=idle))


def test_a_missing_step_time_is_said_and_not_guessed() -> None:
    result = make_result(speedup=None, savings=None)
    assert worth_figures(result)[0].value == "not known"


def test_savings_repeat_the_assumptions_they_rest_on() -> None:
    _, cost, savings = worth_figures(make_result())
    assert "8 GPU-hours per run today" in cost.note
    assert "per GPU-hour" in cost.note
    assert "100 runs per year" in savings.note
    assert savings.label.startswith("Potential")
