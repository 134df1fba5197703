"""A backup has all rows of a lab, and restores all of them or none."""

from __future__ import annotations

import stat
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import models
from django.utils import timezone

from analyses import queries, services
from analyses.jobs import queue
from analyses.models import (
    Analysis,
    Delivery,
    GpuPrice,
    Job,
    JobKind,
    LabSettings,
    LogLine,
    Node,
    Note,
    Notification,
    Push,
    Query,
    QueryKind,
    QueryStatus,
    ShareLink,
    Status,
    Tag,
)
from analyses.notifications import channels
from analyses.pages.analysis import sharing
from analyses.tests.factories import (
    add_log,
    make_analysis,
    make_notification,
    make_request,
    make_user,
)
from engine.interface.request import AnalysisRequest
from memorymark_site.accounts import invitations
from memorymark_site.accounts.models import ApiToken, SetupLink
from memorymark_site.operations import restore
from memorymark_site.operations.archive import Archive, BadArchive
from memorymark_site.operations.backup import LEFT_OUT, back_up, columns_of, name_of
from memorymark_site.settings import INSTALLED_APPS

pytestmark = [
    pytest.mark.database,
    pytest.mark.django_db(transaction=True, available_apps=INSTALLED_APPS),
]

Rows = dict[str, list[tuple[Any, ...]]]


def _kept() -> list[type[models.Model]]:
    found = (model for model in apps.get_models(include_auto_created=True) if not model._meta.proxy)
    return [model for model in found if name_of(model) not in LEFT_OUT]


def _rows() -> Rows:
    """Everything in a backup."""
    return {
        name_of(model): list(model._base_manager.order_by("pk").values_list(*columns_of(model)))
        for model in _kept()
    }


@pytest.fixture
def lab() -> User:
    """A lab with rows in every table."""
    ada, grace = make_user("ada"), make_user("grace")
    done = make_analysis(ada, Status.SUCCEEDED)
    add_log(done, "Größe: 1 GiB → 2 GiB ✓", 'a "quoted"\nline')
    done.tags.add(Tag.objects.create(name="bert"))
    Note.objects.create(analysis=done, text="naïve 批 \U0001f4be", author=grace)
    services.adopt(done, grace)
    sharing.create_link(done, ada, 7)
    Push.objects.create(analysis=done, document_id=uuid4(), digest="0", host="gpu-7", ran="1.0")
    make_analysis(grace, Status.FAILED, failure_code="oom", failure_reason="it's too large; %s")
    services.submit(ada, {"model": "bert", "gpu": "a10", "current_batch_size": 3})
    channels.save_choices(ada, {"by_email": True, "webhook_url": "https://hooks.example/ä"})
    make_notification(done)
    ApiToken.objects.create(user=ada, name="laptop")
    Authenticator.objects.create(user=ada, type="totp", data={"secret": "JBSWY3DPEHPK3PXP"})
    SocialAccount.objects.create(user=ada, provider="https://login.lab.example", uid="0001")
    LabSettings.objects.create(pk=1, hours_per_run=3.25, changed_by=ada)
    GpuPrice.objects.create(gpu="a10", price_per_hour_usd=0.1, set_by=ada)
    queries.submit(ada, QueryKind.PREDICT, AnalysisRequest.parse(make_request()))
    Node.objects.create(name="lab-1", heartbeat_at=timezone.now() - timedelta(days=1))
    return ada


def _empty() -> None:
    """Empty all tables, as in a new instance."""
    call_command("flush", interactive=False, allow_cascade=True)


def _restore(path: Path, *arguments: str) -> str:
    said = StringIO()
    call_command("restore", str(path), *arguments, stdout=said)
    return said.getvalue()


def _replace(path: Path) -> None:
    with Archive(path) as archive:
        archive.check()
        restore.restore(archive, replace=True)


