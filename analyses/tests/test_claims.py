from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from analyses import claims
from analyses.claims import Claim, ClaimLost
from analyses.engine_events import Failure
from analyses.models import FINAL_STATUSES, Analysis, Status
from analyses.tests.factories import make_analysis, make_result, make_trial
from engine.events import Log

WRITES: list[Callable[[Claim], None]] = [
    claims.heartbeat,
    lambda claim: claims.record(claim, [make_trial(16)], [Log("hello")]),
    lambda claim: claims.finish(claim, make_result()),
    lambda claim: claims.finish(claim, Failure("crashed", "it crashed")),
    lambda claim: claims.finish(claim, claims.Cancelled()),
    lambda claim: claims.finish(claim, claims.Interrupted()),
]


def _claim(analysis: Analysis) -> Claim:
    claim = claims.claim(analysis.pk, "node-1")
    assert claim is not None
    return claim


def test_a_claim_makes_it_running(member: User) -> None:
    analysis = make_analysis(member)
    claim = _claim(analysis)

    analysis.refresh_from_db()
    assert analysis.status == Status.RUNNING
    assert analysis.claim_token == claim.token
    assert analysis.started_at == analysis.heartbeat_at is not None
    assert (analysis.node, analysis.attempt, claim.attempt) == ("node-1", 1, 1)


@pytest.mark.parametrize("status", [Status.RUNNING, Status.CANCELLING, *FINAL_STATUSES])
def test_only_a_queued_analysis_can_be_claimed(member: User, status: Status) -> None:
    analysis = make_analysis(member, status)

    assert claims.claim(analysis.pk, "node-1") is None
    analysis.refresh_from_db()
    assert analysis.status == status


def test_of_two_claims_one_wins(member: User) -> None:
    analysis = make_analysis(member)

    assert claims.claim(analysis.pk, "node-1") is not None
    assert claims.claim(analysis.pk, "node-1") is None


def test_a_deleted_analysis_cannot_be_claimed(db: None) -> None:
    assert claims.claim(4711, "node-1") is None


def test_trials_and_log_are_stored_in_order(member: User) -> None:
    analysis = make_analysis(member)
    claim = _claim(analysis)

    claims.record(claim, [make_trial(16), make_trial(300)], [Log("a"), Log("b", "warning")])
    claims.record(claim, [make_trial(299)], [])

    assert [trial.batch_size for trial in analysis.trials.all()] == [16, 300, 299]
    first = analysis.trials.all()[0]
    assert first.peak_allocated_bytes == make_trial(16).peak_allocated_bytes
    assert first.breakdown == make_trial(16).breakdown
    lines = [(line.level, line.message) for line in analysis.log_lines.all()]
    assert lines == [("info", "a"), ("warning", "b")]


def test_success_fills_the_columns(member: User) -> None:
    analysis = make_analysis(member)
    result = make_result()
    claims.finish(_claim(analysis), result)

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


def test_success_without_savings(member: User) -> None:
    analysis = make_analysis(member)
    claims.finish(_claim(analysis), make_result(speedup=None, savings=None))

    analysis.refresh_from_db()
    assert analysis.status == Status.SUCCEEDED
    assert analysis.usd_per_year is None


def test_a_failure_keeps_code_and_reason(member: User) -> None:
    analysis = make_analysis(member)
    claims.finish(_claim(analysis), Failure("does_not_fit", "batch 1 needs 30 GiB"))

    analysis.refresh_from_db()
    assert analysis.status == Status.FAILED
    assert (analysis.failure_code, analysis.failure_reason) == (
        "does_not_fit",
        "batch 1 needs 30 GiB",
    )


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("status", [Status.QUEUED, *FINAL_STATUSES])
def test_no_write_without_a_running_row(
    member: User, write: Callable[[Claim], None], status: Status
) -> None:
    analysis = make_analysis(member, status, claim_token="mine")
    before = Analysis.objects.filter(pk=analysis.pk).values().get()
    trials = analysis.trials.count()

    with pytest.raises(ClaimLost):
        write(Claim(analysis.pk, "mine"))

    assert Analysis.objects.filter(pk=analysis.pk).values().get() == before
    assert analysis.trials.count() == trials
    assert not analysis.log_lines.exists()


@pytest.mark.parametrize("write", WRITES)
def test_no_write_with_another_workers_claim(member: User, write: Callable[[Claim], None]) -> None:
    analysis = make_analysis(member)
    _claim(analysis)

    with pytest.raises(ClaimLost):
        write(Claim(analysis.pk, "somebody else's"))

    assert not analysis.trials.exists()
    analysis.refresh_from_db()
    assert analysis.status == Status.RUNNING
