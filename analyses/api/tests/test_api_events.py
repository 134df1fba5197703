"""Following an analysis: its trials and its events as they come."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.test import APIClient

from analyses.api import events, views
from analyses.models import Analysis, Status
from analyses.tests.factories import add_log, add_trial, make_analysis, make_trial, make_user

pytestmark = pytest.mark.database

URL = "/api/v1/analyses/"


def _events(api: APIClient, analysis: Analysis, after: str = "", **query: str) -> dict[str, Any]:
    response = api.get(f"{URL}{analysis.pk}/events/", {"after": after} | query)
    assert response.status_code == 200, response.json()
    body: dict[str, Any] = response.json()
    return body


def _kinds(body: dict[str, Any]) -> list[str]:
    return [event["kind"] for event in body["results"]]


def _end(analysis: Analysis) -> None:
    Analysis.objects.filter(pk=analysis.pk).update(
        status=Status.SUCCEEDED, finished_at=timezone.now()
    )


def test_each_event_comes_once_and_the_end_comes_last(api: APIClient, member: User) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    add_log(analysis, "tracing")
    first = _events(api, analysis)
    add_trial(analysis, make_trial(16))
    add_log(analysis, "batch 16 fits")
    second = _events(api, analysis, first["cursor"])
    add_log(analysis, "done")
    _end(analysis)
    last = _events(api, analysis, second["cursor"])
    after_all = _events(api, analysis, last["cursor"])

    assert _kinds(first) == ["status", "log"]
    assert first["results"][0]["status"] == "running"
    assert (_kinds(second), second["is_final"]) == (["trial", "log"], False)
    assert second["results"][0]["trial"]["batch_size"] == 16
    assert (_kinds(last), last["is_final"]) == (["log", "status"], True)
    assert last["results"][-1]["status"] == "succeeded"
    assert (after_all["results"], after_all["is_final"]) == ([], True)


def test_without_news_there_are_no_events(api: APIClient, member: User) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    cursor = _events(api, analysis)["cursor"]
    assert _events(api, analysis, cursor) == {"results": [], "cursor": cursor, "is_final": False}


def test_a_request_can_wait_for_new_events(
    api: APIClient, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    cursor = _events(api, analysis)["cursor"]
    monkeypatch.setattr(views, "sleep", lambda _: add_log(analysis, "here"))

    assert _kinds(_events(api, analysis, cursor, wait="60")) == ["log"]


def test_many_events_are_split_and_none_is_lost(
    api: APIClient, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_EVENTS", 3)
    analysis = make_analysis(member, Status.RUNNING)
    add_log(analysis, *(f"line {number}" for number in range(7)))
    _end(analysis)
    seen: list[dict[str, Any]] = []
    body: dict[str, Any] = {"cursor": "", "is_final": False}
    while not body["is_final"]:
        body = _events(api, analysis, body["cursor"])
        seen += body["results"]

    said = [event["message"] for event in seen if event["kind"] == "log"]
    assert said == [f"line {number}" for number in range(7)]
    assert [event["kind"] for event in seen].count("status") == 1
    assert seen[-1]["status"] == "succeeded"


@pytest.mark.parametrize("status", [Status.QUEUED, Status.CANCELLING, Status.CANCELLED])
def test_every_status_is_an_event(api: APIClient, member: User, status: Status) -> None:
    (event,) = _events(api, make_analysis(member, status))["results"]
    assert (event["kind"], event["status"]) == ("status", status)
    assert event["at"]


@pytest.mark.parametrize("cursor", ["x", "é", "MQ==", "LTEuMC4=", "MC4xZTk5OS4="])
def test_an_invalid_cursor_is_refused(api: APIClient, member: User, cursor: str) -> None:
    analysis = make_analysis(member)
    response = api.get(f"{URL}{analysis.pk}/events/", {"after": cursor})
    assert response.status_code == 400
    assert set(response.json()["errors"]) == {"after"}


def test_the_trials_can_be_read_alone(api: APIClient, member: User) -> None:
    analysis = make_analysis(make_user("alan"), Status.SUCCEEDED)
    trials = api.get(f"{URL}{analysis.pk}/trials/").json()["results"]
    whole = api.get(f"{URL}{analysis.pk}/").json()["trials"]
    assert trials == whole


@pytest.mark.parametrize("part", ["events", "trials"])
def test_a_missing_analysis_has_no_events(api: APIClient, part: str) -> None:
    assert api.get(f"{URL}4711/{part}/").status_code == 404
