"""Two people who edit one analysis at once never overwrite text they have not seen."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from e2e import doing
from e2e.browsing import Watch
from e2e.conftest import ADMIN, ADMIN_PASSWORD, Open
from e2e.looking import look
from e2e.running import Account, Site

pytestmark = pytest.mark.e2e

HERS, HIS = "Diverged at step 900.", "Fine with a warm-up."


def test_the_second_to_save_sees_both_versions_and_can_save_theirs(
    site: Site, member: Account, open_page: Open, watch: Watch
) -> None:
    page = _conflict(site, member, open_page, watch)
    stored = page.get_by_role("region", name="Saved version")
    expect(stored).to_contain_text(HERS)
    expect(stored).to_contain_text(f"{ADMIN}, ")
    expect(stored.get_by_text("hers", exact=True)).to_be_visible()
    expect(page.get_by_label("Note")).to_have_value(HIS)
    expect(page.get_by_label("Tags")).to_have_value("his")
    look(page, "labels-changed")

    page.get_by_role("button", name="Save mine").click()
    _is_labelled(page, "his", HIS, member.name)
    expect(page.get_by_text(HERS)).to_have_count(0)


def test_the_second_to_save_can_keep_the_saved_version(
    site: Site, member: Account, open_page: Open, watch: Watch
) -> None:
    page = _conflict(site, member, open_page, watch)
    page.get_by_role("link", name="Discard mine").click()
    _is_labelled(page, "hers", HERS, ADMIN)
    page.reload()
    _is_labelled(page, "hers", HERS, ADMIN)


def _conflict(site: Site, member: Account, open_page: Open, watch: Watch) -> Page:
    """The member's window after both opened the form and the admin saved first."""
    page = open_page(site, member)
    pk = doing.analyze(page, **doing.SAMPLE)
    doing.wait_for_verdict(page)
    hers = open_page(site, Account(ADMIN, ADMIN_PASSWORD))
    for window in (page, hers):
        window.goto(f"/{pk}/")
        window.get_by_text("Add tags or a note").click()
    _write(hers, "hers", HERS)
    _is_labelled(hers, "hers", HERS, ADMIN)
    watch.expected_statuses = {409}
    _write(page, "his", HIS)
    expect(page.get_by_role("alert")).to_contain_text("not saved yet")
    return page


def _write(page: Page, tags: str, note: str) -> None:
    page.get_by_label("Tags", exact=True).fill(tags)
    page.get_by_label("Note", exact=True).fill(note)
    page.get_by_role("button", name="Save", exact=True).click()


def _is_labelled(page: Page, tag: str, note: str, author: str) -> None:
    bar = page.get_by_role("region", name="Tags and note")
    expect(bar.get_by_role("link", name=tag)).to_be_visible()
    expect(bar.locator(".note")).to_contain_text(note)
    expect(bar.locator(".note")).to_contain_text(f"{author}, ")


def test_tags_are_edited_in_their_row_by_the_keyboard(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    pk = doing.analyze(page, **doing.SAMPLE)
    doing.wait_for_verdict(page)
    page.goto("/history/")
    edit = page.get_by_label(f"Edit tags of #{pk}")
    edit.focus()
    page.keyboard.press("Enter")
    box = page.get_by_label(f"Tags of #{pk}, comma-separated")
    expect(box).to_be_focused()
    page.keyboard.type("thesis, chapter two")
    look(page, "tags-in-a-row")
    page.keyboard.press("Enter")
    row = page.locator("tr", has=edit)
    expect(row.get_by_role("link", name="chapter two")).to_be_visible()
    expect(edit).to_be_focused()

    page.keyboard.press("Enter")
    expect(box).to_be_focused()  # before that, its keys are not listened to
    box.fill("nothing of this")
    page.keyboard.press("Escape")
    expect(row.get_by_role("link", name="thesis")).to_be_visible()
    expect(edit).to_be_focused()


def test_without_javascript_tags_are_edited_on_a_page(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member, javascript=False)
    page.goto("/history/")
    page.locator(".edit-tags").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Tags and note")
