from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone
from django_q.models import OrmQ

from analyses import claims, queue, recovery, services
from analyses.models import Analysis, Status
from analyses.tests.factories import add_trial, make_analysis, make_trial

GOOD: dict[str, object] = {"model": "bert", "gpu": "a10"}


def _queued_ids() -> list[int]:
    return [entry.args()[0] for entry in OrmQ.objects.order_by("id")]


def _at_work(member: User, seconds_since_heartbeat: float, **fields: Any) -> Analysis:
    beat = timezone.now() - timedelta(seconds=seconds_since_heartbeat)
    held: dict[str, Any] = {"heartbeat_at": beat, "claim_token": "t", "attempt": 1}
    return make_analysis(member, fields.pop("status", Status.RUNNING), **held | fields)


def test_a_running_analysis_without_heartbeat_is_queued_once_more(member: User) -> None:
    analysis = _at_work(member, 120, node="node-1")
    add_trial(analysis, make_trial(16))
    recovery.recover()

    analysis.refresh_from_db()
    assert (analysis.status, analysis.losses) == (Status.QUEUED, 1)
    assert _queued_ids() == [analysis.pk]
    assert analysis.trials.count() == 1  # what was reported is kept
    said = analysis.log_lines.get().message
    assert "worker on node-1 stopped" in said
    assert "tried once more" in said


def test_the_second_time_it_is_lost_in_words(member: User) -> None:
    analysis = _at_work(member, 120, losses=1)
    recovery.recover()

    analysis.refresh_from_db()
    assert (analysis.status, analysis.failure_code) == (Status.LOST, "worker_lost")
    assert "not tried again by itself" in analysis.failure_reason
    assert analysis.finished_at is not None
    assert not _queued_ids()


def test_one_to_be_cancelled_is_cancelled(member: User) -> None:
    analysis = _at_work(member, 120, status=Status.CANCELLING)
    recovery.recover()

    analysis.refresh_from_db()
    assert analysis.status == Status.CANCELLED
    assert not _queued_ids()


@pytest.mark.parametrize("status", Status)
def test_what_is_alive_or_final_is_left_alone(member: User, status: Status) -> None:
    alive = _at_work(member, 3, status=status)
    if status not in (Status.RUNNING, Status.CANCELLING):
        Analysis.objects.update(heartbeat_at=timezone.now() - timedelta(days=1))
    recovery.reap()

    alive.refresh_from_db()
    assert alive.status == status


def test_the_worker_that_was_given_up_can_write_nothing_more(member: User) -> None:
    analysis = make_analysis(member)
    claim = claims.claim(analysis.pk, "node-1")
    assert claim is not None
    Analysis.objects.update(heartbeat_at=timezone.now() - timedelta(seconds=120))
    recovery.reap()

    with pytest.raises(claims.ClaimLost):
        claims.finish(claim, claims.Interrupted())
    assert _queued_ids() == [analysis.pk]


def test_a_queued_analysis_without_an_entry_is_queued_again(member: User) -> None:
    kept = services.submit(member, GOOD)
    lost = services.submit(member, GOOD | {"current_batch_size": 8})
    OrmQ.objects.order_by("id").last().delete()
    call_command("recover")
    call_command("recover")

    assert _queued_ids() == [kept.pk, lost.pk]


def test_an_entry_signed_with_another_key_counts_as_lost(member: User) -> None:
    analysis = services.submit(member, GOOD)
    OrmQ.objects.update(payload="forged:payload")

    assert recovery.requeue_lost() == 1
    assert OrmQ.objects.last().args() == (analysis.pk,)


def test_what_a_dead_pool_had_fetched_is_free_for_the_next(member: User) -> None:
    services.submit(member, GOOD)
    OrmQ.objects.update(lock=timezone.now() + timedelta(hours=1))
    recovery.recover()
    assert not OrmQ.objects.filter(lock__lt=timezone.now()).exists()  # it may be in good hands

    queue.release_locked()
    assert OrmQ.objects.filter(lock__lt=timezone.now()).count() == 1
