from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from analyses.models import Analysis, Status
from analyses.presentation import (
    LONG_WAIT_SECONDS,
    command_of,
    gpu_name,
    has_gain,
    key_figures,
    model_name,
    settings_of,
    state_of,
    worth_figures,
)
from analyses.stored_result import read_result, trial_at
from analyses.tests.factories import make_request, make_result, make_trial
from engine.result import AnalysisResult, Savings, Source

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


def assumed(result: AnalysisResult) -> Savings:
    assert result.savings is not None
    return result.savings


def test_a_stored_result_comes_back_as_it_was() -> None:
    for result in (make_result(), make_result(current=384)):
        assert read_result(result.to_dict()) == result


def test_a_measured_trial_goes_before_a_predicted_one() -> None:
    measured = make_trial(16, source=Source.MEASURED)
    result = replace(make_result(), trials=[make_trial(16), measured], curve=[])
    assert trial_at(result, 16) == measured
    assert trial_at(result, 17) is None


def test_every_key_figure_and_card_says_where_it_comes_from() -> None:
    result = make_result()
    for figure in [*key_figures(result), *worth_figures(result)]:
        assert figure.sources
    _, cost, savings = worth_figures(result)
    assert cost.sources == savings.sources == (Source.PREDICTED, Source.ASSUMED)


def test_the_largest_batch_comes_with_the_one_that_fails() -> None:
    largest = key_figures(make_result())[0]
    assert largest.note == f"{int(largest.value) + 1} does not fit"
    unbounded = key_figures(make_result(next_batch_size_fails=False))[0]
    assert "was not tried" in unbounded.note


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


def test_settings_name_units_and_leave_out_what_does_not_apply() -> None:
    settings = dict(settings_of(make_request()))
    assert settings["Sequence length"] == "128 tokens"
    assert settings["GPU"] == "NVIDIA A10"
    assert "Image size" not in settings
    assert "Memory limit" not in settings
    limited = dict(settings_of(make_request(memory_limit_bytes=2**33, price_per_hour_usd=2)))
    assert limited["Memory limit"] == "8.00 GiB"
    assert limited["Price per GPU-hour (assumed)"] == "$2.00"


def test_names_outside_the_catalogue_stay_as_they_are() -> None:
    assert (model_name("gpt2"), model_name("acme/own")) == ("GPT-2", "acme/own")
    assert gpu_name("local") == "this lab's node"
    assert gpu_name("abacus") == "abacus"


def test_the_command_asks_the_same_question() -> None:
    command = command_of(make_request(model="resnet", image_size=64, current_batch_size=32))
    assert command.startswith("python -m engine analyze resnet --gpu a10")
    assert "--current-batch-size 32" in command
    assert "--image-size 64" in command
    assert "sequence" not in command
    assert "memory-limit" not in command
    limited = command_of(make_request(memory_limit_bytes=2**30, price_per_hour_usd=1.5))
    assert "--memory-limit 1073741824" in limited
    assert "--hours-per-run 8 --runs-per-year 100 --price-per-hour 1.5" in limited


@pytest.mark.parametrize(
    ("status", "waited", "preposition", "ticks", "hinted"),
    [
        (Status.QUEUED, 3, "for", True, False),
        (Status.QUEUED, LONG_WAIT_SECONDS + 1, "for", True, True),
        (Status.RUNNING, 60, "for", True, False),
        (Status.SUCCEEDED, 60, "in", False, False),
        (Status.FAILED, 60, "after", False, False),
    ],
)
def test_the_state_says_how_long_it_took(
    status: Status, waited: float, preposition: str, ticks: bool, hinted: bool
) -> None:
    begun = NOW - timedelta(seconds=waited)
    analysis = Analysis(status=status, queued_at=begun)
    if status != Status.QUEUED:
        analysis.started_at = begun
    if analysis.is_final:
        analysis.finished_at = begun + timedelta(seconds=5)
    state = state_of(analysis, NOW)
    assert (state.preposition, state.ticks) == (preposition, ticks)
    assert state.elapsed_seconds == (5 if analysis.is_final else waited)
    assert bool(state.hint) == hinted
