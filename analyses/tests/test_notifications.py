"""What is told of an analysis that has ended: when, once, and again where it has failed."""

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

Send = Callable[[], list[str]]
CHOSEN = {"by_email": True, "by_webhook": True, "webhook_url": "https://hook.example/"}


@pytest.fixture
def told(member: User) -> User:
    """A member who wants to be told of everything, by both channels."""
    User.objects.filter(pk=member.pk).update(email="grace@lab.example")
    member.refresh_from_db()
    channels.save_choices(member, CHOSEN | {"only_after_seconds": 0})
    return member


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The webhooks called; none is."""
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
    """Make what waits due, and what is being sent old."""
    then = timezone.now() - timedelta(**ago)
    jobs = Job.objects.filter(kind=JobKind.NOTIFICATION)
    jobs.filter(state=Status.QUEUED).update(not_before=then)
    jobs.filter(state=Status.RUNNING).update(heartbeat_at=then)


# When there is something to tell


def test_success_failure_and_loss_are_told(told: User) -> None:
    lease.finish(_claimed(told), make_result())
    _failed(told)
    lost = _claimed(told)
    old = timezone.now() - timedelta(hours=1)
    Job.objects.filter(pk=lost.job_id).update(losses=1, heartbeat_at=old)
    recovery.reap()

    ended = list(Analysis.objects.order_by("pk"))
    assert [analysis.status for analysis in ended] == ["succeeded", "failed", "lost"]
    for analysis in ended:
        assert {n.channel for n in analysis.notifications.all()} == {"email", "webhook"}


def test_one_that_is_tried_again_is_not_told(told: User) -> None:
    claim = _claimed(told)
    Job.objects.update(heartbeat_at=timezone.now() - timedelta(hours=1))
    recovery.reap()
    interrupted = _claimed(told)
    lease.finish(interrupted, lease.Interrupted())

    assert set(Analysis.objects.values_list("status", flat=True)) == {Status.QUEUED}
    assert claim != interrupted
    assert not Notification.objects.exists()


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("by_owner", [False, True])
def test_a_cancelled_one_is_told_unless_by_the_owner(
    told: User, running: bool, by_owner: bool
) -> None:
    claim = _claimed(told) if running else None
    analysis = Analysis.objects.get(pk=claim.subject_id) if claim else _queued(told)
    services.cancel(analysis, told if by_owner else make_user("root", is_staff=True))
    if claim:
        lease.finish(claim, lease.Cancelled())

    analysis.refresh_from_db()
    assert analysis.status == Status.CANCELLED
    assert Notification.objects.exists() != by_owner


@pytest.mark.parametrize(("seconds", "is_told"), [(59, False), (120, True)])
def test_only_one_that_took_long_is_told(told: User, seconds: float, is_told: bool) -> None:
    channels.save_choices(told, {"only_after_seconds": 60})
    _failed(told, seconds_ago=seconds)
    assert Notification.objects.exists() == is_told


def test_nobody_is_told_who_has_not_chosen_it(member: User) -> None:
    _failed(member)
    channels.save_choices(member, {"only_after_seconds": 0})
    _failed(member)
    channels.save_choices(member, {"by_email": True})
    User.objects.update(is_active=False)
    _failed(member)
    assert not Notification.objects.exists()


def test_an_answer_from_the_store_is_not_told(told: User) -> None:
    first = services.submit(told, {"model": "bert", "gpu": "a10"})
    claim = lease.claim(first.job.pk, "node-1")
    assert claim is not None
    lease.finish(claim, make_result())
    Notification.objects.all().delete()

    second = services.submit(told, {"model": "bert", "gpu": "a10"})
    assert second.status == Status.SUCCEEDED
    assert not Notification.objects.exists()


def test_the_end_and_its_notification_are_stored_together_or_not_at_all(
    told: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_numbers: object) -> None:
        raise DatabaseError("disk full")

    monkeypatch.setattr(notifications, "note_ended", fails)
    with pytest.raises(DatabaseError):
        _failed(told)
    assert Analysis.objects.get().status == Status.RUNNING


# What is told


def test_an_email_says_what_and_where(told: User, settings: Settings) -> None:
    settings.PUBLIC_URL = "https://lab.example"
    claim = _claimed(told, seconds_ago=184.6)
    lease.finish(claim, make_result())
    worker.run(_by(Channel.EMAIL).job.pk)

    (sent,) = mail.outbox
    assert sent.to == ["grace@lab.example"]
    assert sent.from_email == site.DEFAULT_FROM_EMAIL
    assert sent.subject == "[MemoryMark] BERT base on NVIDIA A10: succeeded after 3 min 05 s"
    assert sent.body.startswith(make_result().verdict)
    assert f"https://lab.example/{claim.subject_id}/\n" in sent.body
    assert sent.extra_headers["Message-ID"] == f"<analysis-{claim.subject_id}@localhost>"


def test_a_failure_gives_its_reason_in_a_line(told: User) -> None:
    told_of = message.of_ended(_failed(told))
    assert told_of.text.startswith("The engine crashed.\n\n")
    assert "Traceback" not in told_of.text
    assert told_of.payload["reason"] == "The engine crashed.\nTraceback: long"
    assert told_of.payload["verdict"] is None


def test_a_subject_has_one_line(told: User) -> None:
    assert message.of_ended(_failed(told, model="a\nBcc: b")).subject.count("\n") == 0


def test_the_webhook_gets_json(told: User, calls: list[tuple[Any, ...]]) -> None:
    analysis = _failed(told)
    worker.run(_by(Channel.WEBHOOK).job.pk)

    ((url, secret, number, body, hosts),) = calls
    assert (url, number) == ("https://hook.example/", f"analysis-{analysis.pk}")
    assert secret == told.notification_choices.webhook_secret
    assert hosts == site.WEBHOOK_HOSTS
    payload = json.loads(body)
    assert payload["event"] == "analysis.ended"
    assert (payload["version"], payload["id"], payload["status"]) == (1, analysis.pk, "failed")
    assert payload["duration_seconds"] >= 120


# How it gets there


def test_it_is_queued_with_the_end_and_a_worker_sends_it(
    told: User, calls: list[tuple[Any, ...]]
) -> None:
    _failed(told)
    due = Job.objects.filter(lane=queue.NOTIFICATIONS, not_before__lte=Now())
    assert due.count() == 2
    for job in list(due):
        worker.run(job.pk)
    assert set(Notification.objects.values_list("status", flat=True)) == {Delivery.SENT}
    assert (len(mail.outbox), len(calls)) == (1, 1)


def test_one_that_the_queue_delivers_twice_is_sent_once(told: User) -> None:
    _failed(told)
    for _ in range(2):
        worker.run(_by(Channel.EMAIL).job.pk)
    assert len(mail.outbox) == 1


def test_a_worker_that_sends_counts_as_busy(told: User, monkeypatch: pytest.MonkeyPatch) -> None:
    busy: list[int] = []

    def send(*_args: object) -> str:
        busy.append(queue.at_work_on(nodes.here().name).count())
        return "sent"

    monkeypatch.setattr(channels, "send", send)
    _failed(told)
    worker.run(_by(Channel.EMAIL).job.pk)
    assert busy == [1]
    assert not queue.at_work_on(nodes.here().name).exists()


def test_it_is_tried_again_with_growing_pauses_and_then_given_up(
    told: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    def refuse(*_args: object) -> str:
        nonlocal tries
        tries += 1
        raise NotDelivered(f"refused {tries}")

    monkeypatch.setattr(channels, "send", refuse)
    _failed(told)
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


def test_it_waits_until_it_is_due(told: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "sends_email", lambda: False)
    _failed(told)
    broker = queue.LabBroker()
    worker.run(_by(Channel.EMAIL).job.pk)
    Notification.objects.filter(channel=Channel.WEBHOOK).delete()
    assert broker._next_job() is None
    _pass_time(seconds=1)
    assert broker._next_job() is not None


def test_one_that_its_worker_left_half_done_is_tried_again(told: User) -> None:
    _failed(told)
    lease.claim(_by(Channel.EMAIL).job.pk, "node-1")
    recovery.recover()
    assert _by(Channel.EMAIL).status == Delivery.SENDING  # it may be in good hands

    _pass_time(hours=1)
    recovery.recover()
    assert _by(Channel.EMAIL).status == Delivery.WAITING
    assert "worker on node-1 stopped" in _by(Channel.EMAIL).last_error


def test_a_fault_of_our_own_is_noted_too(told: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(_analysis: Analysis) -> None:
        raise KeyError("verdict")

    monkeypatch.setattr(message, "of_ended", fault)
    _failed(told)
    worker.run(_by(Channel.EMAIL).job.pk)
    assert _by(Channel.EMAIL).last_error == "MemoryMark's worker failed: KeyError: 'verdict'"


def test_a_database_that_is_away_ends_no_worker(
    told: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_args: object) -> None:
        raise DatabaseError("away")

    _failed(told)
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
def test_what_stands_in_the_way_is_said(
    told: User, chosen: dict[str, object], email: str, why: str
) -> None:
    _failed(told)
    channels.save_choices(told, chosen)
    User.objects.update(email=email)
    worker.run(_by(Channel.EMAIL).job.pk)
    assert why in _by(Channel.EMAIL).last_error


def test_a_node_without_a_mail_server_says_how_to_set_it(told: User, settings: Settings) -> None:
    settings.EMAIL_BACKEND = NO_BACKEND
    _failed(told)
    worker.run(_by(Channel.EMAIL).job.pk)
    assert "EMAIL_URL" in _by(Channel.EMAIL).last_error


def test_a_mail_server_that_is_away_is_said(told: User, settings: Settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
    _failed(told)
    worker.run(_by(Channel.EMAIL).job.pk)
    assert "the mail server did not accept it" in _by(Channel.EMAIL).last_error