def test_every_row_comes_back(lab: User, tmp_path: Path) -> None:
    before = _rows()
    used = {name for name, rows in before.items() if rows}
    assert {"auth.user", "analyses.trial", "analyses.query_askers", "analyses.node"} <= used
    assert {"mfa.authenticator", "socialaccount.socialaccount"} <= used
    said = StringIO()
    call_command("backup", str(tmp_path / "lab"), stdout=said)
    assert "3 analyses of 2 members" in said.getvalue()
    _empty()
    assert not User.objects.exists()
    told = _restore(tmp_path / "lab")

    after = _rows()
    for name in ("contenttypes.contenttype", "auth.permission"):  # migrate adds missing rows
        assert set(before.pop(name)) <= set(after.pop(name))
    assert after == before
    assert "3 analyses of 2 members" in told
    assert "Members have to sign in again" in told


def test_new_rows_get_unused_ids_after_a_restore(lab: User, tmp_path: Path) -> None:
    back_up(tmp_path / "lab")
    newest = max(Analysis.objects.values_list("pk", flat=True))
    _replace(tmp_path / "lab")

    assert make_analysis(User.objects.get(username="ada")).pk > newest


def test_the_queue_is_restored_without_key_fingerprints(lab: User, tmp_path: Path) -> None:
    """A job keeps its place in the queue, whatever secret key the new instance has."""
    SetupLink.objects.create(digest="0" * 64)
    (waiting,) = Analysis.objects.filter(status=Status.QUEUED)
    back_up(tmp_path / "lab")
    _replace(tmp_path / "lab")
    assert not SetupLink.objects.exists()
    assert invitations.new_setup_link() is None

    (job,) = Job.objects.filter(lane=queue.PREDICTIONS, state=Status.QUEUED)
    assert job.analysis_id == waiting.pk


@pytest.mark.longer
def test_running_jobs_are_queued_again(lab: User, tmp_path: Path) -> None:
    running = make_analysis(lab, Status.RUNNING, token="held", heartbeat_at=timezone.now())
    ending = make_analysis(lab, Status.CANCELLING, heartbeat_at=timezone.now())
    Query.objects.update(status=QueryStatus.RUNNING)
    Notification.objects.update(status=Delivery.SENDING)
    Job.objects.exclude(kind=JobKind.ANALYSIS).update(state=Status.RUNNING)
    back_up(tmp_path / "lab")
    _empty()
    told = _restore(tmp_path / "lab")

    running.refresh_from_db()
    ending.refresh_from_db()
    assert (running.status, running.job.losses) == (Status.QUEUED, 0)
    assert "Restored from a backup" in running.log_lines.get().message
    assert ending.status == Status.CANCELLED
    assert Query.objects.get().status == QueryStatus.WAITING
    assert Notification.objects.get().status == Delivery.WAITING
    assert f"running when the backup was made: {running.pk}." in told
    assert "1 queries" in told
    assert "1 notifications" in told


def test_a_lab_is_not_overwritten(lab: User, tmp_path: Path) -> None:
    back_up(tmp_path / "lab")
    make_analysis(lab)
    before = _rows()
    with pytest.raises(CommandError, match=r"not empty .*4 of analyses\.analysis.*--force"):
        _restore(tmp_path / "lab")
    assert _rows() == before


@pytest.mark.parametrize(("typed", "count"), [("yes", 4), ("replace", 3)])
def test_force_asks_for_confirmation(
    lab: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, count: int
) -> None:
    back_up(tmp_path / "lab")
    make_analysis(lab)
    monkeypatch.setattr("builtins.input", lambda _prompt: typed)
    if typed == "replace":
        assert "Replaced 4 rows of analyses.analysis" in _restore(tmp_path / "lab", "--force")
    else:
        with pytest.raises(CommandError, match="nothing was changed"):
            _restore(tmp_path / "lab", "--force")
    assert Analysis.objects.count() == count


def test_a_restore_is_refused_while_workers_run(lab: User, tmp_path: Path) -> None:
    back_up(tmp_path / "lab")
    _empty()
    Node.objects.create(name="lab-1", heartbeat_at=timezone.now())
    with pytest.raises(CommandError, match="stop the site and its workers"):
        _restore(tmp_path / "lab")
    assert not User.objects.exists()


