from __future__ import annotations

from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from analyses.formatting import Card
from analyses.models import Analysis, Status
from analyses.savings.estimate import (
    Field,
    estimate_figures,
    estimate_of,
    with_assumptions,
)
from analyses.tests.factories import make_analysis, make_result
from engine.answer.worth import has_gain
from engine.interface.assumptions import Assumptions
from engine.interface.result import AnalysisResult, Comparison, Savings
from engine.interface.trial import Source

HTMX = {"HX-Request": "true"}
GAIN = make_result()
PREDICTED, MEASURED, ASSUMED = Source.PREDICTED, Source.MEASURED, Source.ASSUMED
TWICE = Savings(
    source=PREDICTED,
    gpu_hours_per_year=400.0,
    usd_per_year=600.0,
    current_usd_per_run=12.0,
    recommended_usd_per_run=6.0,
    hours_per_run=8.0,
    runs_per_year=100.0,
    price_per_hour_usd=1.5,
)
"""At twice the speed."""
NOTHING = replace(TWICE, gpu_hours_per_year=0.0, usd_per_year=0.0, recommended_usd_per_run=12.0)


def at_speed(
    ratio: float, low: float | None, high: float | None, savings: Savings = TWICE
) -> AnalysisResult:
    return make_result(speedup=ratio, speedup_low=low, speedup_high=high, savings=savings)


def money(result: AnalysisResult) -> float:
    assert result.savings is not None
    return result.savings.usd_per_year


def of_older_version(result: AnalysisResult) -> AnalysisResult:
    savings = result.savings and replace(result.savings, energy=None)
    return replace(result, speedup_low=None, speedup_high=None, savings=savings)


# Computing


@pytest.mark.parametrize("result", [GAIN, of_older_version(GAIN)])
def test_the_stored_assumptions_give_the_stored_savings(result: AnalysisResult) -> None:
    assert result.savings is not None
    again = with_assumptions(result, Assumptions()).savings
    assert again is not None
    for name, stored in vars(result.savings).items():
        assert getattr(again, name) == (stored if name == "source" else pytest.approx(stored))


def test_energy_follows_the_assumptions() -> None:
    energy = [
        savings.energy
        for use in (Assumptions(), Assumptions(grid_co2e_grams_per_kwh=50, runs_per_year=200))
        if (savings := with_assumptions(GAIN, use).savings)
    ]
    one, other = (found for found in energy if found)
    assert other.kwh_per_year == pytest.approx(2 * one.kwh_per_year)
    assert other.kg_co2e_per_year == pytest.approx(other.kwh_per_year * 50 / 1000)
    assert other.current_watts == one.current_watts


def test_the_grid_can_be_tried_where_the_energy_is_known() -> None:
    tried = estimate_of(GAIN, {"grid_co2e_grams_per_kwh": "50"}, adopted=False)
    assert tried.query == "grid_co2e_grams_per_kwh=50"
    assert "50 g CO2e per kWh" in tried.figures[-1].note
    assert GAIN.savings is not None
    unknown = replace(GAIN, savings=replace(GAIN.savings, energy=None))
    fields = [field.name for field in estimate_of(unknown, {}, adopted=False).fields]
    assert "grid_co2e_grams_per_kwh" not in fields


@given(hours=st.floats(0.01, 1e4), runs=st.floats(0.01, 1e5), price=st.floats(0.01, 100))
def test_savings_are_in_proportion_to_each_assumption(
    hours: float, runs: float, price: float
) -> None:
    one = money(with_assumptions(GAIN, Assumptions(1.0, 1.0, 1.0)))
    many = money(with_assumptions(GAIN, Assumptions(hours, runs, price)))
    assert many == pytest.approx(one * hours * runs * price)


@pytest.mark.parametrize("recommended", [16, 17])
def test_no_assumption_turns_noise_into_a_gain(recommended: int) -> None:
    noise = make_result(recommended=recommended, speedup=1.01, speedup_low=0.99, speedup_high=1.03)
    older = of_older_version(make_result(recommended=16))
    for result in (noise, older, at_speed(1.5, None, None, NOTHING)):
        assert money(with_assumptions(result, Assumptions(1e4, 1e5, 100.0))) == 0


