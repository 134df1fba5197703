"""Scripts that wait for an answer: limited in time and number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from analyses import services
from analyses.api import views
from analyses.jobs import lease
from analyses.jobs.engine_output import Failure
from analyses.models import Analysis, Node, Query, QueryKind, Status
from analyses.tests.factories import lease_on, make_analysis, make_result
from analyses.tests.query_answers import answer_next, plan_with_answers, take_next

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


# The plan that may change a decision


def _finished(member: User) -> Analysis:
    """An analysis that a worker has finished, whose plan waits."""
    analysis = services.submit(member, GOOD)
    lease.finish(lease_on(analysis), make_result(current=32))
    return analysis


def _state(body: Any) -> tuple[list[str], bool, str | None]:
    return body["decision"]["moves"], body["decision_is_final"], body["decision_waits_for"]


def test_waiting_waits_for_the_plan_too(
    api: APIClient,
    member: User,
    node: Node,
    meanwhile: Callable[[Callable[[], object]], list[float]],
) -> None:
    slept = meanwhile(lambda: answer_next(QueryKind.PLAN, plan_with_answers()))
    address = f"{URL}{_finished(member).pk}/"
    assert _state(api.get(address).json()) == ([], False, "plan")
    assert _state(api.get(f"{address}?wait=60").json()) == (["bf16", "batch 64"], True, None)
    assert len(slept) == 1


def test_submitting_what_is_known_already_waits_for_its_plan(
    api: APIClient,
    member: User,
    node: Node,
    meanwhile: Callable[[Callable[[], object]], list[float]],
) -> None:
    _finished(member)
    meanwhile(lambda: answer_next(QueryKind.PLAN, plan_with_answers()))
    body = api.post(f"{URL}?wait=60", GOOD, format="json").json()
    assert body["answered_from"] is not None
    assert _state(body) == (["bf16", "batch 64"], True, None)


def test_when_time_is_up_the_decision_says_that_it_is_not_final(
    api: APIClient, member: User, node: Node
) -> None:
    address = f"{URL}{_finished(member).pk}/?wait=0.1"
    assert _state(api.get(address).json()) == ([], False, "plan")


def test_a_plan_without_a_worker_is_not_waited_for(
    api: APIClient, member: User, meanwhile: Callable[[Callable[[], object]], list[float]]
) -> None:
    slept = meanwhile(lambda: None)
    address = f"{URL}{_finished(member).pk}/?wait=60"
    assert _state(api.get(address).json()) == ([], False, "worker")
    assert not slept


def test_software_that_no_worker_has_is_not_waited_for(
    api: APIClient, member: User, node: Node
) -> None:
    address = f"{URL}{_finished(member).pk}/"
    wanted = "transformers=4.51.3"
    for row in (Analysis.objects.get(), Query.objects.get()):
        row.request |= {"software": wanted}
        row.save()
    assert _state(api.get(address).json()) == ([], False, "worker")
    Node.objects.update(environments={"old": {"transformers": "4.51.3"}})
    assert _state(api.get(address).json()) == ([], False, "plan")


@pytest.mark.parametrize("end", ["failed", "deleted"])
def test_without_a_plan_to_come_the_decision_is_final(
    api: APIClient,
    member: User,
    node: Node,
    meanwhile: Callable[[Callable[[], object]], list[float]],
    end: str,
) -> None:
    slept = meanwhile(lambda: None)
    analysis = _finished(member)
    taken = take_next(QueryKind.PLAN)
    if end == "failed":
        lease.finish(taken, Failure("deadline", "too long"))
    else:
        Query.objects.all().delete()
    assert _state(api.get(f"{URL}{analysis.pk}/?wait=60").json()) == ([], True, None)
    assert not slept


def test_an_adopted_decision_is_final(api: APIClient, member: User, node: Node) -> None:
    analysis = _finished(member)
    assert _state(api.post(f"{URL}{analysis.pk}/adopt/").json()) == ([], True, None)


def test_an_unfinished_analysis_has_no_final_decision(api: APIClient, member: User) -> None:
    body = api.get(f"{URL}{make_analysis(member).pk}/").json()
    assert (body["decision"], body["decision_is_final"]) == (None, False)
    assert body["decision_waits_for"] == "analysis"


def test_the_etag_changes_with_the_decision(api: APIClient, member: User, node: Node) -> None:
    address = f"{URL}{_finished(member).pk}/"
    before = api.get(address)["ETag"]
    assert api.get(address, HTTP_IF_NONE_MATCH=before).status_code == 304
    answer_next(QueryKind.PLAN, plan_with_answers())
    now = api.get(address, HTTP_IF_NONE_MATCH=before)
    assert now.status_code == 200
    assert now["ETag"] != before


def test_the_flag_alone_can_be_read(api: APIClient, member: User, node: Node) -> None:
    address = f"{URL}{_finished(member).pk}/?fields=decision_is_final,decision_waits_for"
    assert api.get(address).json() == {"decision_is_final": False, "decision_waits_for": "plan"}


def test_the_first_service_waits_for_the_plan_too(
    api: APIClient,
    member: User,
    node: Node,
    meanwhile: Callable[[Callable[[], object]], list[float]],
) -> None:
    slept = meanwhile(lambda: answer_next(QueryKind.PLAN, plan_with_answers()))
    _finished(member)
    old = {"model_name": "bert", "gpu": "a10", "current_batch_size": 32}
    body = api.post("/analyze", old, format="json").json()
    assert (body["moves"], body["decision_is_final"]) == (["bf16", "batch 64"], True)
    assert len(slept) == 1


def test_the_first_service_says_when_the_decision_is_not_final(
    api: APIClient, member: User
) -> None:
    _finished(member)  # no worker is online for its plan
    old = {"model_name": "bert", "gpu": "a10", "current_batch_size": 32}
    body = api.post("/analyze", old, format="json").json()
    assert (body["moves"], body["decision_is_final"]) == ([], False)
