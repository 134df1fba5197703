"""API rate limits per member."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings
from rest_framework.test import APIClient

from analyses.api import units
from analyses.api.units import PERIOD_SECONDS, spend, spend_in_file
from analyses.tests.factories import make_user

URL = "/api/v1/analyses/"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    if connection.vendor == "postgresql":
        pytest.skip("PostgreSQL counts by its own clock")
    now = {"is": 1_000_000.0}
    monkeypatch.setattr(units, "time", lambda: now["is"])
    return now


@pytest.fixture(autouse=True)
def _ten_a_minute(settings: Settings, tmp_path: Path) -> None:
    settings.API_UNITS_PER_MINUTE = 10
    settings.DATA_DIR = tmp_path / "new"


def _until_refused(api: APIClient) -> tuple[int, Any]:
    for count in range(100):
        response = api.get("/api/v1/lab/")
        if response.status_code != 200:
            return count, response
    raise AssertionError("never refused")


def test_too_many_requests_get_a_retry_after(api: APIClient, clock: dict[str, float]) -> None:
    count, refused = _until_refused(api)

    assert count == 10
    assert refused.status_code == 429
    assert refused["Content-Type"] == "application/problem+json"
    clock["is"] += int(refused["Retry-After"]) - 1.5
    assert api.get("/api/v1/lab/").status_code == 429
    clock["is"] += 1.5
    assert api.get("/api/v1/lab/").status_code == 200


def test_after_a_minute_the_budget_is_full_again(api: APIClient, clock: dict[str, float]) -> None:
    _until_refused(api)
    clock["is"] += PERIOD_SECONDS
    assert _until_refused(api)[0] == 10


def test_members_have_separate_budgets(api: APIClient, clock: dict[str, float]) -> None:
    _until_refused(api)
    api.force_authenticate(make_user("alan"))
    assert api.get("/api/v1/lab/").status_code == 200


def test_submitting_costs_more_than_reading(api: APIClient, clock: dict[str, float]) -> None:
    good = {"model": "bert", "gpu": "a10"}
    assert api.post(URL, good, format="json").status_code == 201
    assert api.get(URL).status_code == 429


def test_a_replay_costs_as_little_as_reading(api: APIClient, clock: dict[str, float]) -> None:
    first = _submit(api, "one")
    assert first.status_code == 201
    clock["is"] += 5 * PERIOD_SECONDS / 10
    for _ in range(5):
        again = _submit(api, "one")
        assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
    assert _submit(api, "one").status_code == 429


def _submit(api: APIClient, key: str) -> Any:
    good = {"model": "bert", "gpu": "a10"}
    return api.post(URL, good, format="json", HTTP_IDEMPOTENCY_KEY=key)


def test_a_key_that_is_new_costs_a_submission(api: APIClient, clock: dict[str, float]) -> None:
    assert _submit(api, "one").status_code == 201
    clock["is"] += 5 * PERIOD_SECONDS / 10
    assert _submit(api, "two").status_code == 429


def test_without_a_rate_nothing_is_limited(api: APIClient, settings: Settings) -> None:
    settings.API_UNITS_PER_MINUTE = 0
    with pytest.raises(AssertionError, match="never refused"):
        _until_refused(api)


@pytest.mark.skipif(connection.vendor == "postgresql", reason="it counts in a table")
def test_a_full_disk_does_not_close_the_api(
    api: APIClient, settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    settings.DATA_DIR = tmp_path / "file"
    assert api.get("/api/v1/lab/").status_code == 200
    assert "cannot be counted" in caplog.text


def _spend_many(path: Path) -> int:
    return sum(spend_in_file(path, 1.0, 0.0) == 0 for _ in range(50))


def test_processes_share_the_budget(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4) as pool:
        spent = sum(pool.map(_spend_many, [tmp_path / "member"] * 4))
    assert spent == PERIOD_SECONDS


@pytest.mark.database
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite serves one machine")
@pytest.mark.django_db(transaction=True)
def test_machines_share_the_budget_in_the_database() -> None:
    member = make_user("ada").pk

    def spend_many(_: int) -> int:
        spent = sum(spend(member, 1.0) == 0 for _ in range(50))
        connection.close()
        return spent

    with ThreadPoolExecutor(4) as threads:
        spent = sum(threads.map(spend_many, range(4)))
    assert spent in (60, 61, 62, 63)  # with what the seconds that this took have given back
    assert 0 < spend(member, 10.0) <= 10


@given(
    st.lists(
        st.tuples(st.floats(0.5, 20), st.floats(-100, 100)),
        min_size=1,
        max_size=40,
    )
)
def test_a_request_is_always_allowed_after_its_wait(
    tmp_path_factory: pytest.TempPathFactory, asked: list[tuple[float, float]]
) -> None:
    path, now = tmp_path_factory.mktemp("units") / "member", 1e6
    for seconds, passed in asked:
        now += passed
        wait = spend_in_file(path, seconds, now)
        assert 0 <= wait <= seconds + 1e-6
        if wait:
            now += wait + 1e-6  # a float's resolution at this size
            assert spend_in_file(path, seconds, now) == 0
