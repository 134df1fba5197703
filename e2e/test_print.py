"""On paper: charts are there, nothing is cut off, and what can only be clicked is left out."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from e2e import doing
from e2e.conftest import Open
from e2e.looking import overflow
from e2e.running import Account, Site

pytestmark = pytest.mark.e2e

A4_WIDTH, A4_LANDSCAPE_WIDTH = 688, 1016
"""Pixels between the margins."""


def _print(page: Page, width: int = A4_WIDTH) -> None:
    """Show the page as it is printed: browsers announce it, then change the medium."""
    page.set_viewport_size({"width": width, "height": 1000})
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")


def test_an_answer_prints_with_all_its_parts(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member)
    doing.analyze(page, **doing.SAMPLE)
    doing.wait_for_verdict(page)
    doing.wait_for_ladder(page)
    _print(page)
    timeline = page.locator("[data-chart=timeline-figure]")
    expect(timeline.locator("svg.main-svg").first).to_be_visible()
    for heading in ("Trials", "What if?", "Memory over one training step (batch 8)"):
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
    for gone in (
        ".sections", ".proof-tabs", ".site-header", ".decision .actions", ".share",
        ".config details:not([open])",
    ):  # fmt: skip
        expect(page.locator(gone).first).to_be_hidden()
    expect(page.get_by_role("table").filter(has_text="Host, GiB")).to_be_visible()
    assert overflow(page) <= 0
    assert len(page.pdf(format="A4")) > 10_000


def test_charts_are_drawn_without_scrolling_for_a_picture_of_the_page(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    doing.analyze(page, **doing.SAMPLE)
    doing.wait_for_verdict(page)
    page.reload()
    timeline = page.locator("[data-chart=timeline-figure] svg.main-svg").first
    expect(timeline).to_be_attached()
    page.get_by_role("tab", name="Step").click()
    expect(timeline).to_be_visible()
    assert overflow(page) <= 0


def test_printed_savings_keep_the_tables(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member)
    doing.analyze(page, **doing.SAMPLE)
    doing.wait_for_verdict(page)
    page.goto("/savings/")
    _print(page)
    expect(page.locator("table.savings thead").first).to_be_visible()  # on a phone they are cards
    assert (
        page.locator("table.savings").first.evaluate("e => getComputedStyle(e).display") == "table"
    )
    expect(page.locator(".saved-period")).to_be_hidden()
    assert overflow(page) <= 0


def test_a_printed_history_is_no_wider_than_its_landscape_page(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    long_names = ["w" * 40, "of many words that wrap at their spaces"]
    number = doing.analyze(page, **doing.SAMPLE)
    doing.wait_for_verdict(page)
    page.goto("/history/")
    page.get_by_label(f"Edit tags of #{number}").click()
    page.get_by_label(f"Tags of #{number}, comma-separated").fill(", ".join(long_names))
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("link", name=long_names[0])).to_be_visible()
    _print(page, A4_LANDSCAPE_WIDTH)
    expect(page.locator("table.history .row-id").first).to_be_visible()
    expect(page.locator(".filters")).to_be_hidden()
    table = page.locator("table.history")
    assert table.evaluate("e => e.getBoundingClientRect().right <= innerWidth")


_CUT_OFF = """() => [...document.querySelectorAll("table.history tbody td")].filter((cell) =>
  cell.offsetParent && (cell.getBoundingClientRect().right > innerWidth
  || cell.scrollWidth > cell.clientWidth + 1)).map((cell) => cell.outerHTML)"""


def test_a_history_with_all_columns_prints_each_analysis_as_a_block(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    doing.analyze(page, **doing.SAMPLE)
    doing.wait_for_verdict(page)
    page.goto("/history/")
    boxes = page.locator("input[name=columns]")
    every = [("columns", str(box.get_attribute("value"))) for box in boxes.all()]
    page.goto(f"/history/?{urlencode(every)}")
    _print(page, A4_LANDSCAPE_WIDTH)
    table = page.locator("table.history")
    expect(table.locator("thead")).to_be_hidden()
    expect(table.locator("tbody .row-model").first).to_be_visible()
    assert page.evaluate(_CUT_OFF) == []
    assert overflow(page) <= 0
