"""Members' actions on the site, step by step."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from playwright.sync_api import APIResponse, Page, expect

from e2e import browsing

TIMEOUT_MS = 60_000
"""A page takes less than a second; this and the next allow for a busy machine."""

ANSWER_MS = 600_000
"""An answer takes seconds."""

SAMPLE = {"model": "distilbert", "gpu": "a10", "current_batch_size": "8"}
"""The analysis of tests that need any. Equal ones share their answer and their plan, which takes
half a minute of a core."""

OTHER_SAMPLE = SAMPLE | {"gpu": "t4"}
"""One of another GPU, for tests that need two."""

Send = Callable[..., APIResponse]
"""Posts a body to an address."""

expect.set_options(timeout=TIMEOUT_MS)  # for all that import these steps


_UNFOLD = """element => {
  const fold = (part) => part.parentElement.closest("details");
  for (let each = fold(element); each; each = fold(each)) each.open = true;
}"""


def unfold(page: Page) -> None:
    """Open the rare settings of the form."""
    page.get_by_role("heading", name="Advanced").click()


def set_up(page: Page, link: str, name: str, password: str) -> None:
    """Create the first admin through the setup link, which also signs in."""
    page.goto(link)
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_label("Password confirmation").fill(password)
    page.get_by_role("button", name="Create account and sign in").click()
    expect(page.get_by_role("link", name="Start the first analysis")).to_be_visible()


def sign_in(page: Page, name: str, password: str) -> None:
    """Sign in on the page that any address redirects to."""
    page.goto("/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()
    sign_out_button = page.get_by_role("button", name="Sign out", exact=True, include_hidden=True)
    expect(sign_out_button).to_be_attached()  # on a phone it is in the menu


def resume(page: Page, url: str, session: str) -> None:
    """Open an address of the site in the member's open session."""
    page.context.add_cookies([browsing.session_cookie(url, session)])
    page.goto(url)


def sign_out(page: Page) -> None:
    """Sign out, back to the sign-in page."""
    menu = page.get_by_role("button", name="Menu", exact=True)
    if menu.is_visible():
        menu.click()
    page.get_by_role("button", name="Sign out", exact=True).click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def program_of(page: Page) -> Send:
    """Create a token of the signed-in member; returns what posts with it, as a program does."""
    page.goto("/tokens/")
    page.get_by_label("Name").fill("laptop")
    page.get_by_label("Access").select_option("write")
    page.get_by_role("button", name="Create token").click()
    token = page.get_by_role("textbox", name="New token").input_value()

    def sent(address: str, body: object, *, token: str = f"Token {token}") -> APIResponse:
        text = body if isinstance(body, str) else json.dumps(body)
        headers = {"Authorization": token, "Content-Type": "application/json"}
        return page.request.post(address, data=text.encode(), headers=headers)

    return sent


def analyze(page: Page, **values: str) -> int:
    """Submit an analysis with the form; returns its number without waiting for the result."""
    page.goto("/new/")
    for name, value in values.items():
        fill(page, name, value)
    page.get_by_role("button", name="Analyze").click()
    page.wait_for_url(re.compile(r"/\d+/$"))
    return int(page.url.rstrip("/").rsplit("/", 1)[1])


def fill(page: Page, name: str, value: str) -> None:
    """Fill a field of the form by its name, whatever its kind."""
    field = page.locator(f'.analysis-form [name="{name}"]').first
    field.evaluate(_UNFOLD)
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
    """Wait for the verdict; returns its text."""
    sentence = page.locator("#decision-title")
    expect(sentence).to_be_visible(timeout=ANSWER_MS)
    return sentence.inner_text()


def wait_for_ladder(page: Page) -> None:
    """Wait until all of its rungs are found."""
    shown = page.locator(".rung-answer, #ladder form")
    expect(shown.first).to_be_visible(timeout=ANSWER_MS)
