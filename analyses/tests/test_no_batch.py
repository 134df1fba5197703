"""An analysis without a current batch, on every page that shows it."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from analyses.figures.settings import command_of, settings_of
from analyses.importing.document import contradictions
from analyses.models import Analysis, CountedSavings, Status
from analyses.notifications.message import of_ended
from analyses.savings.estimate import estimate_figures
from analyses.tests.factories import make_analysis, make_request, make_result
from engine.interface.request import AnalysisRequest


@pytest.fixture
def analysis(member: User) -> Analysis:
    return make_analysis(member, Status.SUCCEEDED, make_result(current=None))


def html_of(page: Client, address: str) -> str:
    response = page.get(address)
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.parametrize("address", ["/", "/history/", "/savings/"])
def test_lists_say_none_yet(page: Client, analysis: Analysis, address: str) -> None:
    html = html_of(page, address)
    assert ("none yet → " in html) == (address != "/savings/")  # which counts it for nothing
    assert ">None<" not in html


def test_its_page_compares_with_nothing(page: Client, analysis: Analysis) -> None:
    html = html_of(page, f"/{analysis.pk}/")
    assert "Current batch <code>none yet</code>" in html
    assert "there is no batch today to compare with" in html
    assert "Start with batch 128" in html
    assert "Recommended batch" in html
    assert 'tag tag-current"' not in html
    assert ">None<" not in html


def test_it_is_adopted_without_savings(page: Client, analysis: Analysis) -> None:
    page.post(f"/{analysis.pk}/adopt/")
    html = html_of(page, f"/{analysis.pk}/")
    assert "Adopted by grace on" in html
    assert "count as realised" not in html
    assert not CountedSavings.objects.exists()


def test_the_comparison_has_it_beside_others(
    page: Client, member: User, analysis: Analysis
) -> None:
    other = make_analysis(member, Status.SUCCEEDED)
    html = html_of(page, f"/compare/?ids={other.pk},{analysis.pk}")
    assert "none yet" in html
    assert "from no batch" in html


def test_the_api_and_the_export_leave_it_empty(
    api: APIClient, page: Client, analysis: Analysis
) -> None:
    sent = api.get(f"/api/v1/analyses/{analysis.pk}/").json()
    assert (sent["current_batch_size"], sent["request"]["current_batch_size"]) == (None, None)
    assert (sent["speedup"], sent["usd_per_year"]) == (None, None)
    lines = b"".join(page.get("/history/export.json").streaming_content)  # type: ignore[attr-defined]  # a stream, not typed as one
    assert json.loads(lines)[0]["current_batch_size"] is None


def test_null_over_the_api_says_so_and_left_out_is_16(api: APIClient, member: User) -> None:
    asked = {"model": "bert", "gpu": "a10"}
    none = api.post("/api/v1/analyses/", asked | {"current_batch_size": None}, format="json")
    usual = api.post("/api/v1/analyses/", asked, format="json")
    assert none.json()["current_batch_size"] is None
    assert usual.json()["current_batch_size"] == 16


def test_the_command_that_repeats_it_says_none() -> None:
    request = make_request(current_batch_size=None)
    assert "--current-batch-size none" in command_of(request)
    assert ("Current batch size", "none yet") in settings_of(request)


def test_the_message_has_its_decision(analysis: Analysis) -> None:
    assert "128 is recommended" in of_ended(analysis).text


def test_a_result_without_a_batch_belongs_to_a_request_without_one() -> None:
    none = AnalysisRequest.parse(make_request(current_batch_size=None))
    result = make_result(current=None)
    assert contradictions(none, result) == {}
    assert "result.current_batch_size" in contradictions(none, make_result())
    given = AnalysisRequest.parse(make_request())
    assert "result.current_batch_size" in contradictions(given, result)


def test_changes_are_compared_with_the_batch_to_start_with() -> None:
    over = make_result()
    start = over.trials[0]
    speedup, *_ = estimate_figures(
        make_result(current=None, speedup=2.0, speedup_low=1.8, speedup_high=2.2, today=start)
    )
    assert speedup.value == "2.0\N{MULTIPLICATION SIGN}"
    assert "batch 128 with the changes vs. batch 16 without" in speedup.note
