from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from analyses.models import Analysis, Status
from analyses.presentation import LONG_WAIT_SECONDS, global_batch_advice, state_of
from analyses.tests.factories import make_global_batch, make_result
from engine.workload import Parallelism, Workload

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


def test_the_global_batch_is_kept_by_accumulation() -> None:
    assert global_batch_advice(make_result()) == ""
    kept = global_batch_advice(make_result(global_batch=make_global_batch()))
    assert kept == "Take 4 micro-batches of 128 to one optimizer step: 512 samples."
    whole = make_result(global_batch=make_global_batch(128, 1, 128))
    assert global_batch_advice(whole).startswith("Take one batch of 128 to")


def test_a_global_batch_that_cannot_be_kept_exactly_is_said_so() -> None:
    workload = Workload(model="bert", parallelism=Parallelism.DDP, world_size=2)
    uneven = make_result(global_batch=make_global_batch(500, 2, 512), workload=workload)
    advice = global_batch_advice(uneven)
    assert "on each of 2 GPUs" in advice
    assert "512 samples, since no allowed batch divides 500 evenly" in advice


@pytest.mark.parametrize(
    ("status", "waited", "preposition", "ticks", "hinted"),
    [
        (Status.QUEUED, 3, "for", True, False),
        (Status.QUEUED, LONG_WAIT_SECONDS + 1, "for", True, True),
        (Status.RUNNING, 60, "for", True, False),
        (Status.SUCCEEDED, 60, "in", False, False),
        (Status.FAILED, 60, "after", False, False),
    ],
)
def test_the_state_says_how_long_it_took(
    status: Status, waited: float, preposition: str, ticks: bool, hinted: bool
) -> None:
    begun = NOW - timedelta(seconds=waited)
    analysis = Analysis(status=status, queued_at=begun)
    if status != Status.QUEUED:
        analysis.started_at = begun
    if analysis.is_final:
        analysis.finished_at = begun + timedelta(seconds=5)
    state = state_of(analysis, NOW)
    assert (state.preposition, state.ticks) == (preposition, ticks)
    assert state.elapsed_seconds == (5 if analysis.is_final else waited)
    assert bool(state.hint) == hinted
