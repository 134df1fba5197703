"""The states of an analysis: exactly the allowed moves."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils import timezone

from analyses import services
from analyses.jobs import lease, lifecycle
from analyses.jobs.engine_output import Failure
from analyses.jobs.kinds import NOTIFICATION_PAUSES
from analyses.models import AT_WORK, FINAL_STATUSES, Analysis, Delivery, Job, Status
from analyses.tests.factories import make_analysis, make_notification

pytestmark = pytest.mark.database

ALLOWED = [(start, end) for start, ends in lifecycle.NEXT.items() for end in sorted(ends)]
FORBIDDEN = [pair for pair in product(Status, Status) if pair not in ALLOWED]


@pytest.mark.parametrize(("start", "end"), ALLOWED)
def test_an_allowed_move_happens_once(member: User, start: Status, end: Status) -> None:
    analysis = make_analysis(member, start)
    this = Job.objects.filter(analysis=analysis)

    assert lifecycle.move(this, start, end) == 1
    assert lifecycle.move(this, start, end) == 0
    analysis.refresh_from_db()
    assert analysis.status == end
    assert (analysis.finished_at is not None) == (end in FINAL_STATUSES)
    assert this.get().state == end
    assert (this.get().finished_at is not None) == (end in FINAL_STATUSES)


@pytest.mark.parametrize(("start", "end"), FORBIDDEN)
def test_any_other_move_is_refused(member: User, start: Status, end: Status) -> None:
    analysis = make_analysis(member, start)
    with pytest.raises(ValueError, match="never goes"):
        lifecycle.move(Job.objects.filter(analysis=analysis), start, end)

    analysis.refresh_from_db()
    assert analysis.status == start


def test_a_move_only_affects_and_counts_jobs_in_the_old_state(member: User) -> None:
    waiting, running, left = (
        [make_analysis(member), make_analysis(member)],
        make_analysis(member, Status.RUNNING),
        make_analysis(member),
    )
    chosen = Job.objects.exclude(analysis=left)

    assert lifecycle.move(chosen, Status.QUEUED, Status.CANCELLED) == 2
    states = dict(Analysis.objects.values_list("pk", "status"))
    assert [states[one.pk] for one in (*waiting, running, left)] == [
        Status.CANCELLED,
        Status.CANCELLED,
        Status.RUNNING,
        Status.QUEUED,
    ]
    assert dict(Job.objects.values_list("analysis", "state")) == states


def test_a_requeued_job_has_no_worker_and_is_due_immediately(member: User) -> None:
    analysis = make_analysis(member, Status.RUNNING, token="t")
    this = Job.objects.filter(analysis=analysis)
    tomorrow = timezone.now() + timedelta(days=1)
    this.update(not_before=tomorrow, started_at=tomorrow)
    lifecycle.move(this, Status.RUNNING, Status.QUEUED)

    job = this.get()
    assert (job.token, job.started_at, job.finished_at) == ("", None, None)
    assert job.not_before < tomorrow


def test_a_job_being_cancelled_still_belongs_to_its_worker(member: User) -> None:
    analysis = make_analysis(member, Status.RUNNING, token="t")
    lifecycle.move(Job.objects.filter(analysis=analysis), Status.RUNNING, Status.CANCELLING)
    job = analysis.job
    job.refresh_from_db()
    assert (job.token, job.finished_at) == ("t", None)


# Failures


CRASHED = Failure("crashed", "it crashed")


@pytest.mark.parametrize(
    ("end", "losses_before", "state", "losses"),
    [
        (Status.FAILED, 0, Status.FAILED, 0),
        (Status.FAILED, 1, Status.FAILED, 1),
        (Status.LOST, 0, Status.QUEUED, 1),
        (Status.LOST, 1, Status.LOST, 2),
    ],
)
def test_an_analysis_is_only_retried_after_its_first_loss(
    member: User, end: Status, losses_before: int, state: Status, losses: int
) -> None:
    analysis = make_analysis(member, Status.RUNNING, losses=losses_before)
    this = Job.objects.filter(analysis=analysis)
    assert lifecycle.is_retried(this.get(), end) == (state == Status.QUEUED)
    before = lifecycle.fail(this, CRASHED, end)

    assert before is not None
    assert (before.state, before.losses) == (Status.RUNNING, losses_before)
    assert (this.get().state, this.get().losses) == (state, losses)
    analysis.refresh_from_db()
    said = ("", "") if state == Status.QUEUED else ("crashed", "it crashed")
    assert (analysis.failure_code, analysis.failure_reason) == said


def test_a_failure_is_final_unless_it_is_a_loss(member: User) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    lifecycle.fail(Job.objects.filter(analysis=analysis), CRASHED)
    analysis.refresh_from_db()
    assert analysis.status == Status.FAILED


@pytest.mark.parametrize("end", [Status.FAILED, Status.LOST])
@pytest.mark.parametrize("losses", range(len(NOTIFICATION_PAUSES)))
def test_a_notification_is_retried_after_growing_pauses(
    member: User, losses: int, end: Status
) -> None:
    this = _sending(member, losses)
    begun_at = timezone.now()
    assert lifecycle.fail(this, CRASHED, end) is not None
    ended_at = timezone.now()

    job = this.get()
    assert (job.state, job.losses) == (Status.QUEUED, losses + 1)
    pause, a_moment = NOTIFICATION_PAUSES[losses], timedelta(milliseconds=2)  # rounding of clocks
    assert begun_at - a_moment <= job.not_before - pause <= ended_at + a_moment
    assert job.notification is not None
    assert (job.notification.status, job.notification.last_error) == (
        Delivery.WAITING,
        "it crashed",
    )


@pytest.mark.parametrize(("end", "counted"), [(Status.FAILED, 0), (Status.LOST, 1)])
def test_a_notification_is_given_up_after_the_last_pause(
    member: User, end: Status, counted: int
) -> None:
    this = _sending(member, len(NOTIFICATION_PAUSES))
    lifecycle.fail(this, CRASHED, end)
    job = this.get()
    assert (job.state, job.losses) == (end, len(NOTIFICATION_PAUSES) + counted)
    assert job.notification is not None
    assert job.notification.status == Delivery.GIVEN_UP


def _sending(member: User, losses: int) -> QuerySet[Job]:
    analysis = make_analysis(member, Status.FAILED)
    notification = make_notification(analysis, status=Delivery.SENDING, job={"losses": losses})
    return Job.objects.filter(notification=notification)


@pytest.mark.parametrize("status", [status for status in Status if status != Status.RUNNING])
def test_only_a_running_job_can_fail(member: User, status: Status) -> None:
    analysis = make_analysis(member, status)
    before = Job.objects.values().get()
    assert lifecycle.fail(Job.objects.filter(analysis=analysis), CRASHED) is None
    assert Job.objects.values().get() == before


def test_a_job_ended_by_another_at_the_same_moment_has_not_failed(
    member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis = make_analysis(member, Status.RUNNING)
    monkeypatch.setattr(lifecycle, "move", lambda *_args, **_columns: 0)
    assert lifecycle.fail(Job.objects.filter(analysis=analysis), CRASHED) is None


# Final states


def test_a_final_state_is_never_left() -> None:
    assert not any(lifecycle.NEXT[status] for status in FINAL_STATUSES)


@pytest.mark.parametrize("status", Status)
def test_cancelling_depends_on_the_state(member: User, status: Status) -> None:
    expected = {
        Status.QUEUED: Status.CANCELLED,
        Status.RUNNING: Status.CANCELLING,
    }.get(status, status)
    analysis = make_analysis(member, status, heartbeat_at=timezone.now())

    assert services.cancel(analysis, member) == (expected != status)
    analysis.refresh_from_db()
    assert analysis.status == expected


def test_a_dead_workers_job_is_cancelled_immediately(member: User) -> None:
    old = timezone.now() - timedelta(seconds=15)
    analysis = make_analysis(member, Status.RUNNING, heartbeat_at=old)
    services.cancel(analysis, member)

    analysis.refresh_from_db()
    assert analysis.status == Status.CANCELLED


def test_a_gpu_is_held_by_one_job_at_a_time(member: User) -> None:
    first, second = (make_analysis(member, measured_gpu="NVIDIA A10") for _ in range(2))
    mine = lease.claim(first.job.pk, "node-1", "GPU-1")
    assert mine is not None

    assert lease.claim(second.job.pk, "node-2", "GPU-1") is None
    lease.finish(mine, lease.Interrupted())
    assert lease.claim(second.job.pk, "node-2", "GPU-1") is not None
    assert Analysis.objects.filter(status__in=AT_WORK).count() == 1
