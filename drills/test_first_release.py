"""A lab of release 1.0.0 is upgraded in place, and its backup restored, without losing anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drills.conftest import StartLab
from drills.first_release import FirstRelease, NoHistory
from drills.lab import Lab, until
from drills.web import Browser

pytestmark = pytest.mark.slow


def _check(lab: Lab, made: dict[str, Any]) -> None:
    """Checks that members, scripts and guests find what they had, and a node finishes work."""
    site = lab.start_site()
    status, found = Browser().api(f"{site}/api/v1/analyses/", made["token"])
    assert status == 200
    assert sorted(one["status"] for one in found["results"]) == ["failed", "queued", "succeeded"]
    status, done = Browser().api(f"{site}/api/v1/analyses/{made['done']}/", made["token"])
    assert (status, done["owner"], done["adopted_by"]) == (200, "ada", "grace")
    assert done["result"]["recommended_batch_size"] > 0
    assert "BERT" in Browser().page(f"{site}/shared/{made['shared']}/")
    browser = Browser()
    assert browser.sign_in(site, "ada", "correct horse battery") == 200
    for page in ("/", "/history/", "/savings/", f"/{made['done']}/", "/account/"):
        assert "ada" in browser.page(f"{site}{page}")
    lab.start_node("node-1")
    assert lab.wait_for("all_final")
    assert until(lambda: Browser().api(f"{site}/health", "")[0] == 200, 60)


def test_release_1_is_upgraded_in_place_and_its_backup_restored(
    start_lab: StartLab, database_url: str, tmp_path: Path
) -> None:
    data_dir = tmp_path / "var"
    try:
        old = FirstRelease(tmp_path / "release", data_dir, database_url)
    except NoHistory as reason:
        pytest.skip(str(reason))
    made = old.fill()
    backup = tmp_path / "backup.zip"
    old.manage("backup", str(backup))

    upgraded = start_lab(database_url=database_url, data_dir=data_dir, migrated=False)
    upgraded.manage("migrate", "-v0")
    _check(upgraded, made)
    upgraded.end()

    restored = start_lab(data_dir=tmp_path / "restored", migrated=False)
    assert "2 members" in restored.manage("restore", str(backup), "--unsigned")
    _check(restored, made)
