"""An e-mail address in use: entered, confirmed by the link that is sent, and the link once only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from e2e import doing
from e2e.browsing import Watch
from e2e.conftest import Open
from e2e.looking import look
from e2e.running import Site

pytestmark = pytest.mark.e2e


def test_a_new_address_is_confirmed_by_the_link_sent_to_it(
    tmp_path: Path, open_page: Open, watch: Watch
) -> None:
    sent = tmp_path / "mail"
    site = Site(tmp_path, "serve", {"EMAIL_URL": f"filemail:///{sent}"})
    try:
        page = open_page(site, site.add_member("grace"))
        page.goto("/account/")
        page.get_by_role("link", name="Add e-mail").click()
        expect(page.get_by_role("heading", name="E-mail address")).to_be_visible()
        look(page, "address-new")
        page.get_by_label("E-mail", exact=True).fill("grace@lab.example")
        page.get_by_role("button", name="Change address").click()
        expect(page.get_by_text("We sent a link to grace@lab.example")).to_be_visible()
        look(page, "address-sent")

        page.goto(_link_in(sent))
        expect(page.get_by_role("heading", name="Confirm your e-mail address")).to_be_visible()
        look(page, "address-confirm")
        page.get_by_role("button", name="Use this address").click()
        expect(page.get_by_text("Your e-mail address is now grace@lab.example.")).to_be_visible()
        look(page, "account-with-address")

        watch.expected_statuses = {404}
        page.goto(_link_in(sent))
        expect(page.get_by_text("this link no longer works")).to_be_visible()
        look(page, "address-link-ended")
        doing.sign_out(page)
    finally:
        site.end()


def _link_in(folder: Path) -> str:
    """The path of the link in the only message there."""
    (message,) = folder.iterdir()
    found = re.search(r"/account/address/\S+", message.read_text())
    assert found
    return found.group()
