"""A backup made while a lab works is a consistent snapshot that any lab can continue from."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from analyses.tests.factories import make_result
from drills.backup import back_up_under_load, restored
from drills.conftest import StartLab
from drills.lab import Lab
from drills.soak import TRIALS

pytestmark = pytest.mark.slow


def _chance() -> random.Random:
    return random.Random(7)  # noqa: S311  # no secret


def _empty_lab(folder: Path, database_url: str = "", *, migrated: bool = True) -> Lab:
    folder.mkdir()
    result = make_result().to_dict()
    return Lab(
        folder, database_url=database_url, trials=TRIALS, seconds=0.3, result=result,
        migrated=migrated,
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("database_url", ["postgres", "sqlite"], indirect=True)
def test_a_backup_under_load_restores_into_sqlite(
    start_lab: StartLab, database_url: str, tmp_path: Path
) -> None:
    lab = start_lab(database_url=database_url, trials=TRIALS, seconds=0.3)
    (backup,) = back_up_under_load(lab, backups=1, kill_every=4, chance=_chance())
    assert backup.finals
    empty = _empty_lab(tmp_path / "empty")
    try:
        found = restored(backup, empty)
    finally:
        empty.end()
    assert found.is_good, found


def test_a_sqlite_backup_restores_into_postgresql(
    start_lab: StartLab, postgres_url: str, tmp_path: Path
) -> None:
    lab = start_lab(trials=TRIALS, seconds=0.3)
    (backup,) = back_up_under_load(lab, backups=1, kill_every=100, chance=_chance())
    empty = _empty_lab(tmp_path / "empty", postgres_url)
    try:
        found = restored(backup, empty)
        assert len(empty.call("submit", 2)) == 2  # their ids do not collide with restored ones
    finally:
        empty.end()
    assert found.is_good, found


def test_a_snapshot_is_consistent_and_does_not_block_writes(
    start_lab: StartLab, database_url: str
) -> None:
    lab = start_lab(database_url=database_url)
    seen = lab.call("backup_checks.snapshot_holds")
    assert seen == {"at first": 0, "after a write": 0, "afterwards": 1}


@pytest.mark.parametrize(
    "database_url",
    ["sqlite", pytest.param("postgres", marks=pytest.mark.full)],
    indirect=True,
)
def test_an_older_backup_is_migrated_on_restore(
    start_lab: StartLab, database_url: str, tmp_path: Path
) -> None:
    """Check a lab that backs up every night and upgrades in the morning."""
    old = start_lab(migrated=False)
    for app in ("auth", "accounts", "admin", "sessions", "knox", "django_q"):
        old.manage("migrate", app, "-v0")
    old.manage("migrate", "analyses", "0001_squashed_0040", "-v0")
    old.manage("addmember", "ada", "--generate")
    old.manage("backup", str(tmp_path / "old"))
    new = _empty_lab(tmp_path / "new", database_url, migrated=False)

    assert "1 members" in new.manage("restore", str(tmp_path / "old"), "--unsigned")
    assert len(new.call("submit", 1)) == 1
    assert "No planned migration" in new.manage("migrate", "--plan")
