"""The pages drill fills a complete lab, and every page of it works."""

from __future__ import annotations

import pytest

from drills.conftest import StartLab
from drills.pages import PAGES

pytestmark = pytest.mark.slow


def test_every_page_of_a_filled_lab_works(start_lab: StartLab) -> None:
    lab = start_lab()
    found = lab.call("years.fill", 60, str(lab.folder / "result.json"))
    assert (found["analyses"], found["trials"]) == (60, 600)
    assert 0 < found["of them adopted"] < found["workloads that count"] <= 12
    seconds = lab.call("browsing.seconds", PAGES, 2)
    assert {name: len(times) for name, times in seconds.items()} == dict.fromkeys(PAGES, 2)
