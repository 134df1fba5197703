"""Scripts that wait for an answer: limited in time and number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from analyses import services
from analyses.api import views
from analyses.models import Analysis, Status
from analyses.tests.factories import make_analysis

URL = "/api/v1/analyses/"
GOOD = {"model": "bert", "gpu": "a10", "current_batch_size": 32}


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[float]]:
    """Makes something happen while a script sleeps; returns the length of each sleep."""

    def arrange(act: Callable[[], object]) -> list[float]:
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            act()

        monkeypatch.setattr(views, "sleep", sleep)
        return slept

    return arrange


def _end_all() -> None:
    Analysis.objects.update(status=Status.FAILED, failure_code="x", failure_reason="no")


def test_submitting_and_waiting_is_one_call(
    api: APIClient, meanwhile: Callable[[Callable[[], object]], list[float]]
) -> None:
    slept = meanwhile(_end_all)
    response = api.post(f"{URL}?wait=60", GOOD, format="json")

    assert response.status_code == 201
    assert response.json()["status"] == "failed"
    assert len(slept) == 1


def test_reading_can_wait_for_the_end(
    api: APIClient, member: User, meanwhile: Callable[[Callable[[], object]], list[float]]
) -> None:
    meanwhile(_end_all)
    analysis = make_analysis(member)
    assert api.get(f"{URL}{analysis.pk}/?wait=60").json()["status"] == "failed"


def test_a_finished_analysis_is_not_waited_for(
    api: APIClient, member: User, meanwhile: Callable[[Callable[[], object]], list[float]]
) -> None:
    slept = meanwhile(_end_all)
    analysis = make_analysis(member, Status.SUCCEEDED)
    assert api.get(f"{URL}{analysis.pk}/?wait=60").json()["status"] == "succeeded"
    assert not slept


def test_when_time_is_up_the_current_state_is_returned(api: APIClient) -> None:
    response = api.post(f"{URL}?wait=0.1", GOOD, format="json")
    assert (response.status_code, response.json()["status"]) == (201, "queued")


def test_an_analysis_deleted_meanwhile_is_not_found(
    api: APIClient, member: User, meanwhile: Callable[[Callable[[], object]], list[float]]
) -> None:
    meanwhile(lambda: Analysis.objects.all().delete())
    analysis = make_analysis(member)
    assert api.get(f"{URL}{analysis.pk}/?wait=60").status_code == 404
    created = api.post(f"{URL}?wait=60", GOOD, format="json")
    assert created.status_code == 404
    assert created["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("action", ["cancel", "adopt"])
def test_an_analysis_deleted_during_an_action_is_not_found(
    api: APIClient, member: User, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    def lose(analysis: Analysis, _member: User) -> bool:
        Analysis.objects.filter(pk=analysis.pk).delete()
        return False

    monkeypatch.setattr(services, action, lose)
    analysis = make_analysis(member)
    assert api.post(f"{URL}{analysis.pk}/{action}/").status_code == 404


def test_with_too_many_waiting_it_responds_immediately(
    api: APIClient, member: User, meanwhile: Callable[[Callable[[], object]], list[float]]
) -> None:
    slept = meanwhile(_end_all)
    analysis = make_analysis(member)
    while views.seats.acquire(blocking=False):
        slept.append(0)
    try:
        assert slept
        slept_before = list(slept)
        assert api.get(f"{URL}{analysis.pk}/?wait=60").json()["status"] == "queued"
        assert slept == slept_before
    finally:
        for _ in slept_before:
            views.seats.release()


def test_a_waiting_slot_is_freed_after_an_error(meanwhile: object) -> None:
    def fail() -> bool:
        raise RuntimeError

    for _ in range(5):
        with pytest.raises(RuntimeError):
            views.wait_until(fail, 60)
    assert views.seats.acquire(blocking=False)
    views.seats.release()


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "inf", "soon", ""])
def test_an_invalid_wait_is_refused_and_nothing_is_created(api: APIClient, wait: str) -> None:
    response = api.post(f"{URL}?wait={wait}", GOOD, format="json")

    assert response.status_code == 400
    assert set(response.json()["errors"]) == {"wait"}
    assert not Analysis.objects.exists()
