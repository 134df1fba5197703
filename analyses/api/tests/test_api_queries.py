"""Queries over the REST API."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from analyses.api import views
from analyses.jobs import lease
from analyses.jobs.engine_output import Failure
from analyses.models import Query, QueryKind
from analyses.tests.factories import make_user
from analyses.tests.query_answers import answer_next, make_plan, make_prediction, take_next

pytestmark = pytest.mark.database

PREDICT, PLAN = "/api/v1/predict/", "/api/v1/plan/"
GOOD = {"model": "bert", "gpu": "a10", "current_batch_size": 32}


@pytest.fixture
def api(member: User) -> APIClient:
    client = APIClient()
    client.force_authenticate(member)
    return client


def while_it_waits(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """Runs a function while a script waits."""

    monkeypatch.setattr(views, "sleep", lambda _seconds: act())


@pytest.mark.parametrize(
    ("url", "ask", "body"),
    [(PREDICT, QueryKind.PREDICT, make_prediction(32)), (PLAN, QueryKind.PLAN, make_plan())],
)
def test_a_script_can_wait_for_the_answer(
    api: APIClient, monkeypatch: pytest.MonkeyPatch, url: str, ask: QueryKind, body: dict[str, Any]
) -> None:
    while_it_waits(monkeypatch, lambda: answer_next(ask, body))
    response = api.post(url, GOOD, format="json")

    assert response.status_code == 200
    answer = response.json()
    assert (answer["ask"], answer["status"], answer["source"]) == (ask, "answered", "predicted")
    assert answer["answer"] == body
    assert api.get(response["Location"]).json() == answer


def test_an_unfinished_answer_can_be_read_later(api: APIClient) -> None:
    response = api.post(f"{PREDICT}?wait=0", GOOD, format="json")
    assert response.status_code == 202
    assert response["Location"] == response.json()["url"]
    answer_next(QueryKind.PREDICT, make_prediction(32))
    assert api.get(response["Location"]).json()["status"] == "answered"
    assert api.post(PREDICT, GOOD, format="json").status_code == 200


def test_a_request_waits_no_longer_than_requested(api: APIClient) -> None:
    assert api.post(f"{PREDICT}?wait=0.1", GOOD, format="json").status_code == 202


def test_waiting_scripts_leave_threads_for_the_pages(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never() -> None:
        raise AssertionError("it waited")

    while_it_waits(monkeypatch, never)
    taken = [views.seats.acquire(blocking=False) for _ in range(2)]
    try:
        assert api.post(PREDICT, GOOD, format="json").status_code == 202
    finally:
        for _ in taken:
            views.seats.release()


def test_each_invalid_field_has_a_message(api: APIClient) -> None:
    response = api.post(PREDICT, {"gpu": "a10", "current_batch_size": 0}, format="json")
    assert response.status_code == 400
    assert set(response.json()["errors"]) == {"model", "current_batch_size"}
    assert not Query.objects.exists()


def test_invalid_fields_found_by_the_engine_are_reported_too(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        lease.finish(
            take_next(), Failure("invalid_input", "x", {"model": "the hub does not have it"})
        )

    while_it_waits(monkeypatch, refuse)
    response = api.post(PREDICT, GOOD | {"model": "someone/none"}, format="json")
    assert response.status_code == 400
    assert response.json()["errors"] == {"model": ["the hub does not have it"]}


def test_any_other_failure_is_an_answer_with_a_reason(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        lease.finish(take_next(), Failure("deadline", "No answer within 60 seconds"))

    while_it_waits(monkeypatch, fail)
    response = api.post(PREDICT, GOOD, format="json")
    assert response.status_code == 200
    assert response.json()["failure"]["reason"] == "No answer within 60 seconds"


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "soon", ""])
def test_an_invalid_wait_is_refused(api: APIClient, wait: str) -> None:
    response = api.post(f"{PREDICT}?wait={wait}", GOOD, format="json")
    assert response.status_code == 400
    assert set(response.json()["errors"]) == {"wait"}


def test_a_list_is_not_a_request(api: APIClient) -> None:
    assert api.post(PREDICT, [1], format="json").status_code == 400


def test_only_its_submitter_can_read_a_query(api: APIClient) -> None:
    address = api.post(f"{PREDICT}?wait=0", GOOD, format="json")["Location"]
    for name, is_staff, status in (("alan", False, 404), ("root", True, 200)):
        api.force_authenticate(make_user(name, is_staff=is_staff))
        assert api.get(address).status_code == status


def test_queries_require_authentication(db: None) -> None:
    assert APIClient().post(PREDICT, GOOD, format="json").status_code == 401
    assert not Query.objects.exists()
