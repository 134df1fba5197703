"""Jobs that the broker hands out, and those that it holds back for later or another node."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_q.models import OrmQ
from django_q.signing import SignedPackage
from pytest_django import DjangoAssertNumQueries, Settings

from analyses.jobs import lease, nodes, queue, supervisor, timeouts
from analyses.jobs.keys import key_fingerprint
from analyses.jobs.queue import INTERACTIVE, WORKERS, LabBroker
from analyses.jobs.tests.queueing import CRASHED, Clock, Enqueue, next_job, submit_query
from analyses.models import (
    Analysis,
    Job,
    JobKind,
    Node,
    Notification,
    Query,
    QueryKind,
    Status,
)
from analyses.tests.factories import lease_on, make_analysis, make_notification, make_user

pytestmark = pytest.mark.database


def test_the_oldest_job_comes_first_and_the_next_when_it_is_done(
    here: nodes.Here, enqueue: Enqueue
) -> None:
    broker = LabBroker(WORKERS)
    first, second = enqueue(), enqueue()

    assert next_job(broker) == first.job
    assert next_job(broker) is None  # it is being claimed
    claim = lease_on(first, here.name)
    assert next_job(broker) is None  # the one worker for predictions is busy
    lease.finish(claim, CRASHED)
    assert next_job(broker) == second.job


def test_another_node_takes_jobs_waiting_for_a_busy_one(
    here: nodes.Here, enqueue: Enqueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = enqueue(), enqueue()
    assert next_job(LabBroker(WORKERS)) == first.job
    lease_on(first, here.name)

    other = nodes.Here("lab-2", None, prediction_workers=1)
    monkeypatch.setattr(nodes, "here", lambda: other)
    assert next_job(LabBroker(WORKERS)) == second.job


def test_predictions_do_not_wait_behind_a_measurement(here: nodes.Here, enqueue: Enqueue) -> None:
    broker = LabBroker(WORKERS)
    measured, waiting, predicted = (
        enqueue(measured_gpu="NVIDIA A10"),
        enqueue(measured_gpu="NVIDIA A10"),
        enqueue(),
    )

    assert next_job(broker) == measured.job
    lease_on(measured, here.name, here.gpu_uuid)
    assert next_job(broker) == predicted.job
    lease_on(predicted, here.name)
    assert next_job(broker) is None
    assert waiting.status == Status.QUEUED


def test_members_take_turns(here: nodes.Here, enqueue: Enqueue) -> None:
    broker = LabBroker(WORKERS)
    lin, ada = make_user("lin"), make_user("ada")
    many = [enqueue() for _ in range(3)]
    theirs, last = [make_analysis(lin), make_analysis(lin)], make_analysis(ada)

    order = []
    while job := next_job(broker):
        order.append(job)
        claim = lease.claim(job.pk, here.name)
        assert claim is not None
        lease.finish(claim, CRASHED)
    expected = [many[0], theirs[0], last, many[1], theirs[1], many[2]]
    assert order == [analysis.job for analysis in expected]


def test_a_member_without_a_running_analysis_comes_first(
    here: nodes.Here, enqueue: Enqueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another node runs the others'."""
    running, _waiting = enqueue(), enqueue()
    theirs = make_analysis(make_user("lin"))
    lease_on(running, "lab-2")
    assert next_job(LabBroker(WORKERS)) == theirs.job


def test_what_waits_for_a_busy_worker_is_not_read(here: nodes.Here, enqueue: Enqueue) -> None:
    lease_on(enqueue(), here.name)
    enqueue()
    with CaptureQueriesContext(connection) as queries:
        assert next_job(LabBroker(WORKERS)) is None
    (read,) = [query["sql"] for query in queries if "GROUP BY" in query["sql"]]
    assert queue.PLANS in read
    assert queue.PREDICTIONS not in read


