"""Notifications of finished analyses: when they are sent, only once, and with retries."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as site
from django.contrib.auth.models import User
from django.core import mail
from django.db import DatabaseError
from django.db.models.functions import Now
from django.utils import timezone
from pytest_django import Settings

from analyses import services
from analyses.jobs import lease, nodes, notifications, queue, recovery, worker
from analyses.jobs.engine_output import Failure
from analyses.jobs.kinds import NOTIFICATION_PAUSES
from analyses.jobs.lease import Lease
from analyses.models import Analysis, Channel, Delivery, Job, JobKind, Notification, Status
from analyses.notifications import channels, message, webhook
from analyses.notifications.webhook import NotDelivered
from analyses.tests.factories import lease_on, make_analysis, make_result, make_user
from memorymark_site.accounts.mail import NO_BACKEND

pytestmark = pytest.mark.database

Send = Callable[[], list[str]]
CHOSEN = {"by_email": True, "by_webhook": True, "webhook_url": "https://hook.example/"}


@pytest.fixture
def subscriber(member: User) -> User:
    """A member who wants every notification on both channels."""
    User.objects.filter(pk=member.pk).update(email="grace@lab.example")
    member.refresh_from_db()
    channels.save_choices(member, CHOSEN | {"only_after_seconds": 0})
    return member


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Records webhook calls without making them."""
    made: list[tuple[Any, ...]] = []

    def call(*args: Any) -> int:
        made.append(args)
        return 204

    monkeypatch.setattr(webhook, "call", call)
    return made


def _queued(owner: User, seconds_ago: float = 120, **fields: Any) -> Analysis:
    analysis = make_analysis(owner, **fields)
    queued_at = timezone.now() - timedelta(seconds=seconds_ago)
    Analysis.objects.filter(pk=analysis.pk).update(queued_at=queued_at)
    return analysis


def _claimed(owner: User, **fields: Any) -> Lease:
    return lease_on(_queued(owner, **fields))


def _failed(owner: User, **fields: Any) -> Analysis:
    claim = _claimed(owner, **fields)
    lease.finish(claim, Failure("crashed", "The engine crashed.\nTraceback: long"))
    return Analysis.objects.get(pk=claim.subject_id)


def _by(channel: Channel) -> Notification:
    return Notification.objects.get(channel=channel)


def _pass_time(**ago: float) -> None:
    """Make waiting notifications due, and age those being sent."""
    then = timezone.now() - timedelta(**ago)
    jobs = Job.objects.filter(kind=JobKind.NOTIFICATION)
    jobs.filter(state=Status.QUEUED).update(not_before=then)
    jobs.filter(state=Status.RUNNING).update(heartbeat_at=then)


# When a notification is sent


def test_success_failure_and_loss_are_notified(subscriber: User) -> None:
    lease.finish(_claimed(subscriber), make_result())
    _failed(subscriber)
    lost = _claimed(subscriber)
    old = timezone.now() - timedelta(hours=1)
    Job.objects.filter(pk=lost.job_id).update(losses=1, heartbeat_at=old)
    recovery.reap()

    ended = list(Analysis.objects.order_by("pk"))
    assert [analysis.status for analysis in ended] == ["succeeded", "failed", "lost"]
    for analysis in ended:
        assert {n.channel for n in analysis.notifications.all()} == {"email", "webhook"}


def test_a_retried_analysis_is_not_notified(subscriber: User) -> None:
    claim = _claimed(subscriber)
    Job.objects.update(heartbeat_at=timezone.now() - timedelta(hours=1))
    recovery.reap()
    interrupted = _claimed(subscriber)
    lease.finish(interrupted, lease.Interrupted())

    assert set(Analysis.objects.values_list("status", flat=True)) == {Status.QUEUED}
    assert claim != interrupted
    assert not Notification.objects.exists()


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("by_owner", [False, True])
def test_a_cancelled_analysis_is_notified_unless_by_the_owner(
    subscriber: User, running: bool, by_owner: bool
) -> None:
    claim = _claimed(subscriber) if running else None
    analysis = Analysis.objects.get(pk=claim.subject_id) if claim else _queued(subscriber)
    services.cancel(analysis, subscriber if by_owner else make_user("root", is_staff=True))
    if claim:
        lease.finish(claim, lease.Cancelled())

    analysis.refresh_from_db()
    assert analysis.status == Status.CANCELLED
    assert Notification.objects.exists() != by_owner


