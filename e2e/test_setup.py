from __future__ import annotations

import pytest
from playwright.sync_api import expect

from e2e import doing
from e2e.browsing import Watch
from e2e.conftest import ADMIN, ADMIN_PASSWORD, Open
from e2e.running import Account, Site

pytestmark = pytest.mark.e2e


def test_signing_out_requires_signing_in_again(site: Site, open_page: Open) -> None:
    page = open_page(site, Account(ADMIN, ADMIN_PASSWORD))
    doing.sign_out(page)
    page.goto("/history/")

    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_an_invited_member_chooses_a_name_and_is_signed_in(site: Site, open_page: Open) -> None:
    admin = open_page(site, Account(ADMIN, ADMIN_PASSWORD))
    admin.goto("/members/")
    admin.get_by_role("button", name="Create invitation").click()
    guest = open_page(site)
    guest.goto(admin.get_by_label("Address of the link").input_value())
    guest.get_by_label("Username").fill("hedy")
    guest.get_by_label("Password", exact=True).fill("frequencies of 1942")
    guest.get_by_label("Password confirmation").fill("frequencies of 1942")
    guest.get_by_role("button", name="Create account and sign in").click()

    expect(guest.get_by_text("hedy", exact=True)).to_be_visible()


def test_the_setup_link_works_only_once(site: Site, open_page: Open, watch: Watch) -> None:
    watch.expected_statuses = {404}
    page = open_page(site)
    page.goto(site.setup_link)

    expect(page.get_by_text("this link no longer works")).to_be_visible()


def test_a_wrong_password_is_reported_and_the_username_is_kept(site: Site, open_page: Open) -> None:
    page = open_page(site)
    page.goto("/")
    page.get_by_label("Username").fill(ADMIN)
    page.get_by_label("Password").fill("not this one")
    page.get_by_role("button", name="Sign in", exact=True).click()

    expect(page.get_by_role("alert")).to_contain_text("Wrong username or password")
    expect(page.get_by_label("Username")).to_have_value(ADMIN)