def test_a_failed_restore_changes_nothing(
    lab: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(tmp_path / "lab")
    make_analysis(lab)
    before = _rows()
    insert = restore._insert

    def fail_late(archive: Archive, table: Any, model: Any) -> None:
        insert(archive, table, model)
        if table.name == "auth.user":
            raise BadArchive("the disk is full")

    monkeypatch.setattr(restore, "_insert", fail_late)
    with pytest.raises(BadArchive):
        _replace(tmp_path / "lab")
    assert _rows() == before


def test_a_dangling_reference_rolls_the_restore_back(
    lab: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(tmp_path / "lab")
    before = _rows()
    insert = restore._insert
    monkeypatch.setattr(
        restore,
        "_insert",
        lambda archive, table, model: (
            None if table.name == "auth.user" else insert(archive, table, model)
        ),
    )
    with pytest.raises(BadArchive, match="refers to a row that is not in it"):
        _replace(tmp_path / "lab")
    assert _rows() == before


def test_only_the_owner_can_read_a_backup_and_none_is_overwritten(
    lab: User, tmp_path: Path
) -> None:
    back_up(tmp_path / "lab")
    assert stat.S_IMODE((tmp_path / "lab").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["lab"]
    whole = (tmp_path / "lab").read_bytes()
    with pytest.raises(CommandError, match="already exists"):
        call_command("backup", str(tmp_path / "lab"))
    assert (tmp_path / "lab").read_bytes() == whole
    with pytest.raises(CommandError, match="cannot be written"):
        call_command("backup", str(tmp_path / "no-such-folder" / "lab"))


def test_check_restores_nothing(lab: User, tmp_path: Path) -> None:
    back_up(tmp_path / "lab")
    _empty()
    assert "The file is whole" in _restore(tmp_path / "lab", "--check")
    assert not User.objects.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda names: (*names, "analyses.9999_tomorrow"), "newer version.*9999_tomorrow"),
        (lambda names: names[:-1], "older than this database"),
    ],
)
def test_a_backup_of_other_tables_is_refused_with_a_reason(
    lab: User,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[tuple[str, ...]], tuple[str, ...]],
    message: str,
) -> None:
    back_up(tmp_path / "lab")
    with Archive(tmp_path / "lab") as archive:
        object.__setattr__(archive.manifest, "migrations", change(archive.manifest.migrations))
        with pytest.raises((restore.CannotRestore, BadArchive), match=message):
            restore.restore(archive, replace=True)
    assert User.objects.exists()


def test_a_backup_has_no_secret_key_and_no_readable_token(lab: User, tmp_path: Path) -> None:
    from django.conf import settings

    _, token = ApiToken.objects.create(user=lab, name="script")
    _, shared = sharing.create_link(Analysis.objects.get(status=Status.SUCCEEDED), lab, 1)
    back_up(tmp_path / "lab")
    with Archive(tmp_path / "lab") as archive:
        text = "".join(f"{row}" for table in archive.manifest.tables for row in archive.rows(table))
    assert ShareLink.objects.count() == 2
    assert LogLine.objects.count() == 2
    for secret in (token, shared, settings.SECRET_KEY):
        assert secret not in text


def test_a_backup_of_sqlite_works_on_postgresql_too() -> None:
    """Every column has a type that survives JSON on both databases."""
    known = {
        "AutoField", "BigAutoField", "BigIntegerField", "BooleanField", "CharField", "DateField",
        "DateTimeField", "EmailField", "FloatField", "ForeignKey", "IntegerField", "JSONField",
        "OneToOneField", "PositiveBigIntegerField", "PositiveIntegerField",
        "PositiveSmallIntegerField", "TextField", "UUIDField",
    }  # fmt: skip
    kinds = {type(field).__name__ for model in _kept() for field in model._meta.concrete_fields}
    assert kinds <= known
