from __future__ import annotations

import pytest
from django.db import OperationalError
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from memorymark_site import probes

pytestmark = pytest.mark.database


@pytest.mark.parametrize("address", ["/live", "/ready"])
def test_probes_need_no_login_and_are_not_cached(client: Client, db: None, address: str) -> None:
    response = client.get(address)
    assert response.status_code == 200
    assert response.json()["status"] == "ok"
    assert "no-store" in response["Cache-Control"]


@pytest.mark.parametrize("address", ["/live", "/ready", "/health", "/metrics"])
def test_another_method_of_a_probe_is_not_a_form_that_has_expired(db: None, address: str) -> None:
    response = Client(enforce_csrf_checks=True).post(address)
    assert response.status_code == 405
    assert "GET" in response["Allow"]


def test_live_makes_no_queries(client: Client) -> None:
    """No ``db`` mark: any query would fail this test."""
    client.cookies["sessionid"] = "a" * 32
    assert client.get("/live").status_code == 200


def test_ready_makes_few_queries(
    client: Client, db: None, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    client.get("/ready")
    with django_assert_max_num_queries(2):  # on PostgreSQL one query lists the tables
        assert client.get("/ready").status_code == 200


def test_the_site_is_not_ready_before_the_database_is_migrated(client: Client, db: None) -> None:
    recorder = MigrationRecorder.Migration.objects.filter(app="analyses", name="0001_initial")
    recorder.delete()
    response = client.get("/ready")
    assert response.status_code == 503
    assert response.json()["problems"] == [
        "1 migrations are not applied; run: python manage.py migrate"
    ]
    assert client.get("/live").status_code == 200


def test_a_newer_database_does_no_harm(client: Client, db: None) -> None:
    """In an upgrade the first machine migrates, and the others still run the older version."""
    MigrationRecorder.Migration.objects.create(app="analyses", name="9999_tomorrow")
    assert client.get("/ready").status_code == 200


def test_the_site_is_not_ready_while_the_database_is_down(
    client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Down:
        vendor = "sqlite"

        def close(self) -> None:
            """Does nothing, in place of a connection."""

    def refuse(_connection: object) -> None:
        raise OperationalError("could not connect to postgres://user:secret@host")

    monkeypatch.setattr(probes, "connection", Down())
    monkeypatch.setattr(probes, "MigrationRecorder", refuse)
    response = client.get("/ready")
    assert response.status_code == 503
    assert response.json()["problems"] == ["the database does not respond"]
    assert b"secret" not in response.content
