"""The states of an analysis: every way there is, and none besides."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from analyses import claims, lifecycle, services
from analyses.models import AT_WORK, FINAL_STATUSES, Analysis, Status
from analyses.tests.factories import make_analysis

ALLOWED = [(start, end) for start, ends in lifecycle.NEXT.items() for end in sorted(ends)]
FORBIDDEN = [pair for pair in product(Status, Status) if pair not in ALLOWED]


@pytest.mark.parametrize(("start", "end"), ALLOWED)
def test_an_allowed_move_happens_once(member: User, start: Status, end: Status) -> None:
    analysis = make_analysis(member, start)
    this = Analysis.objects.filter(pk=analysis.pk)

    assert lifecycle.move(this, start, end) == 1
    assert lifecycle.move(this, start, end) == 0
    analysis.refresh_from_db()
    assert analysis.status == end
    assert (analysis.finished_at is not None) == (end in FINAL_STATUSES)


@pytest.mark.parametrize(("start", "end"), FORBIDDEN)
def test_any_other_move_is_a_mistake(member: User, start: Status, end: Status) -> None:
    analysis = make_analysis(member, start)
    with pytest.raises(ValueError, match="never goes"):
        lifecycle.move(Analysis.objects.filter(pk=analysis.pk), start, end)

    analysis.refresh_from_db()
    assert analysis.status == start


def test_a_final_state_is_never_left() -> None:
    assert not any(lifecycle.NEXT[status] for status in FINAL_STATUSES)


@pytest.mark.parametrize("status", Status)
def test_cancelling_in_each_state(member: User, status: Status) -> None:
    expected = {
        Status.QUEUED: Status.CANCELLED,
        Status.RUNNING: Status.CANCELLING,
    }.get(status, status)
    analysis = make_analysis(member, status, heartbeat_at=timezone.now())

    assert services.cancel(analysis, member) == (expected != status)
    analysis.refresh_from_db()
    assert analysis.status == expected


def test_what_a_dead_worker_holds_is_cancelled_at_once(member: User) -> None:
    old = timezone.now() - timedelta(seconds=15)
    analysis = make_analysis(member, Status.RUNNING, heartbeat_at=old)
    services.cancel(analysis, member)

    analysis.refresh_from_db()
    assert analysis.status == Status.CANCELLED


def test_a_gpu_is_held_once(member: User) -> None:
    first, second = (make_analysis(member, measured_gpu="NVIDIA A10") for _ in range(2))
    mine = claims.claim(first.pk, "node-1", "GPU-1")
    assert mine is not None

    assert claims.claim(second.pk, "node-2", "GPU-1") is None
    claims.finish(mine, claims.Interrupted())
    assert claims.claim(second.pk, "node-2", "GPU-1") is not None
    assert Analysis.objects.filter(status__in=AT_WORK).count() == 1