def test_choosing_takes_as_many_queries_however_many_wait(
    here: nodes.Here, db: None, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(10):
        make_analysis(make_user(f"member-{number}"))
    with django_assert_num_queries(8):
        assert LabBroker(WORKERS).dequeue()


def test_a_job_of_an_earlier_version_without_an_owner_is_handed_out(
    here: nodes.Here, enqueue: Enqueue
) -> None:
    first = enqueue()
    Job.objects.update(owner=None)
    assert next_job(LabBroker(WORKERS)) == first.job


def test_a_measurement_goes_to_a_node_with_that_gpu(here: nodes.Here, enqueue: Enqueue) -> None:
    enqueue(measured_gpu="NVIDIA H100 80GB HBM3")
    assert next_job(LabBroker(WORKERS)) is None

    mine = enqueue(measured_gpu="NVIDIA A10")
    assert next_job(LabBroker(WORKERS)) == mine.job


def test_a_gpu_another_worker_measures_on_is_not_free(here: nodes.Here, enqueue: Enqueue) -> None:
    held, waiting = enqueue(measured_gpu="NVIDIA A10"), enqueue(measured_gpu="NVIDIA A10")
    claim = lease_on(held, "the same machine by another name", here.gpu_uuid)

    assert next_job(LabBroker(WORKERS)) is None
    lease.finish(claim, CRASHED)
    assert next_job(LabBroker(WORKERS)) == waiting.job


def test_a_draining_node_takes_nothing(here: nodes.Here, enqueue: Enqueue, member: User) -> None:
    Node.objects.create(name=here.name, heartbeat_at=timezone.now(), draining=True)
    enqueue()
    submit_query(member, QueryKind.PREDICT)
    assert next_job(LabBroker(WORKERS)) is None
    assert next_job(LabBroker(INTERACTIVE)) is None


def test_a_job_handed_out_is_not_handed_out_again_immediately(
    here: nodes.Here, enqueue: Enqueue
) -> None:
    analysis = enqueue()
    assert next_job(LabBroker(WORKERS)) == analysis.job
    assert next_job(LabBroker(WORKERS)) is None


def test_an_unclaimed_job_does_not_block_the_rest_and_comes_again(
    here: nodes.Here, enqueue: Enqueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = LabBroker(WORKERS)
    first, second = enqueue(), enqueue()
    assert next_job(broker) == first.job
    broker._handed_at -= queue.HANDED_OVER.total_seconds() + 1
    assert next_job(broker) == second.job

    Job.objects.update(not_before=timezone.now() - timedelta(seconds=1))
    assert next_job(LabBroker(WORKERS)) == first.job


def test_a_dead_worker_does_not_count_as_busy(here: nodes.Here, enqueue: Enqueue) -> None:
    gone, waiting = enqueue(), enqueue()
    lease_on(gone, here.name)
    old = timezone.now() - timeouts.SILENT_AFTER - timedelta(seconds=1)
    Job.objects.filter(pk=gone.job.pk).update(heartbeat_at=old)
    assert next_job(LabBroker(WORKERS)) == waiting.job


def test_a_job_queued_with_another_key_is_reported_once(
    here: nodes.Here, enqueue: Enqueue, caplog: pytest.LogCaptureFixture
) -> None:
    Node.objects.create(name=here.name, heartbeat_at=timezone.now())
    for _ in range(2):
        enqueue()
    Job.objects.update(key="another key's")
    broker = LabBroker(WORKERS)

    for _ in range(2):
        job = next_job(broker)
        assert job is not None
        claim = lease.claim(job.pk, here.name)
        assert claim is not None
        lease.finish(claim, CRASHED)
    assert caplog.text.count(queue.ANOTHER_KEY) == 1


def test_a_node_is_not_accused_by_what_another_node_queued(
    here: nodes.Here, member: User, caplog: pytest.LogCaptureFixture
) -> None:
    """A node with the wrong key queues the notifications of what it has finished."""
    make_notification(make_analysis(member, Status.FAILED))
    Job.objects.update(key="another key's")
    assert next_job(LabBroker(WORKERS)) is not None
    assert queue.ANOTHER_KEY not in caplog.text


def test_nothing_in_the_database_is_unpickled(here: nodes.Here, enqueue: Enqueue) -> None:
    """django-q2's own queue holds pickles; rows there are ignored."""
    OrmQ.objects.create(key=WORKERS, payload="forged:payload", lock=timezone.now())
    analysis = enqueue()
    assert next_job(LabBroker(WORKERS)) == analysis.job
    assert OrmQ.objects.count() == 1


# What is handed out


def test_a_package_has_the_function_to_run_and_saves_nothing(
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


def test_a_worker_has_the_full_time_to_claim_its_job(
    here: nodes.Here, enqueue: Enqueue, clock: Clock
) -> None:
    broker = LabBroker(WORKERS)
    first, second = enqueue(), enqueue()
    begun_at = timezone.now()
    assert next_job(broker) == first.job
    free_again = Job.objects.get(pk=first.job.pk).not_before
    a_moment = timedelta(milliseconds=2)  # rounding of clocks
    assert begun_at - a_moment <= free_again - queue.HANDED_OVER <= timezone.now() + a_moment

    clock.now += queue.HANDED_OVER.total_seconds()
    assert next_job(broker) is None
    clock.now += 0.001
    assert next_job(broker) == second.job


def test_a_job_another_node_takes_at_the_same_moment_is_not_handed_out(
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
        submit_query(member, QueryKind.PREDICT, 1),
        submit_query(member, QueryKind.PREDICT, 2, page=True),
        submit_query(member, QueryKind.PLAN),
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
    assert {(job.state, job.key) for job in jobs} == {(Status.QUEUED, key_fingerprint())}
    assert [job.subject_id for job in jobs] == [subject.pk for subject in subjects]


def test_the_fingerprint_of_the_key_fits_its_column_and_depends_on_the_key(
    settings: Settings,
) -> None:
    key_fingerprint.cache_clear()
    ours = key_fingerprint()
    assert len(ours) == Job._meta.get_field("key").max_length
    settings.SECRET_KEY = "another's"  # noqa: S105  # a test's
    assert key_fingerprint() == ours  # computed once per process
    key_fingerprint.cache_clear()
    assert key_fingerprint() != ours
    key_fingerprint.cache_clear()


def test_a_job_without_a_key_or_with_ours_is_not_reported(
    here: nodes.Here, enqueue: Enqueue, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs of an earlier version have none."""
    jobs = [enqueue().job for _ in range(3)]
    Job.objects.filter(pk=jobs[0].pk).update(key="")
    Job.objects.filter(pk=jobs[2].pk).update(key="another key's")
    for job, reports in zip(jobs, (0, 0, 1), strict=True):
        assert next_job(LabBroker(WORKERS)) == job
        lease.claim(job.pk, here.name)
        Job.objects.filter(pk=job.pk).update(state=Status.SUCCEEDED)
        assert caplog.text.count(queue.ANOTHER_KEY) == reports
