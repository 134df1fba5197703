"""What a person does on the site, step by step."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

PATIENCE_MS = 60_000
"""A page takes less than a second; this and the next allow for a machine that is busy otherwise."""

ANSWER_MS = 300_000
"""An answer takes seconds."""

expect.set_options(timeout=PATIENCE_MS)  # for whoever does one of these, and looks what comes of it


def set_up(page: Page, link: str, name: str, password: str) -> None:
    """Make the first admin by the link; it is signed in then."""
    page.goto(link)
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_label("Password confirmation").fill(password)
    page.get_by_role("button", name="Create account and sign in").click()
    expect(page.get_by_role("link", name="Start the first analysis")).to_be_visible()


def sign_in(page: Page, name: str, password: str) -> None:
    """Sign in from the page that any address leads to."""
    page.goto("/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("button", name="Sign out", exact=True)).to_be_visible()


def sign_out(page: Page) -> None:
    """Sign out; the sign-in page comes."""
    page.get_by_role("button", name="Sign out", exact=True).click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def analyze(page: Page, **values: str) -> int:
    """Ask for an analysis by the form; returns its number, while it runs."""
    page.goto("/new/")
    for name, value in values.items():
        fill(page, name, value)
    page.get_by_role("button", name="Analyze").click()
    page.wait_for_url(re.compile(r"/\d+/$"))
    return int(page.url.rstrip("/").rsplit("/", 1)[1])


def fill(page: Page, name: str, value: str) -> None:
    """Fill one field of the form by its name, whatever kind of field it is."""
    field = page.locator(f'.analysis-form [name="{name}"]').first
    search = page.get_by_role("combobox", name="Search models")
    if name == "model" and search.is_visible():
        search.click()
        page.locator(f'[role=option][data-value="{value}"]').click()
    elif name == "model":  # without JavaScript
        page.locator(f'[name="{name}"][value="{value}"]').check()
    elif field.evaluate("element => element.tagName") == "SELECT":
        field.select_option(value)
    else:
        field.fill(value)


def wait_for_verdict(page: Page) -> str:
    """The verdict, once it is on the page."""
    sentence = page.locator(".verdict-sentence")
    expect(sentence).to_be_visible(timeout=ANSWER_MS)
    return sentence.inner_text()