def test_without_a_price_the_results_price_applies() -> None:
    assert money(with_assumptions(GAIN, Assumptions())) == pytest.approx(money(GAIN))


def test_assumptions_missing_from_the_address_are_as_stored() -> None:
    estimate = estimate_of(GAIN, {"runs_per_year": "200", "hours_per_run": ""}, adopted=False)
    assert estimate.query == "runs_per_year=200"
    assert [field.value for field in estimate.fields][:2] == ["200", "8"]
    assert estimate_of(GAIN, {"runs_per_year": "100.0"}, adopted=False).query == ""


@pytest.mark.parametrize("value", ["many", "-1", "nan", "1e99"])
def test_an_invalid_assumption_changes_nothing_and_says_why(value: str) -> None:
    estimate = estimate_of(GAIN, {"runs_per_year": value}, adopted=False)
    assert [field.name for field in estimate.wrong] == ["runs_per_year"]
    assert estimate.wrong[0].error
    assert estimate.figures == estimate_of(GAIN, {}, adopted=False).figures


def test_without_a_speedup_assumptions_cannot_be_changed() -> None:
    estimate = estimate_of(make_result(current=384), {"runs_per_year": "2"}, adopted=False)
    assert estimate.fields == []
    assert with_assumptions(make_result(current=384), Assumptions()).savings is None


@pytest.mark.parametrize("result", [replace(GAIN, savings=None), replace(GAIN, speedup=None)])
def test_a_result_without_savings_or_speedup_stays_unchanged(result: AnalysisResult) -> None:
    assert with_assumptions(result, Assumptions(1.0, 1.0, 1.0)) is result


def test_changed_assumptions_are_in_the_query_and_the_numbers() -> None:
    result = at_speed(2.0, 1.9, 2.1)
    query = {"runs_per_year": "50", "hours_per_run": "16", "price_per_hour_usd": "1.5"}
    estimate = estimate_of(result, query, adopted=False)
    assert estimate.query == "runs_per_year=50&hours_per_run=16"
    assert estimate.fields == [
        Field("runs_per_year", "Runs per year", "50", ""),
        Field("hours_per_run", "GPU-hours per run today", "16", ""),
        Field("price_per_hour_usd", "USD per GPU-hour", "1.5", ""),
    ]
    assert estimate.wrong == []
    _, cost, saved = estimate.figures
    assert cost.value == "$24.00 → $12.00"
    assert (saved.value, saved.note) == (
        "$600",
        "$568 to $629; 400 GPU-hours over 50 runs per year",
    )
    assert estimate_of(result, {"price_per_hour_usd": "3"}, adopted=False).figures[2].value == (
        "$1,200"
    )


def test_without_a_change_the_numbers_are_the_stored_ones() -> None:
    """Even those that a later version would compute differently."""
    result = at_speed(4.0, 3.9, 4.1)
    for query in ({}, {"runs_per_year": "100"}):
        assert estimate_of(result, query, adopted=False).figures == estimate_figures(result)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (at_speed(1.5, 1.001, 2.0), True),
        (at_speed(1.5, 1.0, 2.0), False),  # it may be none
        (at_speed(1.5, 0.9, 2.0), False),
        (replace(GAIN, speedup=None), False),
        (replace(GAIN, savings=None), True),  # over a batch that nobody has trained with
        (replace(GAIN, savings=None, speedup_low=None), False),  # of an older version
    ],
)
def test_a_gain_needs_the_whole_interval_above_one(result: AnalysisResult, expected: bool) -> None:
    assert has_gain(result) is expected


