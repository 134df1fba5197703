from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError
from django.utils import timezone

from analyses.jobs import lease, queue, timeouts
from analyses.jobs.engine_output import Failure
from analyses.jobs.lease import Lease, LeaseExpired, LeaseLost, Renewal
from analyses.models import (
    FINAL_STATUSES,
    Analysis,
    Delivery,
    Job,
    LogLine,
    Query,
    QueryKind,
    QueryStatus,
    Status,
)
from analyses.tests.factories import (
    lease_on,
    make_analysis,
    make_notification,
    make_request,
    make_result,
    make_trial,
)
from engine.events import Answer, Log

pytestmark = pytest.mark.database

WRITES: list[Callable[[Lease], None]] = [
    lease.renew,
    lambda claim: lease.record(claim, [make_trial(16)], [Log("hello")]),
    lambda claim: lease.finish(claim, make_result()),
    lambda claim: lease.finish(claim, Failure("crashed", "it crashed")),
    lambda claim: lease.finish(claim, lease.Cancelled()),
    lambda claim: lease.finish(claim, lease.Interrupted()),
]


def test_a_claim_sets_the_analysis_to_running(member: User) -> None:
    analysis = make_analysis(member)
    claim = lease_on(analysis)

    analysis.refresh_from_db()
    assert analysis.status == Status.RUNNING
    job = analysis.job
    assert job.token == claim.token
    assert analysis.started_at is not None
    assert job.started_at == job.heartbeat_at is not None
    assert (job.node, job.attempts) == ("node-1", 1)
    assert (analysis.node, analysis.attempt, claim.attempt) == ("node-1", 1, 1)


@pytest.mark.parametrize("status", [Status.RUNNING, Status.CANCELLING, *FINAL_STATUSES])
def test_only_a_queued_analysis_can_be_claimed(member: User, status: Status) -> None:
    analysis = make_analysis(member, status)

    assert lease.claim(analysis.job.pk, "node-1") is None
    analysis.refresh_from_db()
    assert analysis.status == status


def test_only_one_of_two_claims_wins(member: User) -> None:
    analysis = make_analysis(member)

    assert lease.claim(analysis.job.pk, "node-1") is not None
    assert lease.claim(analysis.job.pk, "node-1") is None


def test_a_deleted_analysis_cannot_be_claimed(db: None) -> None:
    assert lease.claim(4711, "node-1") is None


def test_trials_and_log_are_stored_in_order(member: User) -> None:
    analysis = make_analysis(member)
    claim = lease_on(analysis)

    lease.record(claim, [make_trial(16), make_trial(300)], [Log("a"), Log("b", "warning")])
    lease.record(claim, [make_trial(299)], [])

    assert [trial.batch_size for trial in analysis.trials.all()] == [16, 300, 299]
    first = analysis.trials.all()[0]
    assert first.peak_allocated_bytes == make_trial(16).peak_allocated_bytes
    assert first.breakdown == make_trial(16).breakdown
    lines = [(line.level, line.message) for line in analysis.log_lines.all()]
    assert lines == [("info", "a"), ("warning", "b")]


def test_success_fills_the_result_columns(member: User) -> None:
    analysis = make_analysis(member)
    result = make_result()
    lease.finish(lease_on(analysis), result)

    analysis.refresh_from_db()
    assert analysis.status == Status.SUCCEEDED
    assert analysis.finished_at is not None
    assert analysis.result is not None
    assert analysis.result["verdict"] == result.verdict
    assert analysis.source == "predicted"
    assert analysis.largest_batch_size == result.largest_batch_size
    assert analysis.recommended_batch_size == result.recommended_batch_size
    assert analysis.speedup == result.speedup
    assert result.savings is not None
    assert analysis.usd_per_year == result.savings.usd_per_year


def test_success_without_savings_leaves_their_columns_empty(member: User) -> None:
    analysis = make_analysis(member)
    lease.finish(lease_on(analysis), make_result(speedup=None, savings=None))

    analysis.refresh_from_db()
    assert analysis.status == Status.SUCCEEDED
    assert analysis.usd_per_year is None


def test_a_failure_keeps_code_and_reason(member: User) -> None:
    analysis = make_analysis(member)
    lease.finish(lease_on(analysis), Failure("does_not_fit", "batch 1 needs 30 GiB"))

    analysis.refresh_from_db()
    assert analysis.status == Status.FAILED
    assert (analysis.failure_code, analysis.failure_reason) == (
        "does_not_fit",
        "batch 1 needs 30 GiB",
    )


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("status", [Status.QUEUED, *FINAL_STATUSES])
def test_writes_need_a_running_row(
    member: User, write: Callable[[Lease], None], status: Status
) -> None:
    analysis = make_analysis(member, status, token="mine")
    before = Analysis.objects.filter(pk=analysis.pk).values().get()
    trials = analysis.trials.count()

    with pytest.raises(LeaseLost):
        write(Lease(analysis.job.pk, "mine"))

    assert Analysis.objects.filter(pk=analysis.pk).values().get() == before
    assert analysis.trials.count() == trials
    assert not analysis.log_lines.exists()


