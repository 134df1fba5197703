"""What the broker hands out, and what it keeps for later or for another node."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.utils import timezone
from django_q.conf import Conf
from django_q.models import OrmQ
from django_q.signing import SignedPackage

from analyses import canary, claims, nodes, pace, queue
from analyses.engine_events import Failure
from analyses.models import Analysis, Channel, Delivery, Node, Notification, Status
from analyses.queue import LabBroker
from analyses.tests.factories import make_analysis

Enqueue = Callable[..., Analysis]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> nodes.Here:
    gpu = nodes.LocalGpu("NVIDIA A10", "GPU-1", 24_146_608_128, "580.95")
    node = nodes.Here("lab-1", gpu, prediction_workers=1)
    monkeypatch.setattr(nodes, "here", lambda: node)
    monkeypatch.setattr(Conf, "POLL", 0)
    monkeypatch.setattr(pace, "CANARY_EVERY_SECONDS", 3600)
    return node


@pytest.fixture
def enqueue(member: User) -> Enqueue:
    def make(**fields: Any) -> Analysis:
        analysis = make_analysis(member, **fields)
        queue.enqueue(analysis)
        return analysis

    return make


def _handed(broker: LabBroker) -> int | None:
    packages = broker.dequeue()
    return SignedPackage.loads(packages[0][1])["args"][0] if packages else None


def test_the_oldest_comes_first_and_the_next_when_it_is_done(
    here: nodes.Here, enqueue: Enqueue
) -> None:
    broker = LabBroker("predictions")
    first, second = enqueue(), enqueue()

    assert _handed(broker) == first.pk
    assert _handed(broker) is None  # it is being taken
    claim = claims.claim(first.pk, here.name)
    assert claim is not None
    assert _handed(broker) is None  # the one worker for predictions is busy
    claims.finish(claim, Failure("crashed", "it crashed"))
    assert _handed(broker) == second.pk


def test_another_node_takes_what_waits_behind_a_busy_one(
    here: nodes.Here, enqueue: Enqueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = enqueue(), enqueue()
    assert _handed(LabBroker("predictions")) == first.pk
    claims.claim(first.pk, here.name)

    other = nodes.Here("lab-2", None, prediction_workers=1)
    monkeypatch.setattr(nodes, "here", lambda: other)
    assert _handed(LabBroker("predictions")) == second.pk


def test_predictions_do_not_wait_behind_a_measurement(here: nodes.Here, enqueue: Enqueue) -> None:
    broker = LabBroker("predictions")
    measured, waiting, predicted = (
        enqueue(measured_gpu="NVIDIA A10"),
        enqueue(measured_gpu="NVIDIA A10"),
        enqueue(),
    )

    assert _handed(broker) == measured.pk
    assert claims.claim(measured.pk, here.name, here.gpu_uuid)
    assert _handed(broker) == predicted.pk
    claims.claim(predicted.pk, here.name)
    assert _handed(broker) is None
    assert waiting.status == Status.QUEUED


def test_a_measurement_goes_to_a_node_with_that_gpu(here: nodes.Here, enqueue: Enqueue) -> None:
    enqueue(measured_gpu="NVIDIA H100 80GB HBM3")
    assert _handed(LabBroker("predictions")) is None

    mine = enqueue(measured_gpu="NVIDIA A10")
    assert _handed(LabBroker("predictions")) == mine.pk


def test_a_gpu_that_another_worker_measures_on_is_not_free(
    here: nodes.Here, enqueue: Enqueue
) -> None:
    held, waiting = enqueue(measured_gpu="NVIDIA A10"), enqueue(measured_gpu="NVIDIA A10")
    OrmQ.objects.order_by("id").first().delete()
    claim = claims.claim(held.pk, "the same machine by another name", here.gpu_uuid)
    assert claim is not None

    assert _handed(LabBroker("predictions")) is None
    claims.finish(claim, Failure("crashed", "it crashed"))
    assert _handed(LabBroker("predictions")) == waiting.pk


def test_a_draining_node_takes_nothing(here: nodes.Here, enqueue: Enqueue) -> None:
    Node.objects.create(name=here.name, heartbeat_at=timezone.now(), draining=True)
    enqueue()
    assert _handed(LabBroker("predictions")) is None


def test_an_entry_in_hand_is_not_handed_out_again(here: nodes.Here, enqueue: Enqueue) -> None:
    analysis = enqueue()
    assert _handed(LabBroker("predictions")) == analysis.pk
    assert _handed(LabBroker("predictions")) is None


def test_one_that_nobody_claims_does_not_block_the_rest(
    here: nodes.Here, enqueue: Enqueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "HANDED_OVER_SECONDS", -1)
    broker = LabBroker("predictions")
    first, second = enqueue(), enqueue()
    assert _handed(broker) == first.pk
    assert _handed(broker) == second.pk


def test_a_worker_that_is_gone_does_not_count_as_busy(here: nodes.Here, enqueue: Enqueue) -> None:
    old = timezone.now() - pace.SILENT_AFTER - timedelta(seconds=1)
    enqueue(status=Status.RUNNING, node=here.name, heartbeat_at=old)
    OrmQ.objects.all().delete()
    waiting = enqueue()
    assert _handed(LabBroker("predictions")) == waiting.pk


def test_an_entry_signed_with_another_key_stays_and_is_complained_of(
    here: nodes.Here, enqueue: Enqueue
) -> None:
    Node.objects.create(name=here.name, heartbeat_at=timezone.now())
    enqueue()
    OrmQ.objects.update(payload="forged:payload")
    mine = enqueue()

    assert _handed(LabBroker("predictions")) == mine.pk
    assert OrmQ.objects.count() == 2
    assert "SECRET_KEY" in Node.objects.get().problem


def test_what_cannot_be_read_blocks_nothing(
    here: nodes.Here, enqueue: Enqueue, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3 * queue._LOOKED_AT):
        enqueue()
    OrmQ.objects.update(payload="forged:payload")  # as after a change of the site's key
    mine = enqueue()
    broker = LabBroker("predictions")

    assert mine.pk in [_handed(broker) for _ in range(4)]
    assert caplog.text.count("SECRET_KEY") == 2  # one message, which names it twice


def test_a_canary_is_sent_while_a_worker_is_free(
    here: nodes.Here, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "CANARY_EVERY_SECONDS", 0)
    broker = LabBroker("predictions")

    def hands_a_canary() -> bool:
        ((_, task),) = broker.dequeue() or [(0, "")]
        return bool(task) and SignedPackage.loads(task)["func"] == canary.TASK

    for gpu, device in (("", ""), ("NVIDIA A10", "GPU-1")):
        assert hands_a_canary()
        analysis = make_analysis(member, measured_gpu=gpu)
        assert claims.claim(analysis.pk, here.name, device)
    assert not hands_a_canary()  # both workers are busy


def test_the_canary_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    hearing, singing = os.pipe()
    monkeypatch.setenv(canary.PIPE, str(singing))
    canary.sing()
    assert os.read(hearing, 10) == b"."
    os.close(hearing)
    os.close(singing)


def test_a_database_that_is_away_is_asked_again(
    db: None, here: nodes.Here, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(_self: LabBroker) -> None:
        raise OperationalError("away")

    monkeypatch.setattr(LabBroker, "_next_task", away)
    monkeypatch.setattr(queue, "sleep", lambda _seconds: None)
    assert LabBroker("predictions").dequeue() is None
    assert "trying again" in caplog.text


def _notification(member: User, status: Delivery = Delivery.WAITING) -> Notification:
    notification = Notification.objects.create(
        analysis=make_analysis(member, Status.FAILED),
        channel=Channel.EMAIL,
        status=status,
        node="lab-1",
        due_at=timezone.now(),
        taken_at=timezone.now(),
    )
    queue.enqueue_notification(notification)
    return notification


def test_a_notification_is_handed_out_like_a_prediction(here: nodes.Here, member: User) -> None:
    broker = LabBroker("predictions")
    first, second = _notification(member), _notification(member)

    assert _handed(broker) == first.pk
    assert _handed(broker) is None  # it is being taken
    Notification.objects.filter(pk=first.pk).update(status=Delivery.SENT)
    assert _handed(broker) == second.pk


def test_a_notification_waits_for_a_free_worker(
    here: nodes.Here, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "here", lambda: nodes.Here("lab-1", None, prediction_workers=1))
    claim = claims.claim(make_analysis(member).pk, "lab-1")
    notification = _notification(member)
    assert _handed(LabBroker("predictions")) is None

    assert claim is not None
    claims.finish(claim, Failure("crashed", "it crashed"))
    assert _handed(LabBroker("predictions")) == notification.pk


def test_a_prediction_waits_for_a_worker_that_sends(
    here: nodes.Here, enqueue: Enqueue, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "here", lambda: nodes.Here("lab-1", None, prediction_workers=1))
    _notification(member, Delivery.SENDING)
    OrmQ.objects.all().delete()
    waiting = enqueue()
    assert _handed(LabBroker("predictions")) is None

    Notification.objects.update(status=Delivery.SENT)
    assert _handed(LabBroker("predictions")) == waiting.pk


def test_an_analysis_and_a_notification_of_one_number_are_two_tasks(
    here: nodes.Here, enqueue: Enqueue, member: User
) -> None:
    notification = _notification(member)
    Analysis.objects.all().delete()
    assert queue.queued(queue.ANALYSIS, OrmQ.objects.all()) == set()
    assert queue.queued(queue.NOTIFICATION, queue.free_entries()) == {notification.pk}