@pytest.mark.parametrize(
    ("ratio", "gpu_hours", "hours_per_run", "runs_per_year", "expected"),
    [
        (1.5, 0.5, 8.0, 100.0, True),  # it has hours
        (1.5, 0.0, 8.0, 100.0, False),  # it treated the speedup as noise
        (1.5, 0.0, 8.0, 8.0, False),
        (1.5, 0.0, 0.5, 2.0, False),
        (1.5, 0.0, 0.0, 100.0, True),  # there were no runs
        (1.5, 0.0, 8.0, 0.0, True),
        (1.0, 0.5, 8.0, 100.0, False),
        (0.9, 0.5, 8.0, 100.0, False),
        (1.0, 0.0, 0.0, 0.0, False),
    ],
)
def test_an_older_results_savings_show_whether_it_had_a_gain(
    ratio: float, gpu_hours: float, hours_per_run: float, runs_per_year: float, expected: bool
) -> None:
    savings = replace(
        TWICE,
        gpu_hours_per_year=gpu_hours,
        hours_per_run=hours_per_run,
        runs_per_year=runs_per_year,
    )
    assert has_gain(at_speed(ratio, None, None, savings)) is expected


# The numbers


def speedup_of(result: AnalysisResult) -> tuple[str, str, str]:
    figure = estimate_figures(result)[0]
    assert figure.label == "Speedup"
    return figure.value, figure.note, figure.tone


@pytest.mark.parametrize(
    ("result", "value", "note", "tone"),
    [
        (at_speed(2.0, 1.9, 2.1), "2.0×", "throughput at 128 vs. 16, range 1.90–2.1×", "good"),
        (at_speed(2.0, None, None), "2.0×", "throughput at 128 vs. 16", "good"),
        (at_speed(2.0, 1.9, None), "2.0×", "throughput at 128 vs. 16", "good"),
        (at_speed(2.0, None, 2.1), "2.0×", "throughput at 128 vs. 16", "good"),
        (
            at_speed(1.01, 0.99, 1.03, NOTHING),
            "no gain",
            "1.01× at 128 vs. 16 is within the noise, range 0.99–1.03×",
            "quiet",
        ),
        (
            at_speed(1.1, 0.96, 1.26, NOTHING),
            "probably 1.10×",
            "128 vs. 16, range 0.96–1.26×; two short runs would tell",
            "quiet",
        ),
        (
            at_speed(1.0, 0.98, 1.02, NOTHING),
            "no gain",
            "1.00× at 128 vs. 16 is within the noise, range 0.98–1.02×",
            "quiet",
        ),
        (
            at_speed(0.9, 0.88, 0.92, NOTHING),
            "no gain",
            "batch 128 saves memory, not time: 0.90× the speed",
            "quiet",
        ),
        (
            make_result(current=1024, recommended=1024, current_headroom_bytes=1, speedup=1.0),
            "no gain",
            "batch 1,024 is already the recommended one",
            "quiet",
        ),
        (make_result(speedup=None), "not known", "no step times", "quiet"),
        (
            make_result(current=384),
            "none",
            "batch 384 does not fit, so there is no speed to compare with",
            "quiet",
        ),
    ],
)
def test_the_speedup_is_explained_even_if_missing(
    result: AnalysisResult, value: str, note: str, tone: str
) -> None:
    assert speedup_of(result) == (value, note, tone)


def test_a_measured_speedup_shows_its_rounds() -> None:
    result = replace(
        at_speed(2.0, 1.9, 2.1), comparison=Comparison([1.0, 1.0, 1.0], [2.0, 1.9, 2.1], 0.75)
    )
    _, note, _ = speedup_of(result)
    assert note.endswith(", range 1.90–2.1× over 3 interleaved rounds")


def test_sources_come_from_the_savings_or_else_from_the_result() -> None:
    saved = replace(at_speed(2.0, 1.9, 2.1), savings=replace(TWICE, source=MEASURED))
    assert saved.source == PREDICTED
    assert [figure.sources for figure in estimate_figures(saved)] == [
        (MEASURED,),
        (MEASURED, ASSUMED),
        (MEASURED, ASSUMED),
    ]
    without = make_result(current=384, source=MEASURED)
    assert [figure.sources for figure in estimate_figures(without)] == [(MEASURED,), (), ()]


def test_cost_and_savings_show_their_assumptions() -> None:
    _, cost, saved = estimate_figures(at_speed(2.0, 1.9, 2.1))
    assert cost == Card(
        "Cost per run",
        "$12.00 → $6.00",
        "8 GPU-hours per run today, at $1.50 per GPU-hour",
        (PREDICTED, ASSUMED),
    )
    assert saved == Card(
        "Potential savings per year",
        "$600",
        "$568 to $629; 400 GPU-hours over 100 runs per year",
        (PREDICTED, ASSUMED),
        tone="good",
    )


