"""Lanes: which jobs run beside each other, and on which workers."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from analyses.jobs import lease, nodes, queue, timeouts
from analyses.jobs.queue import INTERACTIVE, WORKERS, LabBroker
from analyses.jobs.tests.queueing import CRASHED, Enqueue, next_job, submit_query
from analyses.models import (
    FINAL_STATUSES,
    Delivery,
    Job,
    Notification,
    QueryKind,
    Status,
)
from analyses.tests.factories import lease_on, make_analysis, make_notification
from engine.gpus.driver import LocalGpu

pytestmark = pytest.mark.database


def test_queries_have_their_own_lanes(here: nodes.Here, enqueue: Enqueue, member: User) -> None:
    analysis, plan = enqueue(), submit_query(member, QueryKind.PLAN)
    prediction = submit_query(member, QueryKind.PREDICT)
    assert next_job(LabBroker(INTERACTIVE)) == prediction.job

    lease_on(analysis, here.name)
    assert next_job(LabBroker(WORKERS)) == plan.job


def test_one_plan_runs_at_a_time_beside_analyses(
    here: nodes.Here, enqueue: Enqueue, member: User
) -> None:
    first, second = (submit_query(member, QueryKind.PLAN, size) for size in (1, 2))
    lease_on(first, here.name)
    analysis = enqueue()
    broker = LabBroker(WORKERS)
    assert next_job(broker) == analysis.job
    claim = lease_on(analysis, here.name)
    lease.finish(claim, CRASHED)
    assert next_job(broker) is None
    assert second.job.state == Status.QUEUED


def test_pages_go_before_scripts(here: nodes.Here, member: User) -> None:
    script = submit_query(member, QueryKind.PREDICT, 1)
    page = submit_query(member, QueryKind.PREDICT, 2, page=True)
    broker = LabBroker(INTERACTIVE)
    assert next_job(broker) == page.job
    lease.finish(lease_on(page, here.name), CRASHED)
    assert next_job(broker) == script.job


# Lanes and workers of a node


@pytest.mark.parametrize(
    ("gpu", "lanes", "workers"),
    [
        ("", {"predictions": 3, "plans": 1, "notifications": 4, "self-checks/lab-1": 1}, 4),
        (
            "NVIDIA A10",
            {
                "predictions": 3,
                "plans": 1,
                "measurements/NVIDIA A10": 1,
                "notifications": 5,
                "self-checks/lab-1": 1,
            },
            5,
        ),
    ],
)
def test_a_node_has_a_worker_for_each_concurrent_job(
    gpu: str, lanes: dict[str, int], workers: int
) -> None:
    node = nodes.Here("lab-1", LocalGpu(gpu, "GPU-1", 1, "580") if gpu else None, 3)
    assert queue.lanes_of(WORKERS, node) == lanes
    assert queue.workers_of(WORKERS, node) == workers
    assert queue.lanes_of(INTERACTIVE, node) == {"interactive": 1}
    assert queue.workers_of(INTERACTIVE, node) == 1


def test_a_node_is_busy_with_its_live_workers_jobs(enqueue: Enqueue) -> None:
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


def test_a_pool_is_only_busy_with_its_own_lanes(here: nodes.Here, member: User) -> None:
    first = submit_query(member, QueryKind.PREDICT)
    assert queue.has_free_worker(INTERACTIVE)
    lease_on(first, here.name)
    assert not queue.has_free_worker(INTERACTIVE)
    assert queue.has_free_worker(WORKERS)


def test_several_predictions_run_at_once_with_enough_workers(
    here: nodes.Here, enqueue: Enqueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "here", lambda: nodes.Here("lab-1", None, prediction_workers=2))
    first, second, third = (enqueue() for _ in range(3))
    broker = LabBroker(WORKERS)
    for analysis in (first, second):
        assert next_job(broker) == analysis.job
        lease_on(analysis, here.name)
    assert next_job(broker) is None
    assert third.job.state == Status.QUEUED


def test_a_finished_measurement_frees_its_gpu(here: nodes.Here, enqueue: Enqueue) -> None:
    ended, waiting = (enqueue(measured_gpu="NVIDIA A10") for _ in range(2))
    for state in FINAL_STATUSES:
        Job.objects.filter(pk=ended.job.pk).update(state=state, device=here.gpu_uuid)
        assert not queue._is_measured_on(here.gpu_uuid)
    for state in (Status.RUNNING, Status.CANCELLING):
        Job.objects.filter(pk=ended.job.pk).update(state=state)
        assert queue._is_measured_on(here.gpu_uuid)
        assert not queue._is_measured_on("GPU-2")
        assert next_job(LabBroker(WORKERS)) is None
    assert waiting.job.state == Status.QUEUED


# Notifications


def _notification(member: User, status: Delivery = Delivery.WAITING) -> Notification:
    sending = {"node": "lab-1", "heartbeat_at": timezone.now()}
    return make_notification(make_analysis(member, Status.FAILED), status=status, job=sending)


def test_a_notification_is_handed_out_like_a_prediction(here: nodes.Here, member: User) -> None:
    broker = LabBroker(WORKERS)
    first, second = _notification(member), _notification(member)

    assert next_job(broker) == first.job
    assert next_job(broker) is None  # it is being claimed
    Job.objects.filter(notification=first).update(state=Status.SUCCEEDED)
    assert next_job(broker) == second.job


def test_a_notification_waits_for_a_free_worker(
    here: nodes.Here, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "here", lambda: nodes.Here("lab-1", None, prediction_workers=1))
    claim = lease_on(make_analysis(member), "lab-1")
    lease_on(submit_query(member, QueryKind.PLAN), "lab-1")
    notification = _notification(member)
    assert next_job(LabBroker(WORKERS)) is None

    lease.finish(claim, CRASHED)
    assert next_job(LabBroker(WORKERS)) == notification.job


def test_a_prediction_waits_for_workers_sending_notifications(
    here: nodes.Here, enqueue: Enqueue, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "here", lambda: nodes.Here("lab-1", None, prediction_workers=1))
    for _ in range(2):
        _notification(member, Delivery.SENDING)
    waiting = enqueue()
    assert next_job(LabBroker(WORKERS)) is None

    Job.objects.filter(state=Status.RUNNING).update(state=Status.SUCCEEDED)
    assert next_job(LabBroker(WORKERS)) == waiting.job
