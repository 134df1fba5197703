"""Heartbeat tasks: when the broker sends them, and what it does without jobs."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connections
from django.utils import timezone
from django_q.conf import Conf
from django_q.signing import SignedPackage

from analyses.jobs import lease, nodes, queue, supervisor, timeouts
from analyses.jobs.queue import INTERACTIVE, WORKERS, LabBroker
from analyses.jobs.tests.queueing import CRASHED, Clock, Enqueue, next_job, submit_query
from analyses.models import (
    Analysis,
    Job,
    Query,
    QueryKind,
)
from analyses.tests.factories import lease_on, make_analysis

pytestmark = pytest.mark.database


def test_a_heartbeat_task_is_sent_while_a_worker_is_free(
    here: nodes.Here, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "HEARTBEAT_TASK_EVERY_SECONDS", 0)
    broker = LabBroker(WORKERS)

    def hands_a_heartbeat() -> bool:
        ((_, task),) = broker.dequeue() or [(0, "")]
        return bool(task) and SignedPackage.loads(task)["func"] == supervisor.HEARTBEAT_TASK

    busy: list[tuple[Analysis | Query, str]] = [
        (make_analysis(member), ""),
        (make_analysis(member, measured_gpu="NVIDIA A10"), "GPU-1"),
        (submit_query(member, QueryKind.PLAN), ""),
    ]
    for subject, device in busy:
        Job.objects.update(not_before=timezone.now() + timedelta(hours=1))
        assert hands_a_heartbeat()
        lease_on(subject, here.name, device)
    assert not hands_a_heartbeat()  # all workers are busy
    assert not queue.has_free_worker(WORKERS)
    assert queue.has_free_worker(INTERACTIVE)


def test_a_heartbeat_is_written_to_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    hearing, reporting = os.pipe()
    monkeypatch.setenv(supervisor.HEARTBEAT_PIPE, str(reporting))
    supervisor.report_alive()
    assert os.read(hearing, 10) == b"."
    os.close(hearing)
    os.close(reporting)


def test_an_unavailable_database_is_queried_again(
    db: None, here: nodes.Here, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(_self: LabBroker) -> None:
        raise OperationalError("away")

    did: list[object] = []
    monkeypatch.setattr(LabBroker, "_next_job", away)
    monkeypatch.setattr(queue, "sleep", did.append)
    monkeypatch.setattr(connections, "close_all", lambda: did.append("closed"))
    assert LabBroker(WORKERS).dequeue() is None
    assert did == ["closed", 1]  # the next query comes soon, on a new connection
    assert "trying again" in caplog.text


def test_an_empty_queue_is_polled_again_after_a_pause(
    db: None, here: nodes.Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(queue, "sleep", pauses.append)
    monkeypatch.setattr(Conf, "POLL", 0.2)
    broker = LabBroker(WORKERS)
    assert broker.ping() is True
    assert broker.dequeue() is None
    assert pauses == [0.2]


def test_heartbeat_tasks_are_sent_on_time(
    db: None, here: nodes.Here, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "HEARTBEAT_TASK_EVERY_SECONDS", 10)
    broker = LabBroker(WORKERS)
    sent_at = []
    for second in (0, 9, 10, 19, 20, 35, 44, 45):
        clock.now = 1000.0 + second
        if broker.dequeue():
            sent_at.append(second)
    assert sent_at == [10, 20, 35, 45]


def test_no_heartbeat_is_sent_behind_a_job_being_claimed(
    here: nodes.Here, enqueue: Enqueue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "HEARTBEAT_TASK_EVERY_SECONDS", 2)
    analysis = enqueue()
    broker = LabBroker(WORKERS)
    assert next_job(broker) == analysis.job
    clock.now += 3
    assert broker.dequeue() is None
    lease_on(analysis, here.name)
    assert broker.dequeue() is not None


def test_without_a_free_worker_the_next_heartbeat_waits_a_full_interval(
    here: nodes.Here, member: User, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "HEARTBEAT_TASK_EVERY_SECONDS", 10)
    query = submit_query(member, QueryKind.PREDICT)
    broker = LabBroker(INTERACTIVE)
    claim = lease_on(query, here.name)
    clock.now += 10
    assert broker.dequeue() is None
    lease.finish(claim, CRASHED)
    clock.now += 9
    assert broker.dequeue() is None
    clock.now += 1
    assert broker.dequeue() is not None
