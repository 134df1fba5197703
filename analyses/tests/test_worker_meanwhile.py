"""What the worker does while its engine is still at work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from analyses import claims, pace, worker
from analyses.models import Analysis, Status
from analyses.tests.factories import make_analysis
from analyses.tests.fake_engine import GO

Behave = Callable[[str], list[str]]


@pytest.fixture
def go(tmp_path: Path, settings: Settings) -> Path:
    """Made, it tells the engine that behaves as ``until_told`` to go on."""
    settings.ENGINE_DEADLINE_SECONDS = 120  # or the test would wait for a quarter of an hour
    return tmp_path / GO


def _run(member: User) -> Analysis:
    analysis = make_analysis(member)
    worker.run_analysis(analysis.pk)
    analysis.refresh_from_db()
    return analysis


def test_trials_are_stored_while_the_engine_works(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch, go: Path
) -> None:
    fake_engine("until_told")
    stored: list[int] = []
    record = claims.record

    def spy(claim, trials, lines):  # type: ignore[no-untyped-def]  # as claims.record
        stored.append(len(list(trials)))
        record(claim, trials, lines)
        go.touch()  # until then the engine does not end

    monkeypatch.setattr(claims, "record", spy)
    analysis = _run(member)

    assert analysis.status == Status.SUCCEEDED
    assert stored[0] == 1


def test_a_heartbeat_is_given_while_the_engine_is_silent(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch, go: Path
) -> None:
    fake_engine("until_told")
    monkeypatch.setattr(pace, "HEARTBEAT_SECONDS", 0.2)
    beats: list[claims.Claim] = []

    def beat(claim: claims.Claim) -> None:
        beats.append(claim)
        if len(beats) == 3:
            go.touch()

    monkeypatch.setattr(claims, "heartbeat", beat)

    assert _run(member).status == Status.SUCCEEDED
    assert len(beats) >= 3


def test_a_lost_claim_ends_the_engine_and_changes_nothing(
    member: User, fake_engine: Behave, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine("until_told")  # nobody does
    analysis = make_analysis(member)
    claim = claims.claim

    def claimed_by_another(*taken: Any) -> claims.Claim | None:
        mine = claim(*taken)
        (pk, *_) = taken
        Analysis.objects.filter(pk=pk).update(status=Status.FAILED, failure_code="worker_lost")
        return mine

    monkeypatch.setattr(claims, "claim", claimed_by_another)
    worker.run_analysis(analysis.pk)

    analysis.refresh_from_db()
    assert analysis.failure_code == "worker_lost"
    assert not analysis.trials.exists()
