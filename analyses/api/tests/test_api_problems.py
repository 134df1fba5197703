"""Every API error is in the problem details format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.test import Client
from rest_framework.test import APIClient

from analyses import services
from analyses.api.problems import KINDS
from analyses.models import Analysis, Status
from analyses.tests.factories import make_analysis, make_user

URL = "/api/v1/analyses/"


def _errors(api: APIClient, member: User) -> Iterator[tuple[int, Any]]:
    ended = make_analysis(member, Status.SUCCEEDED)
    of_another = make_analysis(make_user("alan"))
    yield 400, api.post(URL, {"model": "bort", "gpu": "a10"}, format="json")
    yield 400, api.post(URL, "{", content_type="application/json")
    yield 400, api.get(URL, {"status": "odd"})
    yield 401, APIClient().get(URL)
    yield 403, api.post(f"{URL}{of_another.pk}/cancel/")
    yield 404, api.get(f"{URL}4711/")
    yield 404, api.get("/api/v1/nowhere")
    yield 404, api.get("/api/v2/analyses/")
    yield 405, api.put(f"{URL}{ended.pk}/", {}, format="json")
    yield 406, api.get(URL, HTTP_ACCEPT="text/html")
    yield 409, api.post(f"{URL}{ended.pk}/cancel/")
    outdated = {"If-Match": '"outdated"'}
    yield 412, api.patch(f"{URL}{ended.pk}/", {"note": "x"}, format="json", headers=outdated)
    yield 413, api.post(URL, b"x" * 3_000_000, content_type="application/json")
    yield 415, api.post(URL, "model=bert", content_type="text/plain")


def test_every_error_has_a_title_and_an_instance(api: APIClient, member: User) -> None:
    for status, response in _errors(api, member):
        body = response.json()
        assert response.status_code == status == body["status"]
        assert response["Content-Type"] == "application/problem+json"
        assert body["type"] == KINDS[status].address
        assert body["title"] == KINDS[status].title
        assert body["detail"]
        assert body["instance"].startswith("/api/")


def test_each_invalid_field_has_its_messages(api: APIClient) -> None:
    body = api.post(URL, {"model": "bort", "gpu": "a11"}, format="json").json()

    assert set(body["errors"]) == {"model", "gpu"}
    assert "unknown gpu" in body["errors"]["gpu"][0]
    assert "gpu: unknown gpu" in body["detail"]


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        (f"{URL}?status=odd", 400, "Choose one of queued, running"),
        (f"{URL}?page=x", 404, "There is no such page"),
        (f"{URL}4711/", 404, "It was deleted, you have no access to it"),
    ],
)
def test_a_librarys_error_is_put_in_words(
    api: APIClient, address: str, status: int, words: str
) -> None:
    response = api.get(address)
    assert (response.status_code, words in response.json()["detail"]) == (status, True)


def test_a_body_that_is_no_json_and_a_number_out_of_bounds_are_put_in_words(
    api: APIClient,
) -> None:
    cut = api.post(URL, '{"model": ', content_type="application/json").json()["detail"]
    assert cut == "The body is not JSON: Expecting value: line 1 column 11 (char 10)."
    api.force_authenticate(make_user("root", is_staff=True))
    low = api.patch("/api/v1/lab/", {"hours_per_run": -1}, format="json").json()
    high = api.patch("/api/v1/lab/", {"hours_per_run": 1e9}, format="json").json()
    assert low["errors"] == {"hours_per_run": ["enter at least 0"]}
    assert high["errors"] == {"hours_per_run": ["enter at most 100,000"]}


def test_an_internal_error_reveals_no_internals(
    api: APIClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def break_down(*_: object, **__: object) -> Analysis:
        raise RuntimeError("secret")

    monkeypatch.setattr(services, "submit", break_down)
    api.raise_request_exception = False
    response = api.post(URL, {"model": "bert", "gpu": "a10"}, format="json")

    assert response.status_code == 500
    assert response["Content-Type"] == "application/problem+json"
    assert b"secret" not in response.content
    assert "secret" in caplog.text


def test_the_test_client_still_raises_the_exception(
    member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object, **__: object) -> Analysis:
        raise RuntimeError("seen")

    monkeypatch.setattr(services, "submit", break_down)
    client = APIClient()
    client.force_authenticate(member)
    with pytest.raises(RuntimeError, match="seen"):
        client.post(URL, {"model": "bert", "gpu": "a10"}, format="json")


def test_an_unavailable_database_is_a_503_with_retry_after(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> Analysis:
        raise OperationalError("database is locked")

    monkeypatch.setattr(services, "submit", refuse)
    response = api.post(URL, {"model": "bert", "gpu": "a10"}, format="json")

    assert response.status_code == 503
    assert response["Retry-After"] == "5"
    assert "locked" not in response.json()["detail"]


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ("/api/v1/analyses?model=bert", "/api/v1/analyses/?model=bert"),
        ("/api/v1/models", "/api/v1/models/"),
        ("/api/v1/health/", "/api/v1/health"),
    ],
)
def test_a_wrong_slash_is_redirected_with_the_same_method(
    api: APIClient, given: str, right: str
) -> None:
    response = api.post(given, {"model": "bert", "gpu": "a10"}, format="json")

    assert (response.status_code, response["Location"]) == (308, right)
    assert not Analysis.objects.exists()


def test_each_kind_of_problem_has_its_own_name() -> None:
    assert len({kind.name for kind in KINDS.values()}) == len(KINDS)


def test_pages_keep_their_own_errors(client: Client, member: User) -> None:
    client.force_login(member)
    assert client.get("/nowhere/")["Content-Type"].startswith("text/html")
