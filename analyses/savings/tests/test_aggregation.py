"""Stored savings always equal freshly computed ones, after any history."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from datetime import timezone as fixed_timezone
from threading import Thread

import pytest
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

from analyses import services
from analyses.jobs import lease
from analyses.jobs.engine_output import Failure
from analyses.jobs.lease import Outcome
from analyses.models import Analysis, CountedSavings, RunSavings, Status, TrainingRun
from analyses.models.savings import NO_RUN_YET
from analyses.pages.history.selection import delete_analyses
from analyses.savings.aggregation import columns_of, recounting, workload_key
from analyses.tests.factories import (
    EarlierApps,
    make_analysis,
    make_request,
    make_result,
    make_training,
    make_user,
    recount,
)
from analyses.tests.first_version import NEW_IN_WORKLOADS
from engine.interface.trial import Source

pytestmark = pytest.mark.database


@pytest.mark.parametrize(
    "change",
    [
        {"current_batch_size": 64},
        {"batch_multiple": 8},
        {"gradient_accumulation": 4},
        {"global_batch_size": 512},
        {"hours_per_run": 2, "runs_per_year": 3, "price_per_hour_usd": 4},
    ],
)
def test_batch_sizes_and_assumptions_are_not_part_of_the_workload(
    change: dict[str, object],
) -> None:
    assert workload_key(make_request(**change)) == workload_key(make_request())


@pytest.mark.parametrize(
    "change",
    [
        {"model": "gpt2"},
        {"gpu": "t4"},
        {"precision": "fp16-mixed"},
        {"optimizer": "sgd"},
        {"sequence_length": 64},
        {"sequence_length": 256},
        {"lora_rank": 8},
        {"memory_limit_bytes": 2**33},
        {"label_count": 7},
    ],
)
def test_a_different_workload_or_gpu_has_a_different_key(change: dict[str, object]) -> None:
    assert workload_key(make_request(**change)) != workload_key(make_request())


def test_a_request_of_the_first_version_has_the_same_workload() -> None:
    old = {name: value for name, value in make_request().items() if name not in NEW_IN_WORKLOADS}
    assert workload_key(old) == workload_key(make_request())


def test_a_key_depends_on_the_settings_and_not_on_their_storage_format() -> None:
    request = make_request(precision="fp16-mixed", sequence_length=300, lora_rank=8)
    read = json.loads(json.dumps(request))
    backwards = dict(reversed(request.items()))
    left_empty = request | dict.fromkeys(set(NEW_IN_WORKLOADS) - {"lora_rank"})
    assert workload_key(read) == workload_key(backwards) == workload_key(request)
    assert workload_key(left_empty) == workload_key(request)


def test_an_unset_memory_limit_is_not_a_smaller_gpu() -> None:
    request = make_request()
    without = {name: value for name, value in request.items() if name != "memory_limit_bytes"}
    assert workload_key(without) == workload_key(request | {"memory_limit_bytes": None})


def test_a_removed_model_still_has_a_key() -> None:
    assert workload_key(make_request() | {"model": "a model of long ago"})


def test_a_measured_gpu_equals_the_catalogue_gpu_of_the_same_name() -> None:
    local = make_request(gpu="local")
    assert workload_key(local, "NVIDIA A10") == workload_key(make_request(gpu="a10"))
    assert workload_key(local, "NVIDIA Unheard-of") != workload_key(local, "NVIDIA A10")


def test_a_submitted_analysis_has_its_key(member: User) -> None:
    request = make_request()
    assert services.submit(member, request).workload_key == workload_key(request)


def test_a_migration_gives_earlier_analyses_their_savings_columns(member: User) -> None:
    succeeded = make_analysis(member, Status.SUCCEEDED)
    failed = make_analysis(member, Status.FAILED)
    Analysis.objects.update(workload_key="", gpu_hours_per_year=None)
    name = "analyses.migrations.0006_savings_of_earlier_analyses"
    importlib.import_module(name).fill(EarlierApps(), None)
    for analysis in (succeeded, failed):
        before = analysis.workload_key, analysis.gpu_hours_per_year
        analysis.refresh_from_db()
        assert (analysis.workload_key, analysis.gpu_hours_per_year) == before
    assert succeeded.gpu_hours_per_year


INSTALLED_APPS = django_settings.INSTALLED_APPS
"""Named, the tables may be emptied in any order after a test that has committed."""

Counted = dict[str, tuple[int, int, bool, date, float, float]]


def stored() -> Counted:
    return {
        row.workload_key: (
            row.pk, row.member_id, row.is_realised, row.month, row.usd_per_year,
            row.gpu_hours_per_year,
        )
        for row in CountedSavings.objects.all()
    }  # fmt: skip


def computed() -> Counted:
    """The rule as one query over all analyses."""
    one_each = (
        Analysis.objects.filter(status=Status.SUCCEEDED)
        .order_by()
        .values("workload_key")
        .annotate(counted=Coalesce(Max("pk", filter=Q(adopted_at__isnull=False)), Max("pk")))
    )
    since = Coalesce("adopted_at", "finished_at", "queued_at", output_field=DateTimeField())
    return {
        row.workload_key: (
            row.pk, row.adopted_by_id or row.owner_id, row.adopted_at is not None,
            row.month.date(), row.usd_per_year or 0.0, row.gpu_hours_per_year or 0.0,
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


def undo(owner: User, number: int) -> None:
    if analysis := one_of(owner, number):
        services.undo_adoption(analysis, analysis.owner)


def remove(owner: User, number: int) -> None:
    if analysis := one_of(owner, number):
        delete_analyses([analysis], analysis.owner)


def one_of(owner: User, number: int) -> Analysis | None:
    found = list(Analysis.objects.filter(owner=owner))
    return found[number % len(found)] if found else None


def end(analysis: Analysis, outcome: Outcome) -> None:
    claim = lease.claim(analysis.job.pk, "node-1")
    assert claim is not None
    lease.finish(claim, outcome)


STEPS = st.tuples(
    st.sampled_from([submit, submit, finish, finish, fail, adopt, undo, remove]),
    st.integers(0, 1),
    st.integers(0, 11),
)


@pytest.mark.longer
@settings(
    max_examples=settings().max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=8, max_size=20))
def test_after_any_steps_stored_savings_equal_computed_ones(
    member: User, steps: list[tuple[Callable[[User, int], None], int, int]]
) -> None:
    with transaction.atomic():
        owners = [member, make_user("alan")]
        for step, owner, number in steps:
            step(owners[owner], number)
            assert stored() == computed()
        transaction.set_rollback(True)


def test_the_random_steps_lead_to_savings(member: User) -> None:
    for step in (submit, finish, submit, adopt, submit, finish):
        step(member, 0)
    assert len(stored()) == 1
    assert stored() == computed()


# One row


JANUARY, FEBRUARY, MARCH = (datetime(2026, month, 15, tzinfo=UTC) for month in (1, 2, 3))


@pytest.mark.parametrize(
    ("adopted_at", "finished_at", "month"),
    [
        (MARCH, FEBRUARY, date(2026, 3, 1)),
        (MARCH, None, date(2026, 3, 1)),
        (None, FEBRUARY, date(2026, 2, 1)),
        (None, None, date(2026, 1, 1)),
    ],
)
def test_savings_count_from_adoption_or_else_the_result_or_else_submission(
    adopted_at: datetime | None, finished_at: datetime | None, month: date
) -> None:
    analysis = Analysis(queued_at=JANUARY, finished_at=finished_at, adopted_at=adopted_at)
    columns = columns_of(analysis)
    assert (columns["month"], columns["is_realised"]) == (month, adopted_at is not None)


def test_months_are_in_utc() -> None:
    """In any time zone of the process, since others read the row."""
    east = fixed_timezone(timedelta(hours=9))
    new_year_there = datetime(2026, 1, 1, 3, tzinfo=east)
    assert columns_of(Analysis(queued_at=new_year_there))["month"] == date(2025, 12, 1)


def test_a_row_copies_the_columns_it_is_counted_by(member: User) -> None:
    analysis = Analysis(
        pk=7,
        owner=member,
        workload_key="key",
        model="bert",
        gpu="local",
        measured_gpu="NVIDIA A10",
        source="measured",
        usd_per_year=2.5,
        queued_at=JANUARY,
    )
    assert columns_of(analysis) == {
        "analysis_id": 7,
        "project_id": None,
        "member_id": member.pk,
        "month": date(2026, 1, 1),
        "since_day": date(2026, 1, 15).toordinal(),
        "assumed_until": NO_RUN_YET,
        "is_realised": False,
        "is_verified": False,
        "at_low_end": False,
        "workload_key": "key",
        "model": "bert",
        "gpu": "local",
        "measured_gpu": "NVIDIA A10",
        "source": "measured",
        "usd_per_year": 2.5,
        "usd_per_year_low": 2.5,
        "usd_per_year_high": 2.5,
        "gpu_hours_per_year": 0.0,
        "kwh_per_year": None,
        "kg_co2e_per_year": None,
    }


def test_an_adopted_analysis_counts_over_a_newer_one(member: User) -> None:
    counted = []
    for adopted_at in (None, MARCH, None, FEBRUARY, None):
        made = make_analysis(member, Status.SUCCEEDED, adopted_at=adopted_at)
        counted.append((CountedSavings.objects.get().analysis_id, made.pk))
    numbers = [pk for _, pk in counted]
    assert [pk for pk, _ in counted] == [numbers[at] for at in (0, 1, 1, 3, 3)]


def test_where_there_was_no_batch_nothing_is_saved(member: User) -> None:
    counted = make_analysis(member, Status.SUCCEEDED)
    newer = make_analysis(member, Status.SUCCEEDED, make_result(current=None))
    assert CountedSavings.objects.get().analysis == counted
    services.adopt(newer, member)
    assert CountedSavings.objects.get().analysis == counted
    newer.refresh_from_db()
    assert (newer.adopted_by, newer.usd_per_year) == (member, None)


def test_each_workload_is_recounted(member: User) -> None:
    alan = make_user("alan")
    for owner in (alan, member):
        for model in ("bert", "gpt2"):
            make_analysis(owner, Status.SUCCEEDED, request=make_request(model=model))
    with recounting(Analysis.objects.all()):
        Analysis.objects.update(usd_per_year=1.0, has_gain=False)
    assert (
        list(CountedSavings.objects.values_list("usd_per_year", "member")) == [(1.0, member.pk)] * 2
    )
    with recounting(Analysis.objects.filter(owner=member)):
        Analysis.objects.filter(owner=member).update(status=Status.FAILED)
    assert {row.member for row in CountedSavings.objects.all()} == {alan}


# Each way on its own


def test_an_earlier_analysis_counts_again_when_the_admin_site_deletes_the_newest(
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


def test_a_failed_change_leaves_the_savings_unchanged(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    before = stored()
    this = Analysis.objects.filter(pk=analysis.pk)
    with pytest.raises(IntegrityError), transaction.atomic(), recounting(this):
        this.update(usd_per_year=1.0, status=None)
    assert stored() == before == computed()


def test_earlier_analyses_and_runs_count_after_the_migration(member: User) -> None:
    for owner in (member, make_user("alan")):
        adopted = make_analysis(
            owner, Status.SUCCEEDED, adopted_at=timezone.now(), adopted_by=member
        )
        make_training(adopted)
        make_analysis(owner, Status.SUCCEEDED)
        large = make_request(model="gpt2", current_batch_size=384)
        make_analysis(owner, Status.SUCCEEDED, make_result(current=384), request=large)
        make_analysis(owner, Status.FAILED, request=make_request(gpu="t4"))
    outlier = make_result(gpu="h100", speedup=5.0, speedup_low=4.0, speedup_high=6.0)
    make_analysis(member, Status.SUCCEEDED, outlier, request=make_request(gpu="h100"))
    recount(Analysis.objects.all())
    tables = (CountedSavings, RunSavings)
    expected = [sorted(table.objects.values_list()) for table in tables]
    for table in tables:
        table.objects.all().delete()
    TrainingRun.objects.update(gpu_hours=0)
    migration = importlib.import_module("analyses.migrations.0034_savings_of_the_lab")
    migration.time_runs(EarlierApps(), None)
    migration.fill(EarlierApps(), None)
    assert [len(rows) for rows in expected] == [3, 2]
    counted = [sorted(table.objects.values_list()) for table in tables]
    for found, rows in zip(counted, expected, strict=True):
        assert all(_close(one, other) for one, other in zip(found, rows, strict=True))


def _close(found: tuple[object, ...], expected: tuple[object, ...]) -> bool:
    """Equal, but for the last digits of numbers that a database has read from JSON."""
    return all(
        one == pytest.approx(other) if isinstance(other, float) else one == other
        for one, other in zip(found, expected, strict=True)
    )


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer at a time")
@pytest.mark.django_db(transaction=True, available_apps=INSTALLED_APPS)
def test_the_newest_of_two_that_finish_together_counts() -> None:
    member = make_user("grace")
    older, newer = (make_analysis(member) for _ in range(2))

    def end_older() -> None:
        end(older, RESULTS[0])
        connection.close()

    other = Thread(target=end_older)
    with transaction.atomic():
        end(newer, RESULTS[0])
        other.start()
        while not _is_someone_waiting():
            assert other.is_alive()
    other.join()
    assert CountedSavings.objects.get().analysis == newer


def _is_someone_waiting() -> bool:
    """Whether anyone waits for this connection; another test run may use the same server."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM pg_locks"
            " WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))"
        )
        return bool(cursor.fetchone()[0])
