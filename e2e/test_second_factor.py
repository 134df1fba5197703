"""Second factors in use: app codes, recovery codes and passkeys."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from playwright.sync_api import CDPSession, Page, expect

from e2e import doing
from e2e.conftest import Open
from e2e.looking import look
from e2e.running import Account, Site

pytestmark = pytest.mark.e2e

VIRTUAL = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}
"""A device unlocked by its owner."""


def _code(key: str, steps: int) -> str:
    """The code of an authenticator app, this many 30-second steps from now."""
    return str(format_hotp_value(hotp_value(key, int(time.time()) // 30 + steps)))


def _password(page: Page, account: Account) -> None:
    page.goto("/")
    page.get_by_label("Username").fill(account.name)
    page.get_by_label("Password").fill(account.password)
    page.get_by_role("button", name="Sign in", exact=True).click()


def test_signing_in_with_app_and_recovery_codes(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    page.goto("/account/")
    look(page, "account-without")
    page.get_by_role("link", name="Set up an authenticator app").click()
    expect(page.get_by_role("heading", name="Authenticator app")).to_be_visible()
    look(page, "app")
    key = page.locator("#key code").inner_text()
    page.get_by_label("Current code from the app").fill(_code(key, 0))
    page.get_by_role("button", name="Turn it on").click()

    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()
    look(page, "recovery-codes")
    codes = page.locator(".codes code").all_inner_texts()
    assert len(codes) == 10
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert codes[0] in Path(download.value.path()).read_text()
    page.get_by_role("link", name="Create new ones", exact=True).click()
    expect(page.get_by_role("heading", name="Create new recovery codes?")).to_be_visible()
    look(page, "new-recovery-codes")
    page.goto("/account/")
    expect(page.get_by_text("10 left")).to_be_visible()
    look(page, "account-with")
    doing.sign_out(page)

    _password(page, member)
    expect(page.get_by_role("heading", name="One more step")).to_be_visible()
    look(page, "second-step")
    page.get_by_label("Code").fill("000000")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("Wrong or already used")).to_be_visible()
    # Not the code used during setup; the site may check it one step later.
    page.get_by_label("Code").fill(_code(key, 1))
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("button", name="Sign out", exact=True)).to_be_visible()
    doing.sign_out(page)

    _password(page, member)
    page.get_by_label("Code").fill(codes[0])
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("button", name="Sign out", exact=True)).to_be_visible()
    page.goto("/account/")
    expect(page.get_by_text("9 left")).to_be_visible()
    page.get_by_role("link", name="Remove the authenticator app").click()
    expect(page.get_by_role("heading", name="Remove the authenticator app?")).to_be_visible()
    look(page, "remove")
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_text("The authenticator app was removed.")).to_be_visible()


def _with_device(page: Page) -> CDPSession:
    """A window with a virtual authenticator."""
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    session.send("WebAuthn.addVirtualAuthenticator", {"options": VIRTUAL})
    return session


def test_a_passkey_signs_in_alone_and_as_a_second_factor_until_it_is_removed(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    page.goto("/account/passkeys/add/")
    there = site.url.replace("127.0.0.1", "localhost")
    link = page.get_by_role("link", name="Open at localhost")
    expect(link).to_have_attribute("href", re.compile(f"^{re.escape(there)}"))
    look(page, "no-passkeys")
    link.click()
    _with_device(page)
    page.get_by_label("Username").fill(member.name)
    page.get_by_label("Password").fill(member.password)
    look(page, "sign-in-with-passkey")
    page.get_by_role("button", name="Sign in", exact=True).click()

    page.get_by_label("Name").fill("laptop")
    expect(page.get_by_role("heading", name="Add a passkey")).to_be_visible()
    look(page, "add-passkey")
    page.get_by_role("button", name="Add passkey").click()
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()
    page.get_by_role("link", name="Back to your account").click()
    expect(page.get_by_text("signs in without the password")).to_be_visible()
    look(page, "account-with-passkey")
    page.get_by_role("link", name="Rename passkey laptop").click()
    expect(page.get_by_role("heading", name="Rename a passkey")).to_be_visible()
    look(page, "rename-passkey")
    page.get_by_label("Name").fill("desk")
    page.get_by_role("button", name="Rename", exact=True).click()
    expect(page.get_by_text("Passkey desk", exact=True)).to_be_visible()
    doing.sign_out(page)

    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page.get_by_role("button", name="Sign out", exact=True)).to_be_visible()
    doing.sign_out(page)
    page.get_by_label("Username").fill(member.name)
    page.get_by_label("Password").fill(member.password)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="One more step")).to_be_visible()
    look(page, "second-step-passkey")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("button", name="Sign out", exact=True)).to_be_visible()

    page.goto(f"{there}/account/")
    page.get_by_role("link", name="Remove passkey desk").click()
    expect(page.get_by_role("heading", name="Remove")).to_be_visible()
    look(page, "remove-passkey")
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_text("was removed.")).to_be_visible()
    expect(page.get_by_text("You sign in with a password only.")).to_be_visible()
    look(page, "account-without-passkey")


def test_a_required_second_factor_must_be_set_up_first(tmp_path: Path, open_page: Open) -> None:
    site = Site(tmp_path, "serve", {"MEMORYMARK_REQUIRE_MFA": "all"})
    try:
        password = site.add_member("grace", admin=True).password
        page = open_page(site)
        page.goto("/history/")
        page.get_by_label("Username").fill("grace")
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("Your lab requires a second factor")
        look(page, "account-rule")
        page.get_by_role("link", name="Set up an authenticator app").click()
        key = page.locator("#key code").inner_text()
        page.get_by_label("Current code from the app").fill(_code(key, 0))
        page.get_by_role("button", name="Turn it on").click()
        expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()

        page.goto("/history/")
        expect(page.get_by_role("heading", name="Analyses", exact=True)).to_be_visible()
        page.goto("/members/")
        look(page, "members")
    finally:
        site.end()


def test_a_failed_passkey_is_explained(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site)
    session = _with_device(page)
    session.send("WebAuthn.disable")  # with no device
    page.goto(site.url.replace("127.0.0.1", "localhost") + "/accounts/login/")
    _with_device(page)
    page.get_by_role("button", name="Sign in with a passkey").click()

    expect(page.get_by_role("alert")).to_contain_text("No passkey was provided")
