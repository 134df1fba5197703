"""What counts as savings, however it came about: what is stored equals what is computed anew."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from datetime import date
from threading import Thread

import pytest
from django.apps import apps
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.db.models import DateTimeField, Max, Q
from django.db.models.functions import Coalesce, TruncMonth
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyses import claims, services
from analyses.claims import Outcome
from analyses.engine_events import Failure
from analyses.history.selection import delete
from analyses.models import Analysis, CountedSavings, Status
from analyses.savings.counting import counted_anew
from analyses.tests.factories import make_analysis, make_request, make_result, make_user
from engine.result import Source

INSTALLED_APPS = django_settings.INSTALLED_APPS
"""Named, the tables may be emptied in any order after a test that has committed."""

Counted = dict[tuple[int, str], tuple[int, bool, date, float, float]]


def stored() -> Counted:
    return {
        (row.owner_id, row.workload_key): (
            row.pk, row.is_realised, row.month, row.usd_per_year, row.gpu_hours_per_year,
        )
        for row in CountedSavings.objects.all()
    }  # fmt: skip


def computed() -> Counted:
    """The rule in one query over everything that was ever asked."""
    one_each = (
        Analysis.objects.filter(status=Status.SUCCEEDED)
        .order_by()
        .values("owner", "workload_key")
        .annotate(counted=Coalesce(Max("pk", filter=Q(adopted_at__isnull=False)), Max("pk")))
    )
    since = Coalesce("adopted_at", "finished_at", "queued_at", output_field=DateTimeField())
    return {
        (row.owner_id, row.workload_key): (
            row.pk, row.adopted_at is not None, row.month.date(),
            row.usd_per_year or 0.0, row.gpu_hours_per_year or 0.0,
        )
        for row in Analysis.objects.filter(pk__in=one_each.values("counted")).annotate(
            month=TruncMonth(since)
        )
    }  # fmt: skip


# Any history

ASKED: tuple[dict[str, object], ...] = (
    {"model": "bert", "gpu": "a10"},
    {"model": "gpt2", "gpu": "a10"},
    {"model": "bert", "gpu": "a10", "current_batch_size": 8},
)
RESULTS = (
    make_result(),
    make_result(recommended=16),
    make_result(source=Source.MEASURED, recommended=64),
    make_result(current=384),
)


def submit(owner: User, number: int) -> None:
    services.submit(owner, ASKED[number % len(ASKED)])


def finish(owner: User, number: int) -> None:
    waiting = list(Analysis.objects.filter(owner=owner, status=Status.QUEUED))
    if waiting:
        end(waiting[number % len(waiting)], RESULTS[number % len(RESULTS)])


def fail(owner: User, _number: int) -> None:
    if waiting := Analysis.objects.filter(owner=owner, status=Status.QUEUED).first():
        end(waiting, Failure("crashed", "it crashed"))


def adopt(owner: User, number: int) -> None:
    if analysis := one_of(owner, number):
        services.adopt(analysis, owner)


def take_back(owner: User, number: int) -> None:
    if analysis := one_of(owner, number):
        services.take_back(analysis, analysis.owner)


def remove(owner: User, number: int) -> None:
    if analysis := one_of(owner, number):
        delete([analysis], analysis.owner)


def one_of(owner: User, number: int) -> Analysis | None:
    found = list(Analysis.objects.filter(owner=owner))
    return found[number % len(found)] if found else None


def end(analysis: Analysis, outcome: Outcome) -> None:
    claim = claims.claim(analysis.pk, "node-1")
    assert claim is not None
    claims.finish(claim, outcome)


STEPS = st.tuples(
    st.sampled_from([submit, submit, finish, finish, fail, adopt, take_back, remove]),
    st.integers(0, 1),
    st.integers(0, 11),
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=8, max_size=20))
def test_after_any_steps_what_is_stored_is_what_is_computed(
    member: User, steps: list[tuple[Callable[[User, int], None], int, int]]
) -> None:
    with transaction.atomic():
        owners = [member, make_user("alan")]
        for step, owner, number in steps:
            step(owners[owner], number)
            assert stored() == computed()
        transaction.set_rollback(True)


def test_the_steps_come_to_something(member: User) -> None:
    for step in (submit, finish, submit, adopt, submit, finish):
        step(member, 0)
    assert len(stored()) == 1
    assert stored() == computed()


# Each way by itself


def test_an_earlier_one_counts_again_when_the_newest_is_deleted_in_the_admin(
    client: Client, member: User
) -> None:
    earlier, newest = (make_analysis(member, Status.SUCCEEDED) for _ in range(2))
    assert CountedSavings.objects.get().analysis == newest
    client.force_login(make_user("root", is_staff=True, is_superuser=True))
    client.post(reverse("admin:analyses_analysis_delete", args=[newest.pk]), {"post": "yes"})
    assert CountedSavings.objects.get().analysis == earlier
    ticked = {"action": "delete_selected", "_selected_action": [earlier.pk], "post": "yes"}
    client.post(reverse("admin:analyses_analysis_changelist"), ticked)
    assert not Analysis.objects.exists()
    assert not CountedSavings.objects.exists()


def test_where_a_change_fails_nothing_counts_otherwise(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    before = stored()
    this = Analysis.objects.filter(pk=analysis.pk)
    with pytest.raises(IntegrityError), transaction.atomic(), counted_anew(this):
        this.update(usd_per_year=1.0, status=None)
    assert stored() == before == computed()


def test_what_was_stored_earlier_counts_after_the_migration(member: User) -> None:
    for owner in (member, make_user("alan")):
        make_analysis(owner, Status.SUCCEEDED, adopted_at=timezone.now())
        make_analysis(owner, Status.SUCCEEDED)
        large = make_request(model="gpt2", current_batch_size=384)
        make_analysis(owner, Status.SUCCEEDED, make_result(current=384), request=large)
        make_analysis(owner, Status.FAILED, request=make_request(gpu="t4"))
    expected = stored()
    CountedSavings.objects.all().delete()
    name = "analyses.migrations.0014_counted_savings"
    importlib.import_module(name).fill(apps, None)
    assert len(expected) == 4
    assert stored() == expected == computed()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer at a time")
@pytest.mark.django_db(transaction=True, available_apps=INSTALLED_APPS)
def test_of_two_that_end_at_once_the_newest_counts() -> None:
    member = make_user("grace")
    older, newer = (make_analysis(member) for _ in range(2))

    def end_older() -> None:
        end(older, RESULTS[0])
        connection.close()

    other = Thread(target=end_older)
    with transaction.atomic():
        end(newer, RESULTS[0])
        other.start()
        while not _somebody_waits():
            assert other.is_alive()
    other.join()
    assert CountedSavings.objects.get().analysis == newer


def _somebody_waits() -> bool:
    """For this connection; another test run may use the same server."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM pg_locks"
            " WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))"
        )
        return bool(cursor.fetchone()[0])
