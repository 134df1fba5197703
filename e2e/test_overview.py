"""A new lab's first page, and what it becomes once something is analyzed; with axe in each size."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from e2e import doing, pages
from e2e.conftest import ADMIN, ADMIN_PASSWORD, Open, new_site
from e2e.looking import look
from e2e.running import Account, Site

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def new_lab(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Site]:
    """A lab that has analyzed nothing yet."""
    yield from new_site(tmp_path_factory.mktemp("new"), browser)


def test_a_new_lab_has_no_page_with_faults(new_lab: Site, open_page: Open) -> None:
    page = open_page(new_lab, Account(ADMIN, ADMIN_PASSWORD))
    for name, address in pages.EMPTY.items():
        page.goto(address)
        look(page, f"{name}-empty")


def test_the_first_page_leads_to_the_first_analysis_and_then_shows_the_lab(
    new_lab: Site, open_page: Open
) -> None:
    page = open_page(new_lab, Account(ADMIN, ADMIN_PASSWORD))
    page.goto("/")
    expect(page.get_by_role("heading", name="Welcome")).to_be_visible()
    page.get_by_role("link", name="Start the first analysis").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("New analysis")

    number = doing.analyze(page, model="resnet-18", gpu="a10", current_batch_size="16")
    doing.wait_for_verdict(page)
    page.goto("/")
    recent = page.locator(f"#recent-{number}")
    expect(recent).to_contain_text("ResNet-18")
    _draw_all(page)
    look(page, "overview")
    expect(page.get_by_role("button", name="Save this chart as SVG").last).to_be_visible()
    recent.get_by_role("link").first.click()
    expect(page).to_have_url(f"{new_lab.url}/{number}/")


def _draw_all(page: Page) -> None:
    """Scroll to each chart, as they are drawn when they are about to be seen."""
    for chart in page.locator("[data-chart]").all():
        chart.scroll_into_view_if_needed()
        expect(chart.locator(".main-svg").first).to_be_visible()
