"""A mention in a real browser: from another member's analysis to the inbox of its owner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256

import pytest
from playwright.sync_api import Page, expect

from analyses.importing.tests.pushed_scripts import make_document
from e2e import doing
from e2e.conftest import Open
from e2e.looking import look
from e2e.running import Account, Site

pytestmark = pytest.mark.e2e


def worth_something(page: Page, name: str) -> int:
    """Import an analysis of the signed-in member whose decision would save money."""
    document = make_document(name, program_hash=sha256(name.encode()).hexdigest())
    answer = doing.program_of(page)("/api/v1/analyses/import/", document)
    assert answer.ok, answer.text()
    return int(answer.json()["id"])


def test_a_mention_waits_in_the_inbox_until_it_is_read(
    site: Site, members: Iterator[Account], open_page: Open
) -> None:
    ada, alan = next(members), next(members)
    pk = worth_something(open_page(site, alan), f"train_{alan.name}.py")

    hers = open_page(site, ada)
    hers.goto(f"/{pk}/")
    hers.get_by_text("More", exact=True).click()
    hers.get_by_role("button", name=f"Mention to {alan.name}").click()
    expect(hers.get_by_text(f"Mentioned to {alan.name}: batch 16 to 128.")).to_be_visible()
    expect(hers.locator(".mention")).to_contain_text(f"{ada.name} mentioned this to {alan.name}")
    hers.get_by_text("More", exact=True).click()
    expect(hers.get_by_role("button", name="Mention")).to_have_count(0)

    his = open_page(site, replace(alan, session=""))  # by the form
    expect(his.locator("#decisions")).to_contain_text(f"{ada.name}, ")
    badge = his.get_by_role("link", name="Inbox, 1 unread")
    expect(badge).to_have_text("1")
    badge.click()
    entry = his.get_by_role("region", name="Entries").get_by_role("listitem")
    expect(entry).to_contain_text(f"{ada.name}: batch 16 to 128 would save $")
    look(his, "inbox")
    entry.get_by_role("link", name=f"#{pk}").click()
    expect(his.locator(".mention")).to_contain_text(f"{ada.name} mentioned this")
    expect(his.get_by_role("link", name="Inbox", exact=True)).to_have_text("")
    his.goto("/inbox/")
    expect(his.get_by_text("Nothing unread")).to_be_visible()
