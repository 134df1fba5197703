from __future__ import annotations

from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from analyses.models import Analysis, Status
from analyses.savings.worth import with_assumptions, worth_of
from analyses.tests.factories import make_analysis, make_result
from engine.request import Assumptions
from engine.result import AnalysisResult

HTMX = {"HX-Request": "true"}
GAIN = make_result()


def money(result: AnalysisResult) -> float:
    assert result.savings is not None
    return result.savings.usd_per_year


def of_older_version(result: AnalysisResult) -> AnalysisResult:
    return replace(result, speedup_low=None, speedup_high=None)


# Computing


@pytest.mark.parametrize("result", [GAIN, of_older_version(GAIN)])
def test_the_stored_assumptions_give_the_stored_savings(result: AnalysisResult) -> None:
    assert result.savings is not None
    again = with_assumptions(result, Assumptions()).savings
    assert again is not None
    for name, stored in vars(result.savings).items():
        assert getattr(again, name) == (stored if name == "source" else pytest.approx(stored))


@given(hours=st.floats(0.01, 1e4), runs=st.floats(0.01, 1e5), price=st.floats(0.01, 100))
def test_savings_are_in_proportion_to_each_assumption(
    hours: float, runs: float, price: float
) -> None:
    one = money(with_assumptions(GAIN, Assumptions(1.0, 1.0, 1.0)))
    many = money(with_assumptions(GAIN, Assumptions(hours, runs, price)))
    assert many == pytest.approx(one * hours * runs * price)


@pytest.mark.parametrize("recommended", [16, 17])
def test_no_assumption_makes_a_gain_of_noise(recommended: int) -> None:
    noise = make_result(recommended=recommended, speedup=1.01, speedup_low=0.99, speedup_high=1.03)
    for result in (noise, of_older_version(make_result(recommended=16))):
        assert money(with_assumptions(result, Assumptions(1e4, 1e5, 100.0))) == 0


def test_without_a_price_that_of_the_answer_holds() -> None:
    assert money(with_assumptions(GAIN, Assumptions())) == pytest.approx(money(GAIN))


def test_what_is_not_in_the_address_is_as_stored() -> None:
    worth = worth_of(GAIN, {"runs_per_year": "200", "hours_per_run": ""}, adopted=False)
    assert worth.query == "runs_per_year=200"
    assert [field.value for field in worth.fields][:2] == ["200", "8"]
    assert worth_of(GAIN, {"runs_per_year": "100.0"}, adopted=False).query == ""


@pytest.mark.parametrize("value", ["many", "-1", "nan", "1e99"])
def test_a_wrong_assumption_changes_no_figure_and_says_why(value: str) -> None:
    worth = worth_of(GAIN, {"runs_per_year": value}, adopted=False)
    assert [field.name for field in worth.wrong] == ["runs_per_year"]
    assert worth.wrong[0].error
    assert worth.figures == worth_of(GAIN, {}, adopted=False).figures


def test_without_a_speedup_there_is_nothing_to_try() -> None:
    worth = worth_of(make_result(current=384), {"runs_per_year": "2"}, adopted=False)
    assert worth.fields == []
    assert with_assumptions(make_result(current=384), Assumptions()).savings is None


# The page


@pytest.fixture
def page(client: Client, member: User) -> Client:
    client.force_login(member)
    return client


@pytest.fixture
def analysis(member: User) -> Analysis:
    return make_analysis(member, Status.SUCCEEDED)


def test_the_page_computes_with_the_assumptions_of_its_address(
    page: Client, analysis: Analysis
) -> None:
    address = reverse("analyses:detail", args=[analysis.pk])
    before = page.get(address).content.decode()
    html = page.get(address + "?runs_per_year=1000").content.decode()
    assert "over 100 runs per year" in before
    assert "over 1,000 runs per year" in html
    assert "other assumptions than the stored ones" not in before
    assert "other assumptions than the stored ones" in html
    stored = Analysis.objects.get()
    assert (stored.usd_per_year, stored.result) == (analysis.usd_per_year, analysis.result)


def test_htmx_gets_the_figures_alone_and_the_address_of_the_page(
    page: Client, analysis: Analysis
) -> None:
    address = reverse("analyses:worth", args=[analysis.pk])
    response = page.get(address + "?runs_per_year=1000&hours_per_run=8", headers=HTMX)
    html = response.content.decode()
    assert html.lstrip().startswith('<div id="worth"')
    assert "over 1,000 runs per year" in html
    assert response["HX-Replace-Url"] == f"/{analysis.pk}/?runs_per_year=1000"
    back = page.get(address + "?runs_per_year=100", headers=HTMX)
    assert back["HX-Replace-Url"] == f"/{analysis.pk}/"


def test_a_wrong_assumption_is_said(page: Client, analysis: Analysis) -> None:
    address = reverse("analyses:worth", args=[analysis.pk])
    html = page.get(address + "?runs_per_year=<b>", headers=HTMX).content.decode()
    assert "Runs per year: " in html
    assert "<b>" not in html


def test_duplicating_takes_the_assumptions_along(page: Client, analysis: Analysis) -> None:
    address = reverse("analyses:worth", args=[analysis.pk])
    html = page.get(address + "?runs_per_year=1000&price_per_hour_usd=3.5").content.decode()
    link = html.split('href="')[1].split('"')[0].replace("&amp;", "&")
    assert parse_qs(urlsplit(link).query)["runs_per_year"] == ["1000"]
    form = page.get(link).context["form"]
    values = [form[name].value() for name in ("runs_per_year", "price_per_hour_usd")]
    assert values == ["1000", "3.5"]
    assert form["hours_per_run"].value() == "8"


def test_an_analysis_without_an_answer_is_not_computed_with(page: Client, member: User) -> None:
    running = make_analysis(member, Status.RUNNING)
    response = page.get(reverse("analyses:worth", args=[running.pk]))
    assert response.status_code == 404
    assert "has no answer" in response.content.decode()
