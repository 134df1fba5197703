"""Single sign-on in use, with a local provider that signs in without asking."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from e2e import doing
from e2e.browsing import Watch
from e2e.conftest import Open
from e2e.looking import look
from e2e.running import Site
from memorymark_site.accounts.tests.fake_provider import CLIENT, SECRET, FakeProvider

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    provider = FakeProvider()
    provider.claims = {
        "email": "grace@lab.example",
        "email_verified": True,
        "preferred_username": "grace",
    }
    yield provider
    provider.end()


@pytest.fixture(scope="module")
def lab(provider: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    settings = {
        "MEMORYMARK_OIDC_ISSUER": provider.url,
        "MEMORYMARK_OIDC_CLIENT_ID": CLIENT,
        "MEMORYMARK_OIDC_CLIENT_SECRET": SECRET,
        "MEMORYMARK_OIDC_NAME": "Lab login",
        "MEMORYMARK_OIDC_NEW": "member",
    }
    site = Site(tmp_path_factory.mktemp("sso"), "serve", settings)
    yield site
    site.end()


def test_a_new_member_signs_in_and_an_existing_one_links_an_account(
    lab: Site, provider: FakeProvider, open_page: Open, watch: Watch
) -> None:
    admin = lab.add_member("ada", admin=True)
    page = open_page(lab)
    page.goto("/gpus/")
    look(page, "sign-in-with-sso")
    page.get_by_role("button", name="Sign in with Lab login").click()
    expect(page.get_by_role("heading", name="GPUs")).to_be_visible()
    expect(page.get_by_text("grace", exact=True)).to_be_visible()
    doing.sign_out(page)

    provider.claims["sub"] = "0002"
    page.goto("/accounts/sso/")
    look(page, "sso")
    watch.expected_statuses = {403}
    page.get_by_role("button", name="Sign in with Lab login").click()
    expect(page.get_by_role("alert")).to_contain_text("not linked to this sign-in")
    look(page, "sso-failed")

    ada = open_page(lab, admin)
    ada.goto("/members/")
    ada.get_by_role("button", name="Create invitation").click()
    invitation = ada.get_by_label("Address of the link").input_value()
    ada.goto("/account/")
    look(ada, "account-sso")
    ada.get_by_role("button", name="Link Lab login").click()
    expect(ada.get_by_text("You can now sign in with Lab login.")).to_be_visible()
    look(ada, "account-sso-linked")
    doing.sign_out(ada)
    ada.get_by_role("button", name="Sign in with Lab login").click()
    expect(ada.get_by_text("ada", exact=True)).to_be_visible()

    provider.claims |= {"sub": "0003", "preferred_username": "eve"}
    page.goto(invitation)
    look(page, "join-with-sso")
    page.get_by_role("button", name="Join with Lab login").click()
    expect(page.get_by_text("eve", exact=True)).to_be_visible()
