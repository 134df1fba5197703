"""What the broker hands out, and what it keeps for later or for another node."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, connections
from django.utils import timezone
from django_q.conf import Conf
from django_q.models import OrmQ
from django_q.signing import SignedPackage
from pytest_django import Settings

from analyses import queries
from analyses.jobs import lease, nodes, queue, supervisor, timeouts
from analyses.jobs.engine_output import Failure
from analyses.jobs.queue import INTERACTIVE, WORKERS, LabBroker
from analyses.models import (
    FINAL_STATUSES,
    Analysis,
    Delivery,
    Job,
    JobKind,
    Node,
    Notification,
    Query,
    QueryKind,
    Status,
)
from analyses.tests.factories import lease_on, make_analysis, make_notification
from engine.request import AnalysisRequest

Enqueue = Callable[..., Analysis]

CRASHED = Failure("crashed", "it crashed")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> nodes.Here:
    gpu = nodes.LocalGpu("NVIDIA A10", "GPU-1", 24_146_608_128, "580.95")
    node = nodes.Here("lab-1", gpu, prediction_workers=1)
    monkeypatch.setattr(nodes, "here", lambda: node)
    monkeypatch.setattr(Conf, "POLL", 0)
    monkeypatch.setattr(timeouts, "HEARTBEAT_TASK_EVERY_SECONDS", 3600)
    return node


@pytest.fixture
def enqueue(member: User) -> Enqueue:
    def make(**fields: Any) -> Analysis:
        return make_analysis(member, **fields)

    return make


def _query(member: User, kind: QueryKind, batch_size: int = 16, *, page: bool = False) -> Query:
    fields = {"model": "bert", "gpu": "a10", "current_batch_size": batch_size}
    return queries.submit(member, kind, AnalysisRequest.parse(fields), for_page=page)


def _handed(broker: LabBroker) -> Job | None:
    packages = broker.dequeue()
    return Job.objects.get(pk=SignedPackage.loads(packages[0][1])["args"][0]) if packages else None


def test_the_oldest_comes_first_and_the_next_when_it_is_done(
    here: nodes.Here, enqueue: Enqueue
) -> None:
    broker = LabBroker(WORKERS)
    first, second = enqueue(), enqueue()

    assert _handed(broker) == first.job
    assert _handed(broker) is None  # it is being taken
    claim = lease_on(first, here.name)
    assert _handed(broker) is None  # the one worker for predictions is busy
    lease.finish(claim, CRASHED)
    assert _handed(broker) == second.job


def test_another_node_takes_what_waits_behind_a_busy_one(
    here: nodes.Here, enqueue: Enqueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = enqueue(), enqueue()
    assert _handed(LabBroker(WORKERS)) == first.job
    lease_on(first, here.name)

    other = nodes.Here("lab-2", None, prediction_workers=1)
    monkeypatch.setattr(nodes, "here", lambda: other)
    assert _handed(LabBroker(WORKERS)) == second.job


def test_predictions_do_not_wait_behind_a_measurement(here: nodes.Here, enqueue: Enqueue) -> None:
    broker = LabBroker(WORKERS)
    measured, waiting, predicted = (
        enqueue(measured_gpu="NVIDIA A10"),
        enqueue(measured_gpu="NVIDIA A10"),
        enqueue(),
    )

    assert _handed(broker) == measured.job
    lease_on(measured, here.name, here.gpu_uuid)
    assert _handed(broker) == predicted.job
    lease_on(predicted, here.name)
    assert _handed(broker) is None
    assert waiting.status == Status.QUEUED


def test_a_measurement_goes_to_a_node_with_that_gpu(here: nodes.Here, enqueue: Enqueue) -> None:
    enqueue(measured_gpu="NVIDIA H100 80GB HBM3")
    assert _handed(LabBroker(WORKERS)) is None

    mine = enqueue(measured_gpu="NVIDIA A10")
    assert _handed(LabBroker(WORKERS)) == mine.job


def test_a_gpu_that_another_worker_measures_on_is_not_free(
    here: nodes.Here, enqueue: Enqueue
) -> None:
    held, waiting = enqueue(measured_gpu="NVIDIA A10"), enqueue(measured_gpu="NVIDIA A10")
    claim = lease_on(held, "the same machine by another name", here.gpu_uuid)

    assert _handed(LabBroker(WORKERS)) is None
    lease.finish(claim, CRASHED)
    assert _handed(LabBroker(WORKERS)) == waiting.job


def test_a_draining_node_takes_nothing(here: nodes.Here, enqueue: Enqueue, member: User) -> None:
    Node.objects.create(name=here.name, heartbeat_at=timezone.now(), draining=True)
    enqueue()
    _query(member, QueryKind.PREDICT)
    assert _handed(LabBroker(WORKERS)) is None
    assert _handed(LabBroker(INTERACTIVE)) is None


def test_a_job_that_was_handed_out_is_not_handed_out_again_at_once(
    here: nodes.Here, enqueue: Enqueue
) -> None:
    analysis = enqueue()
    assert _handed(LabBroker(WORKERS)) == analysis.job
    assert _handed(LabBroker(WORKERS)) is None


def test_one_that_nobody_claims_does_not_block_the_rest_and_comes_again(
    here: nodes.Here, enqueue: Enqueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = LabBroker(WORKERS)
    first, second = enqueue(), enqueue()
    assert _handed(broker) == first.job
    broker._handed_at -= queue.HANDED_OVER.total_seconds() + 1
    assert _handed(broker) == second.job

    Job.objects.update(not_before=timezone.now() - timedelta(seconds=1))
    assert _handed(LabBroker(WORKERS)) == first.job


def test_a_worker_that_is_gone_does_not_count_as_busy(here: nodes.Here, enqueue: Enqueue) -> None:
    gone, waiting = enqueue(), enqueue()
    lease_on(gone, here.name)
    old = timezone.now() - timeouts.SILENT_AFTER - timedelta(seconds=1)
    Job.objects.filter(pk=gone.job.pk).update(heartbeat_at=old)
    assert _handed(LabBroker(WORKERS)) == waiting.job


def test_a_job_queued_with_another_key_is_complained_of_once(
    here: nodes.Here, enqueue: Enqueue, caplog: pytest.LogCaptureFixture
) -> None:
    Node.objects.create(name=here.name, heartbeat_at=timezone.now())
    for _ in range(2):
        enqueue()
    Job.objects.update(key="another key's")
    broker = LabBroker(WORKERS)

    for _ in range(2):
        job = _handed(broker)
        assert job is not None
        claim = lease.claim(job.pk, here.name)
        assert claim is not None
        lease.finish(claim, CRASHED)
    assert "SECRET_KEY" in Node.objects.get().problem
    assert caplog.text.count("SECRET_KEY") == 2  # one message, which names it twice


def test_nothing_that_stands_in_a_table_is_unpickled(here: nodes.Here, enqueue: Enqueue) -> None:
    """django-q2's own queue holds pickles; a row there is nothing to us."""
    OrmQ.objects.create(key=WORKERS, payload="forged:payload", lock=timezone.now())
    analysis = enqueue()
    assert _handed(LabBroker(WORKERS)) == analysis.job
    assert OrmQ.objects.count() == 1


