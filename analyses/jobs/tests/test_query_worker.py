"""Workers with queries: each query gets an answer or a reason."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from pytest_django import Settings

from analyses import queries
from analyses.jobs import engine_session, lease, nodes, queue, unwanted, worker
from analyses.jobs.engine_output import Failure
from analyses.jobs.environments import OWN
from analyses.lab.settings import set_price
from analyses.models import Job, Query, QueryKind, QueryStatus
from analyses.tests.query_answers import take_next
from engine.interface.request import AnalysisRequest

pytestmark = pytest.mark.database

Behave = Callable[[str], list[str]]


def submit(member: User, kind: QueryKind = QueryKind.PREDICT, **fields: object) -> Query:
    request = AnalysisRequest.parse({"model": "bert", "gpu": "a10"} | fields)
    return queries.submit(member, kind, request)


def work(query: Query) -> Query:
    worker.run(query.job.pk)
    query.refresh_from_db()
    return query


def failure_of(query: Query) -> dict[str, Any]:
    assert query.status == QueryStatus.FAILED
    failure: dict[str, Any] = query.failure or {}
    return failure


def engine_pid() -> int:
    warm = worker.engines._warm.get(OWN)
    assert warm is not None
    return warm.pid


def test_one_engine_answers_one_query_after_another(member: User, fake_engine: Behave) -> None:
    fake_engine("query")
    worker.keep_warm()
    pids = {engine_pid()}
    for size in (3, 4):
        query = work(submit(member, current_batch_size=size))
        assert (query.status, query.answer) == (QueryStatus.ANSWERED, {"batch_size": size})
        assert (query.node, query.progress) == (nodes.here().name, "working on predict")
        pids.add(engine_pid())
    assert len(pids) == 1


def test_an_engine_that_has_made_a_plan_is_not_kept(member: User, fake_engine: Behave) -> None:
    fake_engine("query")
    worker.keep_warm()
    before = engine_pid()
    assert work(submit(member, QueryKind.PLAN)).status == QueryStatus.ANSWERED
    assert engine_pid() != before


def test_the_engine_s_reason_is_stored_and_the_engine_kept(
    member: User, fake_engine: Behave
) -> None:
    fake_engine("wrong")
    worker.keep_warm()
    before = engine_pid()
    assert failure_of(work(submit(member)))["fields"] == {"config": "there is none"}
    assert engine_pid() == before


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [("crash", "ended with status 3"), ("dead", "cannot start")],
)
def test_a_dead_engine_fails_its_query_and_the_next_gets_a_new_engine(
    member: User, fake_engine: Behave, behaviour: str, reason: str
) -> None:
    fake_engine(behaviour)
    failure = failure_of(work(submit(member)))
    assert failure["code"] == "crashed"
    assert reason in failure["reason"]

    worker.engines.close()
    fake_engine("query")
    assert work(submit(member)).status == QueryStatus.ANSWERED


def test_a_query_whose_engine_is_killed_is_tried_once_more(
    member: User, fake_engine: Behave
) -> None:
    fake_engine("killed")
    query = work(submit(member))
    assert query.status == QueryStatus.WAITING
    failure = failure_of(work(query))
    assert failure["code"] == "killed"
    assert "signal 9" in failure["reason"]


@pytest.mark.longer
def test_a_query_that_takes_too_long_fails_and_its_engine_is_ended(
    member: User, fake_engine: Behave, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.QUERY_DEADLINE_SECONDS = {"predict": 0.3}
    monkeypatch.setattr("analyses.jobs.engine_process.TERM_GRACE_SECONDS", 0.2)
    fake_engine("hang")
    worker.keep_warm()
    pid = engine_pid()
    failure = failure_of(work(submit(member)))
    assert failure["code"] == "deadline"
    assert "No answer within 0.3 seconds" in failure["reason"]
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize(
    ("kind", "advice"),
    [(QueryKind.PREDICT, "An analysis has more time"), (QueryKind.PLAN, "Try again once")],
)
def test_a_late_query_says_what_helps(member: User, kind: QueryKind, advice: str) -> None:
    submit(member, kind)
    assert advice in engine_session.asked_of(take_next(kind)).advice


def test_a_plan_is_made_at_the_labs_prices_and_anew_once_they_change(
    member: User, admin: User
) -> None:
    first = submit(member, QueryKind.PLAN)
    set_price(admin, "h100", 0.25)
    second = submit(member, QueryKind.PLAN)
    assert first.request_hash != second.request_hash
    set_price(admin, "a10", 0.5)  # a single prediction costs nothing
    assert submit(member) == submit(member)
    take_next(QueryKind.PLAN)
    asked = engine_session.asked_of(take_next(QueryKind.PLAN)).request
    assert asked["prices"]["h100"] == 0.25  # type: ignore[index]  # JSON


def test_an_engine_that_cannot_be_started_fails_the_query(member: User, settings: Settings) -> None:
    settings.ENGINE_COMMAND = ["/nowhere/python"]
    assert "/nowhere/python" in failure_of(work(submit(member)))["reason"]


def test_a_stopping_worker_requeues_its_query(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping = threading.Event()
    monkeypatch.setattr("analyses.jobs.engine_process.TERM_GRACE_SECONDS", 0.2)
    monkeypatch.setattr(worker, "_stopping", stopping)
    follow = engine_session.follow

    def stopped_by_then(*followed: Any) -> lease.Outcome:
        stopping.set()
        return follow(*followed)

    monkeypatch.setattr(engine_session, "follow", stopped_by_then)
    fake_engine("hang")
    query = submit(member)
    with pytest.raises(SystemExit):
        worker.run(query.job.pk)
    query.refresh_from_db()
    assert (query.status, query.job.losses) == (QueryStatus.WAITING, 0)


def test_a_worker_ends_a_query_it_has_lost(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_session, "CANCEL_CHECK_SECONDS", 0)
    monkeypatch.setattr("analyses.jobs.engine_process.TERM_GRACE_SECONDS", 0.2)
    claim = lease.claim

    def claimed_by_another(*taken: Any) -> lease.Lease | None:
        mine = claim(*taken)
        assert mine is not None
        lease.finish(mine, Failure("lost", "by then"))
        return mine

    monkeypatch.setattr(lease, "claim", claimed_by_another)
    fake_engine("hang")
    assert failure_of(work(submit(member)))["code"] == "lost"


@pytest.mark.longer
def test_an_answer_is_stored_once_the_database_is_back(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine("query")
    finish, failures = lease.finish, [OperationalError("gone"), OperationalError("gone")]

    def away_at_first(*args: Any) -> None:
        if failures:
            raise failures.pop()
        finish(*args)

    monkeypatch.setattr("analyses.jobs.lease.connection.close", lambda: None)
    monkeypatch.setattr(lease, "finish", away_at_first)
    assert work(submit(member)).answer == {"batch_size": 16}


def test_the_query_of_a_closed_page_is_not_answered(member: User, fake_engine: Behave) -> None:
    request = AnalysisRequest.parse({"model": "bert", "gpu": "a10"})
    query = queries.submit(member, QueryKind.PREDICT, request, for_page=True)
    Query.objects.update(asked_at=query.asked_at - 2 * unwanted.WANTED_FOR)
    assert work(query).status == QueryStatus.DROPPED


def test_a_new_interactive_worker_takes_over_its_predecessors_query(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine("query")
    query = submit(member)
    lease.claim(query.job.pk, nodes.here().name)
    monkeypatch.setattr("django_q.conf.Conf.CLUSTER_NAME", queue.INTERACTIVE)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(worker.engines, "keep_traces", False)
    worker.start()
    query.refresh_from_db()
    assert (query.status, query.job.losses) == (QueryStatus.WAITING, 1)
    assert worker.engines.keep_traces
    assert Job.objects.get().token == ""


@pytest.mark.slow
@pytest.mark.torch
def test_the_real_engine_answers_one_batch_size_after_another(
    member: User, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.QUERY_DEADLINE_SECONDS = {"predict": 600}
    monkeypatch.setattr(worker.engines, "keep_traces", True)
    used = []
    for size in (8, 512):
        fields: dict[str, Any] = {"model": "distilbert", "sequence_length": 16, "gpu": "t4"}
        query = work(submit(member, current_batch_size=size, **fields))
        assert query.answer is not None, query.failure
        trial = query.answer["trial"]
        assert (trial["batch_size"], trial["fits"], trial["source"]) == (size, True, "predicted")
        used.append(trial["device_used_bytes"])
    assert used[0] < used[1]
