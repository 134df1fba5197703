"""Two machines serve one lab: what one of them knows holds on the other, also when one dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from drills.conftest import StartLab
from drills.surroundings import kill_site
from drills.web import Browser

pytestmark = pytest.mark.slow

KEY = "the same on both machines, as the guide says"
PASSWORD = "a compiler of 1952"  # noqa: S105  # of this drill alone
UNITS = 30


def test_two_sites_are_one_lab_and_one_may_die(
    start_lab: StartLab, postgres_url: str, tmp_path: Path
) -> None:
    lab = start_lab(database_url=postgres_url)
    lab.call("inside_clients.make_member", "ada", PASSWORD)
    (token,) = lab.call("inside_clients.make_tokens", 1, 1)
    first, second = (
        lab.start_site(
            SECRET_KEY=KEY,
            MEMORYMARK_DATA_DIR=str(tmp_path / machine),  # each has its own disk
            MEMORYMARK_API_UNITS=str(UNITS),
        )
        for machine in ("first", "second")
    )

    # Who signed in at one is known to the other, and so are wrong passwords.
    browser = Browser()
    assert browser.sign_in(first, "ada", PASSWORD) == 200
    assert "Sign out" in browser.page(f"{second}/history/")
    stranger = Browser()
    refused = [
        stranger.sign_in(site, "ada", f"wrong {n}") for n in range(12) for site in (first, second)
    ]
    assert refused.index(429) <= 11

    # A member's units are one budget.
    urls = [f"{site}/api/v1/lab/" for site in (first, second)]
    answers = [Browser().api(url, token)[0] for _ in range(UNITS) for url in urls]
    assert UNITS <= answers.count(200) < UNITS + 20  # some seconds give some units back
    assert 429 in answers[:-1]

    # One dies with a request in hand; the other serves on, and has what the dead one stored.
    pk = browser.submit(first)
    kill_site(lab.sites[0])
    with pytest.raises(OSError):  # noqa: PT011  # refused, or reset
        browser.page(f"{first}/history/")
    assert f"/{pk}/" in browser.page(f"{second}/history/")
    assert browser.submit(second) > pk
