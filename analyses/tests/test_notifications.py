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
from django.utils import timezone
from django_q.models import OrmQ
from pytest_django import Settings

from analyses import claims, nodes, queue, recovery, selectors, services, worker
from analyses.engine_events import Failure
from analyses.models import Analysis, Channel, Delivery, Notification, Status
from analyses.notifications import channels, choices, delivery, message, outbox, webhook
from analyses.notifications.webhook import NotDelivered
from analyses.tests.factories import make_analysis, make_result, make_user

Send = Callable[[], list[str]]
CHOSEN = {"by_email": True, "by_webhook": True, "webhook_url": "https://hook.example/"}


@pytest.fixture
def told(member: User) -> User:
    """A member who wants to be told of everything, by both channels."""
    User.objects.filter(pk=member.pk).update(email="grace@lab.example")
    member.refresh_from_db()
    choices.save(member, CHOSEN | {"only_after_seconds": 0})
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


def _claimed(owner: User, **fields: Any) -> claims.Claim:
    claim = claims.claim(_queued(owner, **fields).pk, "node-1")
    assert claim is not None
    return claim


def _failed(owner: User, **fields: Any) -> Analysis:
    claim = _claimed(owner, **fields)
    claims.finish(claim, Failure("crashed", "The engine crashed.\nTraceback: long"))
    return Analysis.objects.get(pk=claim.analysis_id)


def _by(channel: Channel) -> Notification:
    return Notification.objects.get(channel=channel)


def _pass_time(**ago: float) -> None:
    """Make what waits due, and what is being sent old."""
    then = timezone.now() - timedelta(**ago)
    Notification.objects.filter(status=Delivery.WAITING).update(due_at=then)
    Notification.objects.filter(status=Delivery.SENDING).update(taken_at=then)


# When there is something to tell


def test_success_failure_and_loss_are_told(told: User) -> None:
    claims.finish(_claimed(told), make_result())
    _failed(told)
    lost = _claimed(told)
    old = timezone.now() - timedelta(hours=1)
    Analysis.objects.filter(pk=lost.analysis_id).update(losses=1, heartbeat_at=old)
    recovery.reap()

    ended = list(Analysis.objects.order_by("pk"))
    assert [analysis.status for analysis in ended] == ["succeeded", "failed", "lost"]
    for analysis in ended:
        assert {n.channel for n in analysis.notifications.all()} == {"email", "webhook"}


def test_one_that_is_tried_again_is_not_told(told: User) -> None:
    claim = _claimed(told)
    Analysis.objects.update(heartbeat_at=timezone.now() - timedelta(hours=1))
    recovery.reap()
    interrupted = _claimed(told)
    claims.finish(interrupted, claims.Interrupted())

    assert set(Analysis.objects.values_list("status", flat=True)) == {Status.QUEUED}
    assert claim != interrupted
    assert not Notification.objects.exists()


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("by_owner", [False, True])
def test_a_cancelled_one_is_told_unless_by_the_owner(
    told: User, running: bool, by_owner: bool
) -> None:
    claim = _claimed(told) if running else None
    analysis = Analysis.objects.get(pk=claim.analysis_id) if claim else _queued(told)
    services.cancel(analysis, told if by_owner else make_user("root", is_staff=True))
    if claim:
        claims.finish(claim, claims.Cancelled())

    analysis.refresh_from_db()
    assert analysis.status == Status.CANCELLED
    assert Notification.objects.exists() != by_owner


@pytest.mark.parametrize(("seconds", "is_told"), [(59, False), (120, True)])
def test_only_one_that_took_long_is_told(told: User, seconds: float, is_told: bool) -> None:
    choices.save(told, {"only_after_seconds": 60})
    _failed(told, seconds_ago=seconds)
    assert Notification.objects.exists() == is_told


def test_nobody_is_told_who_has_not_chosen_it(member: User) -> None:
    _failed(member)
    choices.save(member, {"only_after_seconds": 0})
    _failed(member)
    choices.save(member, {"by_email": True})
    User.objects.update(is_active=False)
    _failed(member)
    assert not Notification.objects.exists()


def test_an_answer_from_the_store_is_not_told(told: User) -> None:
    first = services.submit(told, {"model": "bert", "gpu": "a10"})
    claim = claims.claim(first.pk, "node-1")
    assert claim is not None
    claims.finish(claim, make_result())
    Notification.objects.all().delete()

    second = services.submit(told, {"model": "bert", "gpu": "a10"})
    assert second.status == Status.SUCCEEDED
    assert not Notification.objects.exists()


def test_the_end_and_its_notification_are_stored_together_or_not_at_all(
    told: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_numbers: object) -> None:
        raise DatabaseError("disk full")

    monkeypatch.setattr(outbox, "note_ended", fails)
    with pytest.raises(DatabaseError):
        _failed(told)
    assert Analysis.objects.get().status == Status.RUNNING


# What is told