@pytest.mark.parametrize("write", WRITES)
def test_writes_need_the_workers_own_lease(member: User, write: Callable[[Lease], None]) -> None:
    analysis = make_analysis(member)
    lease_on(analysis)

    with pytest.raises(LeaseLost):
        write(Lease(analysis.job.pk, "somebody else's"))

    assert not analysis.trials.exists()
    analysis.refresh_from_db()
    assert analysis.status == Status.RUNNING


def test_a_claim_stores_node_and_device(member: User) -> None:
    analysis, query = make_analysis(member), _query(member)
    claimed = lease.claim(analysis.job.pk, "node-1", "GPU-1", {"torch": "2.9"})
    lease_on(query, "node-2")

    analysis.refresh_from_db()
    assert claimed == Lease(analysis.job.pk, analysis.job.token, "analysis", analysis.pk, 1)
    assert (analysis.node, analysis.environment) == ("node-1", {"torch": "2.9"})
    assert analysis.job.device == "GPU-1"
    query.refresh_from_db()
    assert (query.status, query.node, query.job.node) == (QueryStatus.RUNNING, "node-2", "node-2")
    assert query.job.device == ""


def test_each_claim_is_a_new_attempt_with_a_new_token(member: User) -> None:
    analysis = make_analysis(member)
    first = lease_on(analysis)
    lease.record(first, [make_trial(16)], [])
    lease.finish(first, lease.Interrupted())
    second = lease_on(analysis)
    lease.record(second, [make_trial(300)], [])

    assert (first.attempt, second.attempt) == (1, 2)
    assert first.token != second.token
    assert list(analysis.trials.values_list("batch_size", "attempt")) == [(16, 1), (300, 2)]
    with pytest.raises(LeaseLost):
        lease.renew(first)


def test_a_lease_defaults_to_a_first_attempt() -> None:
    assert Lease(7, "t") == Lease(job_id=7, token="t", kind="", subject_id=0, attempt=1)


def test_renewing_sets_the_heartbeat_of_one_job(member: User) -> None:
    mine, others = (lease_on(make_analysis(member), node) for node in ("node-1", "node-2"))
    old = timezone.now() - timedelta(hours=1)
    Job.objects.update(heartbeat_at=old)
    lease.renew(mine)

    assert Job.objects.get(heartbeat_at=old).pk == others.job_id
    assert Job.objects.get(heartbeat_at__gt=old).pk == mine.job_id


def test_a_worker_must_end_a_job_that_is_cancelled_or_taken_over(member: User) -> None:
    analysis = make_analysis(member)
    claim = lease_on(analysis)
    assert lease.is_to_end(claim) is False
    assert lease.is_to_end(Lease(claim.job_id, "somebody else's")) is True
    for state in (Status.CANCELLING, Status.QUEUED, Status.SUCCEEDED):
        Job.objects.update(state=state)
        assert lease.is_to_end(claim) is True


def test_a_failed_write_stores_nothing(member: User, monkeypatch: pytest.MonkeyPatch) -> None:
    analysis = make_analysis(member)
    claim = lease_on(analysis)
    old = timezone.now() - timedelta(hours=1)
    Job.objects.update(heartbeat_at=old)

    def away(_rows: object) -> None:
        raise DatabaseError("away")

    monkeypatch.setattr(LogLine.objects, "bulk_create", away)
    with pytest.raises(DatabaseError):
        lease.record(claim, [make_trial(16)], [Log("a")])
    assert not analysis.trials.exists()
    assert Job.objects.get().heartbeat_at == old


# Queries and notifications


def _query(member: User) -> Query:
    query = Query.objects.create(kind=QueryKind.PLAN, request=make_request())
    query.askers.add(member)
    queue.enqueue(query)
    return query


def test_only_its_worker_can_write_the_progress_of_a_query(member: User) -> None:
    query, other = _query(member), _query(member)
    claim = lease_on(query)
    lease.record_progress(claim, "tracing")
    with pytest.raises(LeaseLost):
        lease.record_progress(Lease(claim.job_id, "x", claim.kind, query.pk), "overtaken")

    assert Query.objects.get(pk=query.pk).progress == "tracing"
    assert Query.objects.get(pk=other.pk).progress == ""


def test_an_answer_ends_a_query(member: User) -> None:
    query = _query(member)
    lease.finish(lease_on(query), Answer({"fits": True}))
    query.refresh_from_db()
    assert (query.status, query.answer) == (QueryStatus.ANSWERED, {"fits": True})


def test_a_sent_notification_has_no_error(member: User) -> None:
    notification = make_notification(
        make_analysis(member, Status.FAILED), last_error="the server was away"
    )
    claim = lease.claim(notification.job.pk, "node-1")
    assert claim is not None
    lease.finish(claim, lease.Sent())
    notification.refresh_from_db()
    assert (notification.status, notification.last_error) == (Delivery.SENT, "")
    assert notification.sent_at is not None


