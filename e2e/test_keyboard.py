from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import Account, Open
from e2e.running import Site

pytestmark = pytest.mark.e2e


@pytest.fixture
def page(demo: Site, demo_account: Account, open_page: Open) -> Page:
    return open_page(demo, demo_account)


def test_the_sheet_tells_what_the_page_has(page: Page) -> None:
    page.goto("/history/")
    page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keyboard shortcuts")
    for does in ("Search", "Next row", "Select the row", "New analysis", "Savings"):
        expect(sheet.get_by_text(does, exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()

    page.goto("/savings/")
    page.keyboard.press("?")
    expect(sheet).to_be_visible()
    expect(sheet.get_by_text("Next row")).to_be_hidden()


def test_two_keys_go_somewhere_and_typing_does_not(page: Page) -> None:
    page.goto("/history/")
    page.keyboard.press("/")
    expect(page.get_by_label("Search")).to_be_focused()
    page.keyboard.type("gs")
    assert "/history/" in page.url
    page.get_by_label("Search").blur()
    page.evaluate("performance.now = () => 0")  # as if no time passed between the two
    page.keyboard.press("g")
    page.keyboard.press("s")

    page.wait_for_url("**/savings/")


def test_rows_can_be_walked_and_selected(page: Page) -> None:
    page.goto("/history/")
    for key in "jjx":
        page.keyboard.press(key)
    expect(page.locator("#results tbody tr").nth(1).get_by_role("checkbox")).to_be_checked()
    expect(page.locator("[data-selected]")).to_have_text("1 selected:")
    page.keyboard.press("k")
    number = page.locator("#results .row-id").first.inner_text()
    page.locator("#results .row-id a").first.focus()
    page.keyboard.press("Enter")

    page.wait_for_url(f"**/{number}/")


def test_they_can_be_turned_off(page: Page) -> None:
    page.goto("/history/")
    page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keyboard shortcuts")
    page.get_by_label("Single-letter shortcuts").uncheck()
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    page.keyboard.press("n")
    page.keyboard.press("?")

    expect(sheet).to_be_visible()
    assert "/history/" in page.url
