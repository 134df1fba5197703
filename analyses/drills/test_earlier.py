"""From whatever version a lab comes, its rows are there after the update."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings

from analyses.drills.conftest import StartLab

pytestmark = pytest.mark.slow

STATES = sorted(
    path.stem for path in (Path(settings.BASE_DIR) / "analyses" / "migrations").glob("0*.py")
)


@pytest.mark.parametrize("state", STATES)
def test_rows_of_an_earlier_version_stay(
    start_lab: StartLab, database_url: str, state: str
) -> None:
    lab = start_lab(database_url=database_url, migrated=False)
    found = lab.call("earlier.rows_after", state)

    assert found["before"].items() <= found["after"].items()
    assert found["analysis"] == found["expected"]
    assert found["after"]["analyses.countedsavings"] == 1
    assert "No planned migration" in lab.manage("migrate", "--plan")
