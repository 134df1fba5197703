"""An upgrade keeps a lab's rows, whatever version it starts from."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings

from drills.conftest import DATABASES, StartLab

pytestmark = pytest.mark.slow

STATES = sorted(
    path.stem
    for path in (Path(settings.BASE_DIR) / "analyses" / "migrations").glob("0*.py")
    if "_squashed_" not in path.stem
)


# From the first version on both databases, and from every eighth on SQLite.
STARTS = [
    pytest.param(kind, state, marks=() if is_sampled else pytest.mark.full)
    for index, state in enumerate(STATES)
    for kind, is_sampled in (("sqlite", index % 8 == 0), ("postgres", index == 0))
]


@pytest.mark.parametrize(("database_url", "state"), STARTS, indirect=["database_url"])
def test_an_upgrade_keeps_the_rows_of_every_table(
    start_lab: StartLab, database_url: str, state: str
) -> None:
    lab = start_lab(database_url=database_url, migrated=False)
    found = lab.call("upgrades.rows_after", state)

    assert found["before"].items() <= found["after"].items()
    if "analyses.job" not in found["before"]:  # everything queued and finished gets a job
        subjects = ("analyses.analysis", "analyses.query", "analyses.notification")
        jobs = sum(found["before"].get(name, 0) for name in subjects)
        assert found["after"]["analyses.job"] == jobs
    assert found["analysis"] == found["expected"]
    assert found["after"]["analyses.countedsavings"] == 1
    assert "No planned migration" in lab.manage("migrate", "--plan")


@pytest.mark.parametrize("database_url", DATABASES, indirect=True)
def test_a_new_lab_has_the_tables_of_an_upgraded_one(
    start_lab: StartLab, database_url: str, tmp_path: Path
) -> None:
    upgraded = start_lab(database_url=database_url, data_dir=tmp_path / "upgraded", migrated=False)
    expected = upgraded.call("upgrades.tables_after", STATES[-1])
    upgraded.end()

    assert start_lab(database_url=database_url).call("upgrades.tables") == expected
