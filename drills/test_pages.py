"""The pages drill fills a complete lab, and every page of it works."""

from __future__ import annotations

import pytest

from drills.conftest import StartLab
from drills.pages import FILES, PAGES

pytestmark = pytest.mark.slow


def test_every_page_of_a_filled_lab_works(start_lab: StartLab) -> None:
    lab = start_lab()
    found = lab.call("years.fill", 60, str(lab.folder / "result.json"))
    assert (found["analyses"], found["trials"]) == (60, 600)
    assert 0 < found["of them adopted"] < found["workloads that count"] <= 12
    jobs = lab.call("inside_jobs.fill", 60)
    assert jobs["imported jobs"] == 60
    assert jobs["unread entries"] > 0
    seconds = lab.call("browsing.seconds", PAGES, 2)
    assert {name: len(times) for name, times in seconds.items()} == dict.fromkeys(PAGES, 2)
    files = lab.call("browsing.downloads", FILES)
    assert files.keys() == FILES.keys()
    assert all(file["bytes"] > 60 for file in files.values())
