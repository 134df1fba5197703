"""An admin's lab settings, and choosing a model by keyboard."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from e2e import doing
from e2e.browsing import Watch
from e2e.conftest import ADMIN, ADMIN_PASSWORD, Open
from e2e.looking import look
from e2e.running import Account, Site

pytestmark = pytest.mark.e2e


def test_a_model_can_be_found_and_chosen_by_keyboard(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    page.goto("/new/")
    search = page.get_by_role("combobox", name="Search models")
    search.focus()
    page.keyboard.type("resnet 18")
    models = page.get_by_role("listbox", name="Models")
    expect(models.get_by_role("option")).to_have_count(2)  # the config.json is always offered
    page.keyboard.press("Enter")

    expect(search).to_have_value("ResNet-18")
    expect(page.locator('[name=model][value="resnet-18"]')).to_be_checked()
    assert "/new/" in page.url  # Enter chose the model and did not submit the form


def test_new_analyses_use_the_prices_an_admin_sets(
    site: Site, member: Account, open_page: Open, watch: Watch
) -> None:
    admin = open_page(site, Account(ADMIN, ADMIN_PASSWORD))
    hours = _set_hours(admin, "3")
    _set_price(admin, "NVIDIA L40S", "1.25")
    admin.goto("/gpus/price/?gpu=l4")  # as a new tab has it, without the table around it
    look(admin, "price")
    admin.get_by_label("USD per GPU-hour, NVIDIA L4").fill("0.75")
    admin.get_by_role("button", name="Save", exact=True).click()
    expect(admin.get_by_text("Saved the price of NVIDIA L4.")).to_be_visible()

    page = open_page(site, member)
    page.goto("/new/")
    expect(page.locator('[name=gpu] option[value="l40s"]')).to_contain_text("$1.25")
    expect(page.locator('[name=gpu] option[value="l4"]')).to_contain_text("$0.75")
    watch.expected_statuses = {403}
    page.goto("/lab/")
    expect(page.get_by_role("heading", name="You don't have permission")).to_be_visible()
    look(page, "not-allowed")
    # Answers and plans depend on them, and other tests share those of earlier tests.
    _set_hours(admin, hours)
    for gpu in ("NVIDIA L40S", "NVIDIA L4"):
        _reset_price(admin, gpu)


def test_a_phone_reaches_every_page_by_the_menu(site: Site, open_page: Open) -> None:
    page = open_page(site, Account(ADMIN, ADMIN_PASSWORD), screen="phone")
    links = page.get_by_role("navigation", name="Main").get_by_role("link")
    menu = page.get_by_role("button", name="Menu", exact=True)
    for name, address in (("Analyses", "/history/"), ("GPUs", "/gpus/"), ("Lab", "/lab/")):
        expect(links).to_have_count(0)
        menu.click()
        expect(page.get_by_role("button", name="Sign out", exact=True)).to_be_in_viewport()
        links.filter(has_text=re.compile(f"^{name}$")).click()
        page.wait_for_url(f"**{address}")
        menu.click()
        expect(links.filter(has_text=name)).to_have_attribute("aria-current", "page")
        page.keyboard.press("Escape")
    doing.sign_out(page)


def _set_hours(page: Page, hours: str) -> str:
    """Set the lab's hours per run; returns what they were."""
    page.goto("/lab/")
    field = page.get_by_label("Hours per run")
    before = field.input_value()
    field.fill(hours)
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved. Changes apply to new analyses only.")).to_be_visible()
    return before


def _edit_price(page: Page, gpu: str) -> Locator:
    """Open the form of a GPU's price in its table; returns the row."""
    page.goto("/gpus/")
    page.locator("summary", has_text="Data centre").click()
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=gpu, exact=True))
    row.get_by_role("link", name=f"Edit the price of {gpu}").click()
    return row


def _reset_price(page: Page, gpu: str) -> None:
    row = _edit_price(page, gpu)
    row.get_by_role("button", name="Reset to").click()
    expect(row).to_contain_text("catalogue price")


def _set_price(page: Page, gpu: str, price: str) -> None:
    row = _edit_price(page, gpu)
    row.get_by_label("USD per GPU-hour").fill(price)
    row.get_by_role("button", name="Save").click()
    expect(row).to_contain_text("lab price")
