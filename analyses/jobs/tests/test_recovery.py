from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from analyses import queries, services
from analyses.jobs import lease, lifecycle, queue, recovery, timeouts
from analyses.jobs.engine_output import Failure
from analyses.models import Analysis, Delivery, Job, Query, QueryKind, QueryStatus, Status
from analyses.tests.factories import add_trial, make_analysis, make_notification, make_trial
from engine.interface.request import AnalysisRequest

pytestmark = pytest.mark.database

GOOD: dict[str, object] = {"model": "bert", "gpu": "a10"}


def _queued_ids() -> list[int]:
    """The analyses that a worker may claim now."""
    due = Job.objects.filter(state=Status.QUEUED, not_before__lte=Now())
    return list(due.order_by("pk").values_list("analysis_id", flat=True))


def _at_work(member: User, seconds_since_heartbeat: float, **fields: Any) -> Analysis:
    beat = timezone.now() - timedelta(seconds=seconds_since_heartbeat)
    held: dict[str, Any] = {"heartbeat_at": beat, "token": "t", "attempt": 1}
    return make_analysis(member, fields.pop("status", Status.RUNNING), **held | fields)


def test_a_running_analysis_without_heartbeat_is_queued_once_more(member: User) -> None:
    analysis = _at_work(member, 120, node="node-1")
    add_trial(analysis, make_trial(16))
    recovery.recover()

    analysis.refresh_from_db()
    assert (analysis.status, analysis.job.losses) == (Status.QUEUED, 1)
    assert _queued_ids() == [analysis.pk]
    assert analysis.trials.count() == 1  # reported trials are kept
    said = analysis.log_lines.get().message
    assert "worker on node-1 stopped" in said
    assert "tried once more" in said


def test_the_second_time_it_is_lost_with_a_reason(member: User) -> None:
    analysis = _at_work(member, 120, losses=1)
    recovery.recover()

    analysis.refresh_from_db()
    assert (analysis.status, analysis.failure_code) == (Status.LOST, "worker_lost")
    assert "not tried again by itself" in analysis.failure_reason
    assert analysis.finished_at is not None
    assert not _queued_ids()


def test_an_analysis_being_cancelled_is_cancelled(member: User) -> None:
    analysis = _at_work(member, 120, status=Status.CANCELLING)
    recovery.recover()

    analysis.refresh_from_db()
    assert analysis.status == Status.CANCELLED
    assert not _queued_ids()


@pytest.mark.parametrize("status", Status)
def test_live_and_finished_analyses_are_left_alone(member: User, status: Status) -> None:
    alive = _at_work(member, 3, status=status)
    if status not in (Status.RUNNING, Status.CANCELLING):
        Job.objects.update(heartbeat_at=timezone.now() - timedelta(days=1))
    recovery.reap()

    alive.refresh_from_db()
    assert alive.status == status


def test_a_worker_given_up_can_no_longer_write(member: User) -> None:
    analysis = make_analysis(member)
    claim = lease.claim(analysis.job.pk, "node-1")
    assert claim is not None
    Job.objects.update(heartbeat_at=timezone.now() - timedelta(seconds=120))
    recovery.reap()

    with pytest.raises(lease.LeaseLost):
        lease.finish(claim, lease.Interrupted())
    assert _queued_ids() == [analysis.pk]


def test_an_unclaimed_job_is_handed_out_again(member: User) -> None:
    """Its pool may have died, or its GPU was taken when the measurement was about to start."""
    services.submit(member, GOOD)
    later = timezone.now() + queue.HANDED_OVER
    Job.objects.update(not_before=later)
    call_command("recover")
    assert not _queued_ids()

    Job.objects.update(not_before=later - queue.HANDED_OVER)
    assert _queued_ids()