def test_an_email_says_what_and_where(told: User, settings: Settings) -> None:
    settings.PUBLIC_URL = "https://lab.example"
    claim = _claimed(told, seconds_ago=185)
    claims.finish(claim, make_result())
    worker.deliver_notification(_by(Channel.EMAIL).pk)

    (sent,) = mail.outbox
    assert sent.to == ["grace@lab.example"]
    assert sent.from_email == site.DEFAULT_FROM_EMAIL
    assert sent.subject == "[MemoryMark] BERT base on NVIDIA A10: succeeded after 3 min 05 s"
    assert sent.body.startswith(make_result().verdict)
    assert f"https://lab.example/{claim.analysis_id}/\n" in sent.body
    assert sent.extra_headers["Message-ID"] == f"<analysis-{claim.analysis_id}@localhost>"


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
    worker.deliver_notification(_by(Channel.WEBHOOK).pk)

    ((url, secret, number, body, hosts),) = calls
    assert (url, number) == ("https://hook.example/", f"analysis-{analysis.pk}")
    assert secret == told.notification_choices.webhook_secret
    assert hosts == site.WEBHOOK_HOSTS
    payload = json.loads(body)
    assert payload["event"] == "analysis.ended"
    assert (payload["version"], payload["id"], payload["status"]) == (1, analysis.pk, "failed")
    assert payload["duration_seconds"] >= 120


# How it gets there


def test_a_beat_queues_what_is_due_and_a_worker_sends_it(
    told: User, calls: list[tuple[Any, ...]]
) -> None:
    _failed(told)
    recovery.recover()
    recovery.recover()

    tasks = [queue.task_of(entry) for entry in OrmQ.objects.order_by("id")]
    due = [queue.Task(queue.NOTIFICATION, n.pk) for n in Notification.objects.order_by("pk")]
    assert tasks == due
    for task in due:
        assert task.waits()
        worker.deliver_notification(task.pk)
        assert not task.waits()
    assert set(Notification.objects.values_list("status", flat=True)) == {Delivery.SENT}
    assert (len(mail.outbox), len(calls)) == (1, 1)


def test_one_that_the_queue_delivers_twice_is_sent_once(told: User) -> None:
    _failed(told)
    for _ in range(2):
        worker.deliver_notification(_by(Channel.EMAIL).pk)
    assert len(mail.outbox) == 1


def test_a_worker_that_sends_counts_as_busy(told: User, monkeypatch: pytest.MonkeyPatch) -> None:
    busy: list[int] = []

    def send(*_args: object) -> str:
        busy.append(selectors.busy_workers(nodes.here().name))
        return "sent"

    monkeypatch.setattr(channels, "send", send)
    _failed(told)
    worker.deliver_notification(_by(Channel.EMAIL).pk)
    assert busy == [1]
    assert selectors.busy_workers(nodes.here().name) == 0


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
    pk = _by(Channel.WEBHOOK).pk
    pauses = []
    for _ in delivery.PAUSES:
        worker.deliver_notification(pk)
        worker.deliver_notification(pk)  # too early
        notification = _by(Channel.WEBHOOK)
        assert notification.taken_at is not None
        pauses.append(notification.due_at - notification.taken_at)
        _pass_time(seconds=1)
    worker.deliver_notification(pk)

    given_up = _by(Channel.WEBHOOK)
    assert pauses == sorted(pauses)
    assert (given_up.status, given_up.tries, tries) == (Delivery.GIVEN_UP, 6, 6)
    assert given_up.last_error == "refused 6"
    recovery.recover()
    assert queue.Task(queue.NOTIFICATION, pk) not in map(queue.task_of, OrmQ.objects.all())


def test_one_that_its_worker_left_half_done_is_tried_again(told: User) -> None:
    _failed(told)
    sending = {"status": Delivery.SENDING, "node": "node-1", "tries": 1}
    Notification.objects.update(**sending, taken_at=timezone.now())
    recovery.recover()
    assert _by(Channel.EMAIL).status == Delivery.SENDING  # it may be in good hands

    _pass_time(hours=1)
    recovery.recover()
    assert _by(Channel.EMAIL).status == Delivery.WAITING
    assert "worker on node-1 stopped" in _by(Channel.EMAIL).last_error


def test_the_entry_of_a_killed_worker_keeps_nothing_back(told: User) -> None:
    _failed(told)
    recovery.recover()
    OrmQ.objects.update(lock=timezone.now() + timedelta(hours=1))
    recovery.recover()
    recovery.recover()
    waiting = queue.queued(queue.NOTIFICATION, queue.free_entries())
    assert waiting == set(Notification.objects.values_list("pk", flat=True))
    assert queue.free_entries().count() == len(waiting)


def test_a_fault_of_our_own_is_noted_too(told: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(_analysis: Analysis) -> None:
        raise KeyError("verdict")

    monkeypatch.setattr(message, "of_ended", fault)
    _failed(told)
    worker.deliver_notification(_by(Channel.EMAIL).pk)
    assert _by(Channel.EMAIL).last_error == "MemoryMark failed: KeyError: 'verdict'"


def test_a_database_that_is_away_ends_no_worker(
    told: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(_pk: int) -> None:
        raise DatabaseError("away")

    monkeypatch.setattr(delivery, "deliver", away)
    worker.deliver_notification(1)
    assert "is not stored" in caplog.text


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
    choices.save(told, chosen)
    User.objects.update(email=email)
    worker.deliver_notification(_by(Channel.EMAIL).pk)
    assert why in _by(Channel.EMAIL).last_error


def test_a_node_without_a_mail_server_says_how_to_set_it(told: User, settings: Settings) -> None:
    settings.EMAIL_BACKEND = channels.NO_EMAIL_BACKEND
    _failed(told)
    worker.deliver_notification(_by(Channel.EMAIL).pk)
    assert "EMAIL_URL" in _by(Channel.EMAIL).last_error


def test_a_mail_server_that_is_away_is_said(told: User, settings: Settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
    _failed(told)
    worker.deliver_notification(_by(Channel.EMAIL).pk)
    assert "the mail server did not take it" in _by(Channel.EMAIL).last_error