# Lanes


def test_queries_have_lanes_of_their_own(here: nodes.Here, enqueue: Enqueue, member: User) -> None:
    analysis, plan = enqueue(), _query(member, QueryKind.PLAN)
    prediction = _query(member, QueryKind.PREDICT)
    assert _handed(LabBroker(INTERACTIVE)) == prediction.job

    lease_on(analysis, here.name)
    assert _handed(LabBroker(WORKERS)) == plan.job


def test_one_plan_at_a_time_and_analyses_beside_it(
    here: nodes.Here, enqueue: Enqueue, member: User
) -> None:
    first, second = (_query(member, QueryKind.PLAN, size) for size in (1, 2))
    lease_on(first, here.name)
    analysis = enqueue()
    broker = LabBroker(WORKERS)
    assert _handed(broker) == analysis.job
    claim = lease_on(analysis, here.name)
    lease.finish(claim, CRASHED)
    assert _handed(broker) is None
    assert second.job.state == Status.QUEUED


def test_who_looks_at_a_page_goes_before_a_script(here: nodes.Here, member: User) -> None:
    script = _query(member, QueryKind.PREDICT, 1)
    page = _query(member, QueryKind.PREDICT, 2, page=True)
    broker = LabBroker(INTERACTIVE)
    assert _handed(broker) == page.job
    lease.finish(lease_on(page, here.name), CRASHED)
    assert _handed(broker) == script.job


