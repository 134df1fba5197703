from __future__ import annotations

import pytest
from playwright.sync_api import expect

from e2e import doing
from e2e.browsing import Watch
from e2e.conftest import PHONE, Open
from e2e.looking import look
from e2e.running import Account, Site

pytestmark = pytest.mark.e2e


def test_a_share_link_shows_the_answer_until_it_is_revoked(
    site: Site, member: Account, open_page: Open, watch: Watch
) -> None:
    page = open_page(site, member, **PHONE)
    pk = doing.analyze(page, **doing.SAMPLE)
    verdict = doing.wait_for_verdict(page)
    page.locator("#decision").get_by_role("link", name="Share").click()
    page.get_by_role("button", name="Create link").click()
    address = page.get_by_label("Address of the link").input_value()

    stranger = open_page(site, **PHONE)
    stranger.goto(address)
    expect(stranger.locator("#decision-title")).to_have_text(verdict)
    stranger.locator("[data-chart]").first.scroll_into_view_if_needed()
    expect(stranger.locator("[data-chart] svg.main-svg").first).to_be_visible()
    assert member.name not in stranger.content()
    assert stranger.locator("form, nav:not(.sections)").count() == 0
    look(stranger, "shared")

    page.goto(f"/{pk}/#share")
    page.get_by_role("button", name="Revoke the link").click()
    expect(page.get_by_text("Link revoked")).to_be_visible()
    watch.expected_statuses = {404}
    stranger.reload()
    expect(
        stranger.get_by_role("heading", name="This link has expired or was revoked")
    ).to_be_visible()