@pytest.mark.parametrize(("seconds", "is_notified"), [(59, False), (120, True)])
def test_only_long_analyses_are_notified(
    subscriber: User, seconds: float, is_notified: bool
) -> None:
    channels.save_choices(subscriber, {"only_after_seconds": 60})
    _failed(subscriber, seconds_ago=seconds)
    assert Notification.objects.exists() == is_notified


def test_only_members_who_chose_it_are_notified(member: User) -> None:
    _failed(member)
    channels.save_choices(member, {"only_after_seconds": 0})
    _failed(member)
    channels.save_choices(member, {"by_email": True})
    User.objects.update(is_active=False)
    _failed(member)
    assert not Notification.objects.exists()


def test_a_reused_result_is_not_notified(subscriber: User) -> None:
    first = services.submit(subscriber, {"model": "bert", "gpu": "a10"})
    claim = lease.claim(first.job.pk, "node-1")
    assert claim is not None
    lease.finish(claim, make_result())
    Notification.objects.all().delete()

    second = services.submit(subscriber, {"model": "bert", "gpu": "a10"})
    assert second.status == Status.SUCCEEDED
    assert not Notification.objects.exists()


def test_the_final_state_and_its_notification_are_stored_together(
    subscriber: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_numbers: object) -> None:
        raise DatabaseError("disk full")

    monkeypatch.setattr(notifications, "note_ended", fails)
    with pytest.raises(DatabaseError):
        _failed(subscriber)
    assert Analysis.objects.get().status == Status.RUNNING


# What it says


def test_an_email_has_the_result_and_a_link(subscriber: User, settings: Settings) -> None:
    settings.PUBLIC_URL = "https://lab.example"
    claim = _claimed(subscriber, seconds_ago=184.6)
    lease.finish(claim, make_result())
    worker.run(_by(Channel.EMAIL).job.pk)

    (sent,) = mail.outbox
    assert sent.to == ["grace@lab.example"]
    assert sent.from_email == site.DEFAULT_FROM_EMAIL
    assert sent.subject == (
        "[MemoryMark] BERT base · fp32 · 128 tokens · NVIDIA A10: succeeded after 3 min 05 s"
    )
    assert sent.body.startswith(make_result().verdict)
    assert f"https://lab.example/{claim.subject_id}/\n" in sent.body
    assert sent.extra_headers["Message-ID"] == f"<analysis-{claim.subject_id}@localhost>"


def test_a_failure_has_its_reason_in_one_line(subscriber: User) -> None:
    notice = message.of_ended(_failed(subscriber))
    assert notice.text.startswith("The engine crashed.\n\n")
    assert "Traceback" not in notice.text
    assert notice.payload["reason"] == "The engine crashed.\nTraceback: long"
    assert notice.payload["verdict"] is None


def test_a_subject_is_one_line(subscriber: User) -> None:
    assert message.of_ended(_failed(subscriber, model="a\nBcc: b")).subject.count("\n") == 0


def test_the_webhook_gets_json(subscriber: User, calls: list[tuple[Any, ...]]) -> None:
    analysis = _failed(subscriber)
    worker.run(_by(Channel.WEBHOOK).job.pk)

    ((url, secret, number, body, hosts),) = calls
    assert (url, number) == ("https://hook.example/", f"analysis-{analysis.pk}")
    assert secret == subscriber.notification_choices.webhook_secret
    assert hosts == site.WEBHOOK_HOSTS
    payload = json.loads(body)
    assert payload["event"] == "analysis.ended"
    assert (payload["version"], payload["id"], payload["status"]) == (1, analysis.pk, "failed")
    assert payload["duration_seconds"] >= 120


# How it is sent


def test_a_notification_is_queued_with_the_final_state_and_sent_by_a_worker(
    subscriber: User, calls: list[tuple[Any, ...]]
) -> None:
    _failed(subscriber)
    due = Job.objects.filter(lane=queue.NOTIFICATIONS, not_before__lte=Now())
    assert due.count() == 2
    for job in list(due):
        worker.run(job.pk)
    assert set(Notification.objects.values_list("status", flat=True)) == {Delivery.SENT}
    assert (len(mail.outbox), len(calls)) == (1, 1)


def test_a_notification_delivered_twice_is_sent_once(subscriber: User) -> None:
    _failed(subscriber)
    for _ in range(2):
        worker.run(_by(Channel.EMAIL).job.pk)
    assert len(mail.outbox) == 1


