"""The lab's savings over the API, with the same totals as the page."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from analyses import services
from analyses.models import Status
from analyses.tests.factories import make_analysis, make_request, make_user, make_viewer

pytestmark = pytest.mark.database

URL = "/api/v1/savings/"


@pytest.fixture
def lab(member: User) -> list[float]:
    """An adopted analysis of the member, and another member's that is not adopted."""
    own = make_analysis(member, Status.SUCCEEDED)
    services.adopt(own, member)
    alans = make_analysis(
        make_user("alan"), Status.SUCCEEDED, request=make_request(precision="tf32")
    )
    return [own.usd_per_year or 0, alans.usd_per_year or 0]


def test_totals_are_given_overall_and_by_member(api: APIClient, lab: list[float]) -> None:
    body = api.get(URL).json()

    assert body["by"] == "member"
    assert body["totals"]["realised"]["usd_per_year"] == pytest.approx(lab[0])
    assert body["totals"]["potential"]["usd_per_year"] == pytest.approx(lab[1])
    assert body["totals"]["potential"]["sources"] == ["predicted"]
    rows = {row["value"]: row for row in body["results"]}
    assert set(rows) == {"grace", "alan"}
    assert rows["grace"]["realised"]["workloads"] == 1
    assert rows["grace"]["potential"]["workloads"] == 0
    assert body["count"] == 2


def test_the_api_takes_the_pages_selection(api: APIClient, lab: list[float]) -> None:
    body = api.get(URL, {"by": "gpu", "member": "alan", "kind": "potential"}).json()
    assert [(row["value"], row["label"]) for row in body["results"]] == [("a10", "NVIDIA A10")]
    assert body["totals"]["realised"]["workloads"] == 0


def test_the_rows_have_pages(api: APIClient, lab: list[float]) -> None:
    first = api.get(URL, {"page_size": 1}).json()
    second = api.get(first["next"]).json()
    assert first["results"] != second["results"]
    assert first["totals"] == second["totals"]


@pytest.mark.parametrize(
    "query", [{"by": "colour"}, {"kind": "odd"}, {"month": "May"}, {"member": "a\0"}]
)
def test_an_invalid_selection_is_refused(api: APIClient, query: dict[str, str]) -> None:
    response = api.get(URL, query)
    assert response.status_code == 400
    assert set(response.json()["errors"]) == set(query)


CHANGES = f"{URL}changes/"


def test_the_changes_worth_most_say_whom_to_ask(api: APIClient, lab: list[float]) -> None:
    body = api.get(CHANGES).json()

    assert body["usd_per_year"] == pytest.approx(lab[1])
    (change,) = body["results"]
    assert (change["owner"], change["change"]) == ("alan", "batch 16 to 128")
    assert (change["model"], change["gpu"]) == ("bert", "NVIDIA A10")
    assert change["mentioned"] is None


def test_a_change_is_mentioned_once_a_week(api: APIClient, lab: list[float]) -> None:
    (change,) = api.get(CHANGES).json()["results"]
    address = f"/api/v1/analyses/{change['analysis']}/mention/"
    made = api.post(address)

    assert made.status_code == 201
    assert made.json()["by"] == "grace"
    assert made.json()["usd_per_year"] == pytest.approx(lab[1])
    assert api.get(CHANGES).json()["results"][0]["mentioned"]["by"] == "grace"
    again = api.post(address)
    assert again.status_code == 409
    assert "was mentioned in the last 7 days" in again.json()["detail"]


def test_ones_own_and_adopted_analyses_cannot_be_mentioned(api: APIClient, member: User) -> None:
    own = make_analysis(member, Status.SUCCEEDED)
    theirs = make_analysis(
        make_user("alan"), Status.SUCCEEDED, request=make_request(precision="tf32")
    )
    services.adopt(theirs, theirs.owner)

    for analysis in (own, theirs):
        assert api.post(f"/api/v1/analyses/{analysis.pk}/mention/").status_code == 409


def test_a_viewer_reads_the_changes_but_mentions_none(lab: list[float]) -> None:
    api = APIClient()
    api.force_authenticate(make_viewer("vera"))
    (change,) = api.get(CHANGES).json()["results"]

    assert api.post(f"/api/v1/analyses/{change['analysis']}/mention/").status_code == 403
