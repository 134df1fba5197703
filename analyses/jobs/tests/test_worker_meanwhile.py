"""Duties of a worker while its engine is still running."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from analyses.jobs import lease, timeouts, worker
from analyses.jobs.engine_output import Failure
from analyses.jobs.lifecycle import fail
from analyses.jobs.tests.fake_engine import GO
from analyses.models import Analysis, Job, Status
from analyses.tests.factories import add_trial, make_analysis, make_trial

pytestmark = pytest.mark.database

Behave = Callable[[str], list[str]]


@pytest.fixture
def go(tmp_path: Path, settings: Settings) -> Path:
    """A file whose creation lets the ``until_released`` engine continue."""
    settings.ENGINE_DEADLINE_SECONDS = 120  # or a failing test would wait for 15 minutes
    return tmp_path / GO


def _run(member: User) -> Analysis:
    analysis = make_analysis(member)
    worker.run(analysis.job.pk)
    analysis.refresh_from_db()
    return analysis


@pytest.mark.longer
def test_trials_are_stored_while_the_engine_works(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch, go: Path
) -> None:
    fake_engine("until_released")
    stored: list[int] = []
    record = lease.record

    def spy(claim, trials, lines):  # type: ignore[no-untyped-def]  # as claims.record
        stored.append(len(list(trials)))
        record(claim, trials, lines)
        go.touch()  # the engine does not end before

    monkeypatch.setattr(lease, "record", spy)
    analysis = _run(member)

    assert analysis.status == Status.SUCCEEDED
    assert stored[0] == 1


@pytest.mark.longer
def test_the_heartbeat_continues_while_the_engine_is_silent(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch, go: Path
) -> None:
    fake_engine("until_released")
    monkeypatch.setattr(timeouts, "HEARTBEAT_SECONDS", 0.2)
    beats: list[lease.Lease] = []

    def beat(claim: lease.Lease) -> None:
        beats.append(claim)
        if len(beats) == 3:
            go.touch()

    monkeypatch.setattr(lease, "renew", beat)

    assert _run(member).status == Status.SUCCEEDED
    assert len(beats) >= 3


@pytest.mark.longer
def test_a_frozen_engine_with_an_unread_request_ends_at_the_deadline(
    member: User, fake_engine: Behave, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine("success")
    settings.ENGINE_DEADLINE_SECONDS = 0.5
    monkeypatch.setattr("analyses.jobs.engine_process.TERM_GRACE_SECONDS", 0.2)
    engine = worker.engines.take()
    os.kill(engine.pid, signal.SIGSTOP)
    monkeypatch.setattr(worker.engines, "take", lambda _environment: engine)
    analysis = make_analysis(member)
    for size in range(1, 400):  # more than fits into a pipe
        add_trial(analysis, make_trial(size))
    worker.run(analysis.job.pk)

    analysis.refresh_from_db()
    assert (analysis.status, analysis.failure_code) == (Status.FAILED, "deadline")


@pytest.mark.longer
def test_a_lost_lease_ends_the_engine_and_changes_nothing(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine("until_released")  # no one releases it
    analysis = make_analysis(member)
    claim = lease.claim

    def claimed_by_another(*taken: Any) -> lease.Lease | None:
        mine = claim(*taken)
        (pk, *_) = taken
        lost = Failure("worker_lost", "It was lost.")
        assert fail(Job.objects.filter(pk=pk), lost)
        return mine

    monkeypatch.setattr(lease, "claim", claimed_by_another)
    worker.run(analysis.job.pk)

    analysis.refresh_from_db()
    assert analysis.failure_code == "worker_lost"
    assert not analysis.trials.exists()