def test_a_worker_that_sends_counts_as_busy(
    subscriber: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy: list[int] = []

    def send(*_args: object) -> str:
        busy.append(queue.at_work_on(nodes.here().name).count())
        return "sent"

    monkeypatch.setattr(channels, "send", send)
    _failed(subscriber)
    worker.run(_by(Channel.EMAIL).job.pk)
    assert busy == [1]
    assert not queue.at_work_on(nodes.here().name).exists()


def test_a_notification_is_retried_with_growing_pauses_and_then_given_up(
    subscriber: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    def refuse(*_args: object) -> str:
        nonlocal tries
        tries += 1
        raise NotDelivered(f"refused {tries}")

    monkeypatch.setattr(channels, "send", refuse)
    _failed(subscriber)
    job = _by(Channel.WEBHOOK).job
    pauses = []
    for _ in NOTIFICATION_PAUSES:
        begun = timezone.now()
        worker.run(job.pk)
        job.refresh_from_db()
        pauses.append(round((job.not_before - begun).total_seconds(), -1))
        _pass_time(seconds=1)
    worker.run(job.pk)

    given_up = _by(Channel.WEBHOOK)
    assert pauses == [pause.total_seconds() for pause in NOTIFICATION_PAUSES]
    assert (given_up.status, given_up.job.attempts, tries) == (Delivery.GIVEN_UP, 6, 6)
    assert given_up.last_error == "refused 6"
    recovery.recover()
    assert _by(Channel.WEBHOOK).status == Delivery.GIVEN_UP


def test_a_notification_waits_until_it_is_due(
    subscriber: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "sends_email", lambda: False)
    _failed(subscriber)
    broker = queue.LabBroker()
    worker.run(_by(Channel.EMAIL).job.pk)
    Notification.objects.filter(channel=Channel.WEBHOOK).delete()
    assert broker._next_job() is None
    _pass_time(seconds=1)
    assert broker._next_job() is not None


def test_a_notification_left_by_its_worker_is_retried(subscriber: User) -> None:
    _failed(subscriber)
    lease.claim(_by(Channel.EMAIL).job.pk, "node-1")
    recovery.recover()
    assert _by(Channel.EMAIL).status == Delivery.SENDING  # its worker may still be sending it

    _pass_time(hours=1)
    recovery.recover()
    assert _by(Channel.EMAIL).status == Delivery.WAITING
    assert "worker on node-1 stopped" in _by(Channel.EMAIL).last_error


def test_an_internal_error_is_recorded_too(
    subscriber: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(_analysis: Analysis) -> None:
        raise KeyError("verdict")

    monkeypatch.setattr(message, "of_ended", fault)
    _failed(subscriber)
    worker.run(_by(Channel.EMAIL).job.pk)
    assert _by(Channel.EMAIL).last_error == "MemoryMark's worker failed: KeyError: 'verdict'"


def test_an_unavailable_database_does_not_end_a_worker(
    subscriber: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_args: object) -> None:
        raise DatabaseError("away")

    _failed(subscriber)
    monkeypatch.setattr(lease, "claim", away)
    worker.run(_by(Channel.EMAIL).job.pk)
    assert "stays queued" in caplog.text


@pytest.mark.parametrize(
    ("chosen", "email", "why"),
    [
        ({"by_email": False, "by_webhook": False}, "grace@lab.example", "turned this off"),
        ({}, "", "no e-mail address"),
    ],
)
def test_a_failed_delivery_has_its_reason(
    subscriber: User, chosen: dict[str, object], email: str, why: str
) -> None:
    _failed(subscriber)
    channels.save_choices(subscriber, chosen)
    User.objects.update(email=email)
    worker.run(_by(Channel.EMAIL).job.pk)
    assert why in _by(Channel.EMAIL).last_error


def test_a_node_without_a_mail_server_says_how_to_set_it(
    subscriber: User, settings: Settings
) -> None:
    settings.EMAIL_BACKEND = NO_BACKEND
    _failed(subscriber)
    worker.run(_by(Channel.EMAIL).job.pk)
    assert "EMAIL_URL" in _by(Channel.EMAIL).last_error


def test_an_unreachable_mail_server_is_reported(subscriber: User, settings: Settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
    _failed(subscriber)
    worker.run(_by(Channel.EMAIL).job.pk)
    assert "the mail server did not accept it" in _by(Channel.EMAIL).last_error