# Other ends


def test_outcomes_without_fields_only_equal_their_own_kind() -> None:
    ends = (lease.Sent, lease.Cancelled, lease.Interrupted)
    for one in ends:
        assert [one() == other() for other in ends] == [other is one for other in ends]


@pytest.mark.parametrize(
    "outcome",
    [make_result(), Failure("crashed", "it crashed"), lease.Cancelled(), lease.Interrupted()],
)
def test_a_job_to_be_cancelled_is_cancelled_whatever_its_outcome(
    member: User, outcome: lease.Outcome
) -> None:
    analysis = make_analysis(member)
    claim = lease_on(analysis)
    Job.objects.update(state=Status.CANCELLING)
    lease.finish(claim, outcome)

    analysis.refresh_from_db()
    assert (analysis.status, analysis.result, analysis.failure_code) == (Status.CANCELLED, None, "")
    assert not analysis.log_lines.exists()


def test_a_job_no_one_cancelled_is_not_cancelled(member: User) -> None:
    claim = lease_on(make_analysis(member))
    with pytest.raises(LeaseLost, match=f"job {claim.job_id} "):
        lease.finish(claim, lease.Cancelled())
    assert Job.objects.get().state == Status.RUNNING


def test_an_interrupted_job_is_queued_again_and_is_no_loss(member: User) -> None:
    analysis = make_analysis(member)
    lease.finish(lease_on(analysis, "node-7"), lease.Interrupted())

    analysis.refresh_from_db()
    assert (analysis.status, analysis.job.losses) == (Status.QUEUED, 0)
    assert "The worker on node-7 was stopped" in analysis.log_lines.get().message


# While the database does not respond


class Clock:
    """A clock that only moves when a worker waits."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        assert seconds > 0, "else it would try without end"
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lease, "monotonic", clock)
    monkeypatch.setattr(lease, "Event", lambda: clock)
    monkeypatch.setattr(timeouts, "LEASE_SECONDS", 10.0)
    return clock


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records each closing of the connection."""
    closed: list[str] = []
    connection = SimpleNamespace(close=lambda: closed.append("closed"))
    monkeypatch.setattr(lease, "connection", connection)
    return closed


def _away() -> None:
    raise DatabaseError("no route to host")


def _taken() -> None:
    pass


LEASE = Lease(7, "t")


def test_a_successful_write_renews_the_lease(clock: Clock, closed: list[str]) -> None:
    renewal = Renewal(LEASE)
    clock.now += 9

    def slowly() -> None:
        clock.now += 5

    assert renewal.write(slowly) is True
    assert (
        renewal.renewed_at == 1009
    )  # from the start of the write, when the database may have written
    assert not closed


def test_a_failed_write_is_retried_until_the_lease_expires(
    clock: Clock, closed: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    renewal = Renewal(LEASE)
    for now in (1000, 1009, 1010):  # until the very end
        clock.now = now
        assert renewal.write(_away) is False
    assert (len(closed), renewal.renewed_at) == (3, 1000)
    assert caplog.text.count("job 7: trying again: no route to host") == 3

    clock.now = 1010.001
    with pytest.raises(
        LeaseExpired, match="job 7: the database does not respond: no route"
    ) as expired:
        renewal.write(_away)
    assert isinstance(expired.value.__cause__, DatabaseError)
    assert len(closed) == 4


def test_a_write_renews_the_whole_lease(clock: Clock, closed: list[str]) -> None:
    renewal = Renewal(LEASE)
    clock.now += 8
    renewal.write(_taken)
    clock.now += 10
    assert renewal.write(_away) is False


def test_a_lost_lease_is_not_retried(clock: Clock, closed: list[str]) -> None:
    def lost() -> None:
        raise LeaseLost("it is another's")

    with pytest.raises(LeaseLost):
        Renewal(LEASE).write(lost)
    assert not closed


def test_the_last_write_is_retried_with_short_pauses(clock: Clock, closed: list[str]) -> None:
    tries = [_away, _away, _away, _taken]
    Renewal(LEASE).write_at_last(lambda: tries.pop(0)())
    assert not tries
    assert len(clock.waits) == 3
    assert all(seconds <= 1 for seconds in clock.waits)


def test_the_last_write_is_given_up_when_the_lease_expires(clock: Clock, closed: list[str]) -> None:
    with pytest.raises(LeaseExpired):
        Renewal(LEASE).write_at_last(_away)
    assert 10 < clock.now - 1000 <= 11


def test_an_unavailable_database_does_not_end_a_job(
    member: User, clock: Clock, closed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis = make_analysis(member)
    renewal = Renewal(lease_on(analysis))
    assert renewal.is_to_end() is False
    Job.objects.update(state=Status.CANCELLING)
    assert renewal.is_to_end() is True

    monkeypatch.setattr(lease, "is_to_end", lambda _lease: _away())
    assert renewal.is_to_end() is False
    assert closed == ["closed"]
    clock.now += 10.001
    with pytest.raises(LeaseExpired):
        renewal.is_to_end()