# Heartbeats


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
        (_query(member, QueryKind.PLAN), ""),
    ]
    for subject, device in busy:
        Job.objects.update(not_before=timezone.now() + timedelta(hours=1))
        assert hands_a_heartbeat()
        lease_on(subject, here.name, device)
    assert not hands_a_heartbeat()  # all workers are busy
    assert not queue.has_free_worker(WORKERS)
    assert queue.has_free_worker(INTERACTIVE)


def test_the_heartbeat_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    hearing, reporting = os.pipe()
    monkeypatch.setenv(supervisor.HEARTBEAT_PIPE, str(reporting))
    supervisor.report_alive()
    assert os.read(hearing, 10) == b"."
    os.close(hearing)
    os.close(reporting)


def test_a_database_that_is_away_is_asked_again(
    db: None, here: nodes.Here, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(_self: LabBroker) -> None:
        raise OperationalError("away")

    did: list[object] = []
    monkeypatch.setattr(LabBroker, "_next_job", away)
    monkeypatch.setattr(queue, "sleep", did.append)
    monkeypatch.setattr(connections, "close_all", lambda: did.append("closed"))
    assert LabBroker(WORKERS).dequeue() is None
    assert did == ["closed", 1]  # no broken connection for the next look, which comes soon
    assert "trying again" in caplog.text


def test_an_empty_queue_is_looked_at_again_after_a_pause(
    db: None, here: nodes.Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(queue, "sleep", pauses.append)
    monkeypatch.setattr(Conf, "POLL", 0.2)
    broker = LabBroker(WORKERS)
    assert broker.ping() is True
    assert broker.dequeue() is None
    assert pauses == [0.2]


class Clock:
    """Time that a test lets pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(queue, "monotonic", clock)
    return clock


def test_heartbeat_tasks_come_at_their_times(
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


def test_no_heartbeat_is_sent_behind_a_job_that_is_being_taken(
    here: nodes.Here, enqueue: Enqueue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "HEARTBEAT_TASK_EVERY_SECONDS", 2)
    analysis = enqueue()
    broker = LabBroker(WORKERS)
    assert _handed(broker) == analysis.job
    clock.now += 3
    assert broker.dequeue() is None
    lease_on(analysis, here.name)
    assert broker.dequeue() is not None


def test_where_no_worker_is_free_the_next_heartbeat_comes_a_whole_time_later(
    here: nodes.Here, member: User, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "HEARTBEAT_TASK_EVERY_SECONDS", 10)
    query = _query(member, QueryKind.PREDICT)
    broker = LabBroker(INTERACTIVE)
    claim = lease_on(query, here.name)
    clock.now += 10
    assert broker.dequeue() is None
    lease.finish(claim, CRASHED)
    clock.now += 9
    assert broker.dequeue() is None
    clock.now += 1
    assert broker.dequeue() is not None


# What is handed out


def test_a_package_names_what_is_to_be_run_and_lets_nothing_be_saved(
    here: nodes.Here, enqueue: Enqueue, clock: Clock
) -> None:
    broker = LabBroker(WORKERS)
    clock.now += timeouts.HEARTBEAT_TASK_EVERY_SECONDS
    heartbeat = broker.dequeue()
    job = enqueue().job
    handed = broker.dequeue()

    found = []
    for packages in (heartbeat, handed):
        assert packages is not None
        ((number, signed),) = packages
        task = SignedPackage.loads(signed)
        found.append((number, *(task[key] for key in ("name", "func", "args", "kwargs", "save"))))
    assert found == [
        (0, "heartbeat", supervisor.HEARTBEAT_TASK, (), {}, False),
        (0, f"job-{job.pk}", queue.RUN_JOB, (job.pk,), {}, False),
    ]


def test_a_worker_has_the_whole_time_to_take_what_it_was_handed(
    here: nodes.Here, enqueue: Enqueue, clock: Clock
) -> None:
    broker = LabBroker(WORKERS)
    first, second = enqueue(), enqueue()
    begun_at = timezone.now()
    assert _handed(broker) == first.job
    free_again = Job.objects.get(pk=first.job.pk).not_before
    a_moment = timedelta(milliseconds=2)  # how clocks round
    assert begun_at - a_moment <= free_again - queue.HANDED_OVER <= timezone.now() + a_moment

    clock.now += queue.HANDED_OVER.total_seconds()
    assert _handed(broker) is None
    clock.now += 0.001
    assert _handed(broker) == second.job


def test_what_another_node_takes_at_the_same_moment_is_not_handed_out(
    here: nodes.Here, enqueue: Enqueue
) -> None:
    job = enqueue().job
    later = timezone.now() + timedelta(hours=1)

    def another_is_faster(execute: Callable[..., Any], sql: str, *more: Any) -> Any:
        if sql.startswith("UPDATE") and not faster:
            faster.append(sql)
            Job.objects.filter(pk=job.pk).update(not_before=later)
        return execute(sql, *more)

    faster: list[str] = []
    with connection.execute_wrapper(another_is_faster):
        assert LabBroker(WORKERS).dequeue() is None
    assert len(faster) == 1
    assert Job.objects.get().not_before == later


def test_each_subject_waits_in_its_lane(member: User) -> None:
    ended = make_analysis(member, Status.FAILED)
    subjects: list[Analysis | Query | Notification] = [
        make_analysis(member),
        make_analysis(member, measured_gpu="NVIDIA A10"),
        _query(member, QueryKind.PREDICT, 1),
        _query(member, QueryKind.PREDICT, 2, page=True),
        _query(member, QueryKind.PLAN),
        make_notification(ended),
    ]
    jobs = [Job.objects.get(pk=subject.job.pk) for subject in subjects]
    assert [(job.kind, job.lane, job.priority) for job in jobs] == [
        (JobKind.ANALYSIS, "predictions", 0),
        (JobKind.ANALYSIS, "measurements/NVIDIA A10", 0),
        (JobKind.PREDICT, "interactive", 0),
        (JobKind.PREDICT, "interactive", 1),
        (JobKind.PLAN, "plans", 0),
        (JobKind.NOTIFICATION, "notifications", 0),
    ]
    assert {(job.state, job.key) for job in jobs} == {(Status.QUEUED, queue.key_fingerprint())}
    assert [job.subject_id for job in jobs] == [subject.pk for subject in subjects]


def test_the_fingerprint_of_the_key_fits_and_does_not_tell_it(settings: Settings) -> None:
    queue.key_fingerprint.cache_clear()
    ours = queue.key_fingerprint()
    assert len(ours) == Job._meta.get_field("key").max_length
    settings.SECRET_KEY = "another's"  # noqa: S105  # a test's
    assert queue.key_fingerprint() == ours  # asked once in a process's life
    queue.key_fingerprint.cache_clear()
    assert queue.key_fingerprint() != ours
    queue.key_fingerprint.cache_clear()


def test_a_job_without_a_key_or_with_ours_is_not_complained_of(
    here: nodes.Here, enqueue: Enqueue, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs of an earlier version have none."""
    for name in (here.name, "lab-2"):
        Node.objects.create(name=name, heartbeat_at=timezone.now())
    jobs = [enqueue().job for _ in range(3)]
    Job.objects.filter(pk=jobs[0].pk).update(key="")
    Job.objects.filter(pk=jobs[2].pk).update(key="another key's")
    for job, problems in zip(jobs, (["", ""], ["", ""], [queue.WRONG_KEY, ""]), strict=True):
        assert _handed(LabBroker(WORKERS)) == job
        lease.claim(job.pk, here.name)
        Job.objects.filter(pk=job.pk).update(state=Status.SUCCEEDED)
        assert list(Node.objects.order_by("name").values_list("problem", flat=True)) == problems
    assert caplog.text.count(queue.WRONG_KEY) == 1


# Lanes and workers of a node


@pytest.mark.parametrize(
    ("gpu", "lanes", "workers"),
    [
        ("", {"predictions": 3, "plans": 1, "notifications": 4}, 4),
        (
            "NVIDIA A10",
            {"predictions": 3, "plans": 1, "measurements/NVIDIA A10": 1, "notifications": 5},
            5,
        ),
    ],
)
def test_a_node_has_a_worker_for_each_job_it_may_run_at_once(
    gpu: str, lanes: dict[str, int], workers: int
) -> None:
    node = nodes.Here("lab-1", nodes.LocalGpu(gpu, "GPU-1", 1, "580") if gpu else None, 3)
    assert queue.lanes_of(WORKERS, node) == lanes
    assert queue.workers_of(WORKERS, node) == workers
    assert queue.lanes_of(INTERACTIVE, node) == {"interactive": 1}
    assert queue.workers_of(INTERACTIVE, node) == 1


def test_a_node_is_busy_with_what_its_living_workers_hold(enqueue: Enqueue) -> None:
    now = timezone.now()
    silent = now - timeouts.SILENT_AFTER - timedelta(seconds=1)
    in_time = now - timeouts.SILENT_AFTER / 2

    def held(state: Status, node: str = "lab-1", heartbeat_at: datetime = in_time) -> int:
        job = enqueue().job
        Job.objects.filter(pk=job.pk).update(state=state, node=node, heartbeat_at=heartbeat_at)
        return job.pk

    mine = {held(Status.RUNNING), held(Status.CANCELLING)}
    for state in (Status.QUEUED, *FINAL_STATUSES):
        held(state)
    held(Status.RUNNING, "lab-2")
    held(Status.RUNNING, heartbeat_at=silent)
    assert set(queue.at_work_on("lab-1").values_list("pk", flat=True)) == mine


def test_a_pool_is_busy_with_its_own_lanes_only(here: nodes.Here, member: User) -> None:
    first = _query(member, QueryKind.PREDICT)
    assert queue.has_free_worker(INTERACTIVE)
    lease_on(first, here.name)
    assert not queue.has_free_worker(INTERACTIVE)
    assert queue.has_free_worker(WORKERS)


def test_several_predictions_run_at_once_where_there_are_workers(
    here: nodes.Here, enqueue: Enqueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "here", lambda: nodes.Here("lab-1", None, prediction_workers=2))
    first, second, third = (enqueue() for _ in range(3))
    broker = LabBroker(WORKERS)
    for analysis in (first, second):
        assert _handed(broker) == analysis.job
        lease_on(analysis, here.name)
    assert _handed(broker) is None
    assert third.job.state == Status.QUEUED


def test_a_measurement_that_has_ended_leaves_its_gpu_free(
    here: nodes.Here, enqueue: Enqueue
) -> None:
    ended, waiting = (enqueue(measured_gpu="NVIDIA A10") for _ in range(2))
    for state in FINAL_STATUSES:
        Job.objects.filter(pk=ended.job.pk).update(state=state, device=here.gpu_uuid)
        assert not queue._is_measured_on(here.gpu_uuid)
    for state in (Status.RUNNING, Status.CANCELLING):
        Job.objects.filter(pk=ended.job.pk).update(state=state)
        assert queue._is_measured_on(here.gpu_uuid)
        assert not queue._is_measured_on("GPU-2")
        assert _handed(LabBroker(WORKERS)) is None
    assert waiting.job.state == Status.QUEUED


# Notifications


def _notification(member: User, status: Delivery = Delivery.WAITING) -> Notification:
    sending = {"node": "lab-1", "heartbeat_at": timezone.now()}
    return make_notification(make_analysis(member, Status.FAILED), status=status, job=sending)


def test_a_notification_is_handed_out_like_a_prediction(here: nodes.Here, member: User) -> None:
    broker = LabBroker(WORKERS)
    first, second = _notification(member), _notification(member)

    assert _handed(broker) == first.job
    assert _handed(broker) is None  # it is being taken
    Job.objects.filter(notification=first).update(state=Status.SUCCEEDED)
    assert _handed(broker) == second.job


def test_a_notification_waits_for_a_free_worker(
    here: nodes.Here, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "here", lambda: nodes.Here("lab-1", None, prediction_workers=1))
    claim = lease_on(make_analysis(member), "lab-1")
    lease_on(_query(member, QueryKind.PLAN), "lab-1")
    notification = _notification(member)
    assert _handed(LabBroker(WORKERS)) is None

    lease.finish(claim, CRASHED)
    assert _handed(LabBroker(WORKERS)) == notification.job


def test_a_prediction_waits_for_workers_that_send(
    here: nodes.Here, enqueue: Enqueue, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "here", lambda: nodes.Here("lab-1", None, prediction_workers=1))
    for _ in range(2):
        _notification(member, Delivery.SENDING)
    waiting = enqueue()
    assert _handed(LabBroker(WORKERS)) is None

    Job.objects.filter(state=Status.RUNNING).update(state=Status.SUCCEEDED)
    assert _handed(LabBroker(WORKERS)) == waiting.job
