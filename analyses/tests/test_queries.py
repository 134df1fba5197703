"""The life of a query: submitted, shared, dropped, claimed, lost, deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from analyses import queries
from analyses.jobs import lease, recovery, timeouts, unwanted
from analyses.jobs.engine_output import Failure
from analyses.models import Job, Node, Query, QueryKind, QueryStatus
from analyses.queries import predictable
from analyses.tests.factories import make_user
from analyses.tests.query_answers import take_next
from engine.core.errors import InvalidInput
from engine.events import Answer
from engine.interface.request import AnalysisRequest

pytestmark = pytest.mark.database

NODE = "lab-1"


def request_of(**fields: object) -> AnalysisRequest:
    return AnalysisRequest.parse({"model": "bert", "gpu": "a10"} | fields)


def submit(
    member: User, ask: QueryKind = QueryKind.PREDICT, *, page: bool = False, **fields: object
) -> Query:
    return queries.submit(member, ask, request_of(**fields), for_page=page)


def status_of(query: Query) -> str:
    query.refresh_from_db()
    return query.status


def age(query: Query, **columns: timedelta) -> None:
    now = timezone.now()
    Query.objects.filter(pk=query.pk).update(**{name: now - by for name, by in columns.items()})


def test_a_query_is_claimed_and_answered_once(member: User) -> None:
    query = submit(member, current_batch_size=64)
    taken = take_next()
    assert (taken.subject_id, query.request["current_batch_size"]) == (query.pk, 64)
    assert lease.claim(query.job.pk, "lab-2") is None

    lease.record_progress(taken, "tracing")
    lease.finish(taken, Answer({"trial": {}}))
    assert status_of(query) == QueryStatus.ANSWERED
    assert (query.answer, query.progress, query.node) == ({"trial": {}}, "tracing", NODE)
    with pytest.raises(lease.LeaseLost):
        lease.finish(taken, Answer({"late": True}))


@pytest.mark.parametrize("state", ["waiting", "running", "answered"])
def test_equal_queries_are_shared(member: User, state: str) -> None:
    query = submit(member)
    if state != "waiting":
        taken = take_next()
        if state == "answered":
            lease.finish(taken, Answer({}))
    other = make_user("alan")

    assert submit(other) == query
    assert set(query.askers.all()) == {member, other}
    assert Query.objects.count() == 1


def test_settings_without_effect_on_the_answer_share_a_query(member: User) -> None:
    same: dict[str, Any] = {"hours_per_run": 3, "price_per_hour_usd": 2, "batch_multiple": 8}
    assert submit(member) == submit(member, **same)
    assert submit(member, QueryKind.PLAN) != submit(member, QueryKind.PLAN, **same)
    assert submit(member) != submit(member, QueryKind.PLAN)
    assert submit(member) != submit(member, precision="tf32")


def test_queries_on_hub_models_are_not_shared(member: User) -> None:
    assert submit(member, model="someone/their-model") != submit(
        member, model="someone/their-model"
    )


@pytest.mark.parametrize("end", ["failed", "dropped"])
def test_a_query_without_an_answer_is_submitted_again(member: User, end: str) -> None:
    first = submit(member, page=True)
    if end == "failed":
        lease.finish(take_next(), Failure("failed", "no luck", {"model": "odd"}))
        assert status_of(first) == end
        assert first.failure == {"code": "failed", "reason": "no luck", "fields": {"model": "odd"}}
    else:
        submit(member, page=True, current_batch_size=5)
        assert status_of(first) == end
    assert submit(member, page=True) != first


# Dropped


def test_a_page_only_has_its_newest_prediction_waiting(member: User) -> None:
    typed = [submit(member, page=True, current_batch_size=size) for size in (1, 12, 128)]
    assert [status_of(one) for one in typed] == ["dropped", "dropped", "waiting"]
    assert take_next().subject_id == typed[-1].pk


def test_only_waiting_predictions_of_the_members_pages_are_dropped(member: User) -> None:
    running = submit(member, page=True, current_batch_size=1)
    take_next()
    kept = [
        submit(member, current_batch_size=2),  # a script's
        submit(member, QueryKind.PLAN, page=True),
        submit(make_user("alan"), page=True, current_batch_size=3),
    ]
    submit(member, page=True, current_batch_size=4)

    assert status_of(running) == QueryStatus.RUNNING
    assert {status_of(one) for one in kept} == {QueryStatus.WAITING}


def test_a_query_shared_with_another_member_is_not_dropped(member: User) -> None:
    query = submit(member, page=True)
    submit(make_user("alan"), page=True)
    submit(member, page=True, current_batch_size=4)
    assert status_of(query) == QueryStatus.WAITING


def test_a_query_shared_with_a_script_is_not_dropped(member: User) -> None:
    query = submit(member, page=True)
    submit(member)
    submit(member, page=True, current_batch_size=4)
    age(query, asked_at=timedelta(minutes=1))
    recovery.recover()
    assert status_of(query) == QueryStatus.WAITING


def test_the_query_of_a_closed_page_is_dropped(member: User) -> None:
    left, watched = submit(member, QueryKind.PLAN, page=True), submit(member, page=True)
    for query in (left, watched):
        age(query, asked_at=unwanted.WANTED_FOR + timedelta(seconds=1))
    queries.keep_alive(watched)

    recovery.recover()
    assert [status_of(left), status_of(watched)] == ["dropped", "waiting"]


# Lost


def test_a_query_whose_worker_died_is_retried_once_and_then_fails(member: User) -> None:
    query = submit(member)
    for left in (QueryStatus.WAITING, QueryStatus.FAILED):
        taken = take_next()
        silent = timezone.now() - timeouts.SILENT_AFTER - timedelta(seconds=1)
        Job.objects.update(heartbeat_at=silent)
        recovery.recover()
        assert status_of(query) == left
        with pytest.raises(lease.LeaseLost):
            lease.finish(taken, Answer({}))
        with pytest.raises(lease.LeaseLost):
            lease.record_progress(taken, "")
    assert query.failure is not None
    assert query.failure["code"] == recovery.LOST
    assert "not tried again" in query.failure["reason"]


def test_a_query_with_a_live_worker_is_left_alone(member: User) -> None:
    query = submit(member)
    take_next()
    recovery.recover()
    assert status_of(query) == QueryStatus.RUNNING


def test_a_query_requeued_by_a_stopping_worker_is_no_loss(member: User) -> None:
    query = submit(member)
    for _ in range(5):
        lease.finish(take_next(), lease.Interrupted())
    assert (status_of(query), query.job.losses) == (QueryStatus.WAITING, 0)


# Deleted


def test_answers_are_deleted_a_week_after_their_last_use(member: User) -> None:
    forgotten, asked_again = submit(member), submit(member, current_batch_size=3)
    for query in (forgotten, asked_again):
        lease.finish(take_next(), Answer({}))
        age(query, asked_at=unwanted.KEPT_FOR + timedelta(hours=1))
    submit(member, current_batch_size=3)
    recovery.recover()
    assert list(Query.objects.all()) == [asked_again]


# Who may see a query, and what it may request


def test_only_its_submitters_and_admins_see_a_query(member: User) -> None:
    query = submit(member)
    other, admin = make_user("alan"), make_user("root", is_staff=True)
    seen = {one: queries.visible_to(one).contains(query) for one in (member, other, admin)}
    assert seen == {member: True, other: False, admin: True}
    member.is_active = False
    assert not queries.visible_to(member).exists()


@pytest.mark.parametrize(
    ("gpu", "wanted", "found"),
    [
        ("NVIDIA A10", "local:NVIDIA A10", "a10"),
        ("NVIDIA A10", "local", "a10"),
        ("Some GPU", "local", None),
    ],
)
def test_a_gpu_of_the_lab_is_predicted_if_the_catalogue_has_it(
    db: None, gpu: str, wanted: str, found: str | None
) -> None:
    Node.objects.create(name=NODE, gpu_name=gpu, heartbeat_at=timezone.now())
    fields = {"model": "bert", "gpu": wanted}
    if found is None:
        with pytest.raises(InvalidInput, match="Some GPU is measured, not predicted"):
            predictable(fields)
    else:
        assert predictable(fields).gpu == found
