"""A backup that someone has changed or made is refused with a reason, and changes nothing."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from pytest_django import DjangoDbBlocker

from analyses.tests.factories import make_analysis, make_user
from memorymark_site.operations.archive import MANIFEST, SIGNATURE
from memorymark_site.operations.backup import back_up
from memorymark_site.settings import INSTALLED_APPS

pytestmark = [
    pytest.mark.database,
    pytest.mark.django_db(transaction=True, available_apps=INSTALLED_APPS),
]

Rows = list[dict[str, Any]]
USERS = "auth.user.jsonl"


@pytest.fixture(scope="module")
def module_backup(
    tmp_path_factory: pytest.TempPathFactory,
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
) -> Path:
    """The backup of a lab that is gone."""
    path = tmp_path_factory.mktemp("backup") / "lab"
    with django_db_blocker.unblock():
        make_analysis(make_user("ada"))
        make_user("grace", is_staff=True)
        back_up(path)
        call_command("flush", interactive=False, allow_cascade=True)
    return path


@pytest.fixture
def backup(module_backup: Path, tmp_path: Path) -> Path:
    """The same for one test, in a folder of its own."""
    copied = tmp_path / "lab"
    shutil.copy(module_backup, copied)
    return copied


def _files(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def _write(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in files.items():
            file.writestr(name, body)
    return path


def _forged(path: Path, change: Callable[[Rows], object], *, kept: bool = False) -> Path:
    """The backup with other members, as made by someone who has the file and not the key.

    Args:
        path: The backup.
        change: Changes its members in place.
        kept: Whether the signature stays, which does not match any more.
    """
    files = _files(path)
    manifest = json.loads(files[MANIFEST])
    (table,) = (table for table in manifest["tables"] if table["name"] == "auth.user")
    rows = [
        dict(zip(table["columns"], json.loads(line), strict=True))
        for line in files[USERS].splitlines()
    ]
    change(rows)
    lines = [json.dumps([*row.values()], separators=(",", ":")).encode() + b"\n" for row in rows]
    files[USERS] = b"".join(lines)
    table |= {"rows": len(rows), "sha256": hashlib.sha256(files[USERS]).hexdigest()}
    files[MANIFEST] = json.dumps(manifest).encode()
    if not kept:
        del files[SIGNATURE]
    return _write(path.with_name("forged"), files)


def _elevate(rows: Rows) -> None:
    rows[0] |= {"is_staff": True, "is_superuser": True}


def _restore(path: Path, *arguments: str) -> str:
    said = StringIO()
    call_command("restore", str(path), *arguments, stdout=said)
    return said.getvalue()


def _refused(path: Path, *arguments: str) -> str:
    with pytest.raises(CommandError, match="Nothing was restored") as refused:
        _restore(path, *arguments)
    assert not User.objects.exists()
    return str(refused.value)


def test_a_member_made_an_admin_is_found_by_the_signature(backup: Path) -> None:
    assert "changed after it was made" in _refused(_forged(backup, _elevate, kept=True))
    assert "changed after it was made" in _refused(
        _forged(backup, _elevate, kept=True), "--unsigned"
    )


def test_a_backup_without_our_signature_is_refused_unless_someone_vouches_for_it(
    backup: Path,
) -> None:
    forged = _forged(backup, _elevate)
    assert "not signed with this SECRET_KEY" in _refused(forged)
    assert "add --unsigned" in _refused(forged)
    said = _restore(forged, "--unsigned")
    assert "Its admins are ada, grace." in said
    assert "anyone may have changed it" in said


def test_the_backup_of_a_lab_with_another_key_is_refused(backup: Path, settings: Any) -> None:
    settings.SECRET_KEY = "a new key" * 9
    assert "not signed with this SECRET_KEY" in _refused(backup)
    assert "Its admins are grace." in _restore(backup, "--unsigned")


def test_our_own_backup_needs_nobody_to_vouch_for_it(backup: Path) -> None:
    said = _restore(backup)
    assert "Its admins are grace." in said
    assert "not signed" not in said


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[0].update(username=None),
        lambda rows: rows[0].update(id="one"),
        lambda rows: rows[0].update(date_joined="yesterday"),
        lambda rows: rows.append(rows[0]),
        lambda rows: rows.pop(0),  # whose analysis is still there
        lambda rows: rows[0].update(more=1),
        lambda rows: rows[0].update(is_staff={"$ne": 0}),
    ],
)
def test_rows_that_a_lab_cannot_have_are_refused_by_their_table(
    backup: Path, change: Callable[[Rows], object]
) -> None:
    said = _refused(_forged(backup, change), "--unsigned")
    assert "auth" in said


@pytest.mark.parametrize("name", ["../../etc/cron.d/evil", "/evil", "evil.py", "x" * 60_000])
def test_a_file_that_no_backup_has_is_refused(backup: Path, name: str) -> None:
    files = _files(backup)
    said = _refused(_write(backup, files | {name: b"evil"}))
    assert "no backup has" in said
    assert len(said) < 300


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_table_that_is_there_twice_is_refused(backup: Path) -> None:
    with zipfile.ZipFile(backup, "a") as file:
        file.writestr(USERS, b"[]\n")
    assert "no backup has" in _refused(backup)


def test_a_table_that_expands_to_a_thousand_times_its_size_is_refused(backup: Path) -> None:
    files = _files(backup) | {USERS: b"[1]\n" * 20_000_000}
    path = _write(backup, files)
    assert path.stat().st_size < 1_000_000
    assert "as no backup does" in _refused(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"migrations": [1]},
        {"migrations": {"auth": 1}},
        {"made_at": {"year": 2026}},
        {"tables": {"auth.user": 1}},
        {"tables": [{"name": ["auth.user"], "columns": [], "rows": 0, "sha256": ""}]},
        {"format": "newest"},
        {"format": None},
    ],
)
def test_an_odd_manifest_is_refused(backup: Path, changes: dict[str, Any]) -> None:
    files = _files(backup)
    manifest = json.loads(files.pop(MANIFEST)) | changes
    del files[SIGNATURE]
    _refused(_write(backup, files | {MANIFEST: json.dumps(manifest).encode()}), "--unsigned")


def test_a_backup_of_a_newer_version_is_refused_with_what_to_do(backup: Path) -> None:
    files = _files(backup)
    manifest = json.loads(files.pop(MANIFEST)) | {"format": 99}
    body = json.dumps(manifest).encode()
    assert "from a newer version" in _refused(_write(backup, files | {MANIFEST: body}))