def test_without_savings_the_cost_is_shown_without_emphasis() -> None:
    _, cost, saved = estimate_figures(at_speed(1.01, 0.99, 1.03, NOTHING))
    assert cost.value == "$12.00"
    assert (saved.value, saved.tone) == ("$0", "quiet")
    little = replace(TWICE, usd_per_year=0.5)
    assert estimate_figures(at_speed(2.0, 1.9, 2.1, little))[2].tone == "good"


@pytest.mark.parametrize("result", [at_speed(2.0, 1.9, 2.1), make_result(current=384)])
def test_adopted_savings_are_realised(result: AnalysisResult) -> None:
    def labels(**adopted: bool) -> list[str]:
        return [figure.label for figure in estimate_figures(result, **adopted)]

    potential = ["Speedup", "Cost per run", "Potential savings per year"]
    realised = ["Speedup", "Cost per run", "Realised savings per year"]
    assert labels() == labels(adopted=False) == potential
    assert labels(adopted=True) == realised
    for adopted, expected in ((False, potential), (True, realised)):
        shown = estimate_of(result, {}, adopted=adopted).figures
        assert [figure.label for figure in shown] == expected


def test_missing_savings_are_shown_without_emphasis() -> None:
    _, *nothing = estimate_figures(make_result(current=384))
    assert {(figure.value, figure.tone) for figure in nothing} == {("–", "quiet")}
    assert {figure.note for figure in nothing} == {"without a speedup there is nothing to compare"}


# The page


def test_the_page_uses_the_assumptions_in_its_address(page: Client, analysis: Analysis) -> None:
    address = reverse("analyses:detail", args=[analysis.pk])
    before = page.get(address).content.decode()
    html = page.get(address + "?runs_per_year=1000").content.decode()
    assert "over 100 runs per year" in before
    assert "over 1,000 runs per year" in html
    assert "These numbers use your assumptions" not in before
    assert "These numbers use your assumptions" in html
    stored = Analysis.objects.get()
    assert (stored.usd_per_year, stored.result) == (analysis.usd_per_year, analysis.result)


def test_htmx_only_gets_the_numbers_and_the_pages_address(page: Client, analysis: Analysis) -> None:
    address = reverse("analyses:estimate", args=[analysis.pk])
    response = page.get(address + "?runs_per_year=1000&hours_per_run=8", headers=HTMX)
    html = response.content.decode()
    assert html.lstrip().startswith('<div id="estimate"')
    assert "over 1,000 runs per year" in html
    assert response["HX-Replace-Url"] == f"/{analysis.pk}/?runs_per_year=1000"
    back = page.get(address + "?runs_per_year=100", headers=HTMX)
    assert back["HX-Replace-Url"] == f"/{analysis.pk}/"


def test_an_invalid_assumption_is_reported(page: Client, analysis: Analysis) -> None:
    address = reverse("analyses:estimate", args=[analysis.pk])
    html = page.get(address + "?runs_per_year=<b>", headers=HTMX).content.decode()
    assert "Runs per year: " in html
    assert "<b>" not in html


def test_duplicating_keeps_the_assumptions(page: Client, analysis: Analysis) -> None:
    address = reverse("analyses:estimate", args=[analysis.pk])
    html = page.get(address + "?runs_per_year=1000&price_per_hour_usd=3.5").content.decode()
    link = html.split('href="')[1].split('"')[0].replace("&amp;", "&")
    assert parse_qs(urlsplit(link).query)["runs_per_year"] == ["1000"]
    form = page.get(link).context["form"]
    values = [form[name].value() for name in ("runs_per_year", "price_per_hour_usd")]
    assert values == ["1000", "3.5"]
    assert form["hours_per_run"].value() == "8"


def test_an_analysis_without_a_result_has_no_estimate(page: Client, member: User) -> None:
    running = make_analysis(member, Status.RUNNING)
    response = page.get(reverse("analyses:estimate", args=[running.pk]))
    assert response.status_code == 404
    assert "has no answer" in response.content.decode()
