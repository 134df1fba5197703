"""The command palette by keyboard alone, without JavaScript, and on every screen."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from e2e.conftest import PHONE, Open
from e2e.looking import barriers, look
from e2e.running import Account, Site

pytestmark = pytest.mark.e2e


def _palette(page: Page) -> Locator:
    return page.get_by_role("dialog", name="Search everything")


def _open(page: Page, key: str = "Control+k") -> Locator:
    page.wait_for_load_state()  # with the scripts, which are deferred
    page.keyboard.press(key)
    expect(_palette(page)).to_be_visible()
    return _palette(page)


def _search(page: Page, text: str) -> None:
    """Type, and wait for what is found: each answer chooses its first option again."""
    page.keyboard.type(text)
    expect(_palette(page).locator("#palette-found")).to_have_attribute("data-of", text)


@pytest.mark.parametrize("key", ["Control+k", "Meta+k"])
def test_a_page_is_found_and_opened_by_the_keyboard_alone(
    site: Site, member: Account, open_page: Open, key: str
) -> None:
    page = open_page(site, member)
    palette = _open(page, key)
    box = palette.get_by_role("combobox")
    expect(box).to_be_focused()
    _search(page, "savings")
    options = palette.get_by_role("option")
    expect(options.first).to_contain_text("Savings")
    expect(options.first).to_have_attribute("aria-selected", "true")
    expect(box).to_have_attribute("aria-activedescendant", "palette-1")
    page.keyboard.press("ArrowDown")
    expect(box).to_have_attribute("aria-activedescendant", "palette-2")
    expect(options.nth(1)).to_contain_text("Savings report")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(options.last).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(box).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/savings/$"))


def test_enter_waits_for_what_was_typed_last(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member)
    _open(page)
    page.keyboard.type("api tokens")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/tokens/$"))


def test_escape_closes_it_and_gives_the_focus_back(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    page.goto("/gpus/")
    link = page.get_by_role("navigation", name="Main").get_by_role("link", name="Savings")
    link.focus()
    _open(page)
    page.keyboard.press("Escape")
    expect(_palette(page)).to_be_hidden()
    expect(link).to_be_focused()
    button = page.get_by_role("link", name="Search", exact=True)
    button.click()
    expect(_palette(page)).to_be_visible()
    page.keyboard.press("Control+k")
    expect(_palette(page)).to_be_hidden()
    expect(button).to_be_focused()


def test_it_is_accessible_and_fits_a_phone(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member)
    palette = _open(page)
    expect(palette.get_by_role("option").first).to_be_visible()
    look(page, "palette")

    phone = open_page(site, member, **PHONE)
    phone.get_by_role("button", name="Menu").click()
    phone.get_by_role("link", name="Search", exact=True).click()
    phone.keyboard.type("gpu")
    expect(_palette(phone).get_by_role("option").first).to_contain_text("GPUs")
    assert barriers(phone) == []


def test_nothing_found_is_said(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member)
    palette = _open(page)
    page.keyboard.type("no such thing")
    expect(palette.get_by_role("option")).to_have_count(1)
    expect(palette.get_by_role("option")).to_contain_text("All analyses for “no such thing”")
    expect(palette.get_by_role("status")).to_have_text("1 found")


def test_without_javascript_it_is_a_page(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member, javascript=False)
    page.get_by_role("link", name="Search", exact=True).click()
    page.get_by_label("Search", exact=True).fill("token")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("main").get_by_role("link", name="API tokens").click()
    expect(page).to_have_url(re.compile(r"/tokens/$"))
