from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone
from django_q.models import OrmQ

from analyses import nodes, recovery, services, worker
from analyses.models import Analysis, Node, Status
from analyses.tests.factories import make_analysis

GOOD: dict[str, object] = {"model": "bert", "gpu": "a10"}


def _queued_ids() -> list[int]:
    return [entry.args()[0] for entry in OrmQ.objects.order_by("id")]


def _running(member: User, seconds_since_heartbeat: float) -> Analysis:
    beat = timezone.now() - timedelta(seconds=seconds_since_heartbeat)
    return make_analysis(member, Status.RUNNING, heartbeat_at=beat, claim_token="t")


def test_a_running_analysis_without_heartbeat_fails_in_words(member: User) -> None:
    analysis = _running(member, 120)
    recovery.recover()

    analysis.refresh_from_db()
    assert (analysis.status, analysis.failure_code) == (Status.FAILED, "worker_lost")
    assert "run it again" in analysis.failure_reason
    assert analysis.finished_at is not None


def test_what_is_alive_or_final_is_left_alone(member: User) -> None:
    alive = _running(member, 3)
    old = timezone.now() - timedelta(days=1)
    done = make_analysis(member, Status.SUCCEEDED, heartbeat_at=old)
    recovery.recover()

    alive.refresh_from_db()
    done.refresh_from_db()
    assert (alive.status, done.status) == (Status.RUNNING, Status.SUCCEEDED)


def test_the_worker_that_was_given_up_can_write_nothing_more(member: User) -> None:
    analysis = make_analysis(member)
    claim = services.claim(analysis.pk)
    assert claim is not None
    Analysis.objects.update(heartbeat_at=timezone.now() - timedelta(seconds=120))
    recovery.fail_stale()

    with pytest.raises(services.ClaimLost):
        services.fail(claim, "crashed", "late")


def test_a_queued_analysis_without_an_entry_is_queued_again(member: User) -> None:
    kept = services.submit(member, GOOD)
    lost = services.submit(member, GOOD)
    OrmQ.objects.order_by("id").last().delete()
    recovery.recover()
    recovery.recover()

    assert _queued_ids() == [kept.pk, lost.pk]


def test_an_entry_signed_with_another_key_counts_as_lost(member: User) -> None:
    analysis = services.submit(member, GOOD)
    OrmQ.objects.update(payload="forged:payload")

    assert recovery.requeue_lost() == 1
    assert OrmQ.objects.last().args() == (analysis.pk,)


def test_an_entry_that_a_dead_cluster_had_fetched_is_free_at_the_next_start(
    member: User,
) -> None:
    services.submit(member, GOOD)
    OrmQ.objects.update(lock=timezone.now() + timedelta(hours=1))
    call_command("recover")

    assert OrmQ.objects.filter(lock__lt=timezone.now()).count() == 1


def test_an_entry_in_hand_is_not_freed_while_the_cluster_runs(member: User) -> None:
    services.submit(member, GOOD)
    OrmQ.objects.update(lock=timezone.now() + timedelta(hours=1))
    nodes.beat(None)

    assert not OrmQ.objects.filter(lock__lt=timezone.now()).exists()
    assert OrmQ.objects.count() == 1


def test_stale_means_many_missed_heartbeats() -> None:
    from analyses.selectors import STALE_AFTER

    slowest = max(worker.HEARTBEAT_SECONDS, nodes.HEARTBEAT_SECONDS)
    assert STALE_AFTER.total_seconds() >= 5 * slowest


def test_the_heartbeat_of_a_node_also_recovers(member: User) -> None:
    analysis = _running(member, 120)
    nodes.beat(nodes.LocalGpu("NVIDIA A10", 24_146_608_128))

    analysis.refresh_from_db()
    assert analysis.status == Status.FAILED
    node = Node.objects.get()
    assert (node.gpu_name, node.gpu_total_bytes) == ("NVIDIA A10", 24_146_608_128)