def test_a_job_deleted_meanwhile_does_not_stop_recovery(
    member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member deletes it between the read and the write; the others are recovered."""
    first, gone, last = (_at_work(member, 120) for _ in range(3))
    fail = lifecycle.fail

    def deleted_by_then(held: QuerySet[Job], failure: Failure, end: Status) -> Job | None:
        Analysis.objects.filter(pk=gone.pk).delete()
        return fail(held, failure, end)

    monkeypatch.setattr(lifecycle, "fail", deleted_by_then)
    assert recovery.reap() == 2
    for kept in (first, last):
        kept.refresh_from_db()
        assert kept.status == Status.QUEUED


def test_a_new_interactive_worker_releases_its_predecessors_queries(member: User) -> None:
    analysis = _at_work(member, 0, node="node-1")
    Job.objects.update(lane=queue.INTERACTIVE, node="node-1")
    assert recovery.release("node-2", queue.INTERACTIVE) == 0
    assert recovery.release("node-1", queue.INTERACTIVE) == 1
    analysis.refresh_from_db()
    assert analysis.status == Status.QUEUED


def _answering(member: User, seconds_since_heartbeat: float) -> Query:
    query = Query.objects.create(kind=QueryKind.PLAN, request={}, status=QueryStatus.RUNNING)
    query.askers.add(member)
    beat = timezone.now() - timedelta(seconds=seconds_since_heartbeat)
    job = Job.objects.filter(pk=queue.enqueue(query).pk)
    job.update(state=Status.RUNNING, heartbeat_at=beat, token="t")  # the lease's expiry
    return query


def test_a_query_is_released_sooner_than_an_analysis(member: User) -> None:
    """Someone is looking at the page, so each kind of job has its own timeout."""
    silence = (timeouts.SILENT_AFTER + timeouts.STALE_AFTER).total_seconds() / 2
    analysis, query = _at_work(member, silence), _answering(member, silence)

    assert recovery.reap() == 1
    analysis.refresh_from_db()
    query.refresh_from_db()
    assert (analysis.status, query.status) == (Status.RUNNING, QueryStatus.WAITING)


def test_all_recovered_jobs_are_counted(member: User, caplog: pytest.LogCaptureFixture) -> None:
    assert recovery.reap() == 0
    _at_work(member, 120, status=Status.CANCELLING)
    assert recovery.reap() == 1
    for status in (Status.CANCELLING, Status.CANCELLING, Status.RUNNING, Status.RUNNING):
        _at_work(member, 120, status=status)
    assert recovery.reap() == 4
    assert caplog.text.count("was lost by its worker") == 2
    assert recovery.reap() == 0


def test_a_message_for_an_unknown_node_says_some_node(member: User) -> None:
    analysis = _at_work(member, 120)
    recovery.reap()
    assert "worker on a node stopped" in analysis.log_lines.get().message


def test_a_node_only_releases_one_lane(member: User) -> None:
    analyses = [_at_work(member, 0, node="node-1") for _ in range(2)]
    Job.objects.filter(analysis=analyses[0]).update(lane=queue.INTERACTIVE)
    assert recovery.release("node-1", queue.INTERACTIVE) == 1
    states = [Job.objects.get(analysis=analysis).state for analysis in analyses]
    assert states == [Status.QUEUED, Status.RUNNING]


# After restoring a backup


def test_jobs_running_in_another_instance_are_released(member: User) -> None:
    running = [_at_work(member, 0) for _ in range(2)]
    cancelling = [_at_work(member, 0, status=Status.CANCELLING) for _ in range(3)]
    waiting = make_analysis(member)
    queries = [_answering(member, 0) for _ in range(2)]
    ended = make_analysis(member, Status.FAILED)
    notification = make_notification(ended, status=Delivery.SENDING)

    released = recovery.release_all()
    assert released == recovery.Released([one.pk for one in running], 3, 2, 1)
    states = dict(Job.objects.values_list("analysis", "state"))
    for analyses, state in (
        (running, Status.QUEUED),
        (cancelling, Status.CANCELLED),
        ([waiting], Status.QUEUED),
        ([ended], Status.FAILED),
    ):
        assert {states[analysis.pk] for analysis in analyses} == {state}
    assert not Job.objects.exclude(losses=0).exists()  # it is no loss
    for analysis in running:
        assert "Restored from a backup" in analysis.log_lines.get().message
    for query in queries:
        query.refresh_from_db()
        assert query.status == QueryStatus.WAITING
    notification.refresh_from_db()
    assert notification.status == Delivery.WAITING


def test_without_running_jobs_nothing_is_released_and_nothing_printed(member: User) -> None:
    make_analysis(member)
    released = recovery.release_all()
    assert released == recovery.Released([], 0, 0, 0)
    assert list(released.messages()) == []


def test_a_release_that_fails_halfway_releases_nothing(
    member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis = _at_work(member, 0, status=Status.CANCELLING)
    move = lifecycle.move

    def fail_at_the_second(jobs: QuerySet[Job], start: Status, end: Status) -> int:
        if start == Status.RUNNING:
            raise RuntimeError("the database does not respond")
        return move(jobs, start, end)

    monkeypatch.setattr(recovery, "move", fail_at_the_second)
    with pytest.raises(RuntimeError):
        recovery.release_all()
    analysis.refresh_from_db()
    assert analysis.status == Status.CANCELLING


def test_the_messages_list_and_count_released_jobs() -> None:
    messages = list(recovery.Released([4, 7], 1_000, 2_000, 3_000).messages())
    assert [message.split(":")[-1].strip() for message in messages] == [
        "4, 7.",
        "1,000 analyses.",
        "2,000 queries.",
        "3,000 notifications.",
    ]
    (only,) = recovery.Released([], 0, 1, 0).messages()
    assert "1 queries" in only


def test_what_lost_its_job_is_queued_again_with_its_trials(member: User) -> None:
    running = _at_work(member, 1)
    add_trial(running, make_trial(16))
    waiting = make_analysis(member)
    query = queries.submit(member, QueryKind.PREDICT, AnalysisRequest.parse(GOOD))
    notification = make_notification(make_analysis(member, Status.SUCCEEDED))
    cancelling = _at_work(member, 1, status=Status.CANCELLING)
    Job.objects.all().delete()
    recovery.recover()
    recovery.recover()  # it finds nothing more to do

    for row in (running, waiting, query, notification, cancelling):
        row.refresh_from_db()
    assert _queued_ids() == [running.pk, waiting.pk, None, None]
    assert (running.status, waiting.status) == (Status.QUEUED, Status.QUEUED)
    assert running.trials.count() == 1
    assert "queued again" in running.log_lines.get().message
    assert (query.status, notification.status) == (QueryStatus.WAITING, Delivery.WAITING)
    assert cancelling.status == Status.CANCELLED


def test_the_worker_of_a_deleted_job_lets_go_of_it(member: User) -> None:
    analysis = make_analysis(member)
    held = lease.claim(analysis.job.pk, "node-1")
    assert held is not None
    Job.objects.all().delete()
    recovery.recover()
    with pytest.raises(lease.LeaseLost):
        lease.renew(held)
    analysis.refresh_from_db()
    assert analysis.status == Status.QUEUED
