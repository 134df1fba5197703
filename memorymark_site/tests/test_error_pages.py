"""Error pages, as the whole site answers with them: see :mod:`memorymark_site.tests.faults`."""

from __future__ import annotations

import pytest
from django import db
from django.test import Client
from pytest_django import Settings

from memorymark_site.tests.fault_statuses import STATUSES
from memorymark_site.tests.faults import RAISED

WAITS = {"away": "5", "busy": "10"}
"""Seconds in ``Retry-After``."""


@pytest.fixture
def visitor(settings: Settings) -> Client:
    """A browser with a session and the light theme. No test here may use the database."""
    settings.ROOT_URLCONF = "memorymark_site.tests.faults"
    client = Client(raise_request_exception=False)
    client.cookies["sessionid"] = "a" * 32
    client.cookies["theme"] = "light"
    return client


@pytest.mark.parametrize("name", STATUSES)
def test_an_error_is_a_page_without_the_database(visitor: Client, name: str) -> None:
    response = visitor.get(f"/faults/{name}/")
    html = response.content.decode()

    assert response.status_code == STATUSES[name]
    assert response.get("Retry-After") == WAITS.get(name)
    assert response["Content-Type"].startswith("text/html")
    assert '<html lang="en" data-theme="light">' in html
    assert 'class="card notice"' in html
    assert "secret" not in html


@pytest.mark.parametrize("name", RAISED)
def test_programs_get_it_as_a_problem(visitor: Client, name: str) -> None:
    response = visitor.get(f"/api/faults/{name}/")

    assert response["Content-Type"] == "application/problem+json"
    assert response.status_code == response.json()["status"] == STATUSES[name]
    assert response.get("Retry-After") == WAITS.get(name)
    assert "secret" not in response.content.decode()


def test_a_page_can_be_tried_again_and_a_form_leads_to_the_start(visitor: Client) -> None:
    assert 'href="/faults/away/?page=2"' in visitor.get("/faults/away/?page=2").content.decode()
    assert 'href="/faults/away/"' not in visitor.post("/faults/away/").content.decode()


def test_a_failure_names_the_request_to_look_for_in_the_log(visitor: Client) -> None:
    response = visitor.get("/faults/failure/")
    assert response["X-Request-ID"] in response.content.decode()


@pytest.mark.parametrize("address", ["/history/", "/no-such-page/"])
def test_a_database_that_is_away_before_any_view_has_the_same_page(
    visitor: Client, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    def refuse(*_: object) -> object:
        raise db.OperationalError("secret")

    monkeypatch.setattr("django.contrib.sessions.backends.db.SessionStore.load", refuse)
    response = visitor.get(address)

    assert response.status_code == 503
    assert "The database does not respond" in response.content.decode()
