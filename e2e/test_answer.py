"""The page of an answer: the decision, the ladder, the slider, the lines to paste and the tabs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from e2e import browsing, doing
from e2e.browsing import LOOKS, Theme
from e2e.conftest import Account, Open
from e2e.looking import barriers, look, overflow
from e2e.running import Site

pytestmark = pytest.mark.e2e

FIRST_SCREEN_BYTES = 150_000
"""All that the first screen and the slider take from the server, compressed."""
FONT_BYTES = 350_000
"""Three weights of Inter: loaded once for all pages, while text is shown in the system's font."""


@dataclass(frozen=True)
class Answer:
    """An answer with its whole ladder, and the session of the member it belongs to."""

    url: str
    session: Any

    def open(self, page: Page) -> Page:
        """Show it in a window of the site that nobody has signed in to."""
        page.context.add_cookies(self.session)
        page.goto(self.url)
        return page


@pytest.fixture(scope="module")
def answer(site: Site, browser: Browser) -> Iterator[Answer]:
    """One for all tests of this file; none of them changes it."""
    context = browser.new_context(**browsing.context_options(site.url))
    context.set_default_timeout(doing.PATIENCE_MS)
    page = context.new_page()
    doing.sign_in(page, "reader", site.add_member("reader"))
    doing.analyze(page, model="bert", gpu="a10", precision="fp32")
    doing.wait_for_verdict(page)
    doing.wait_for_ladder(page)
    yield Answer(page.url, [c for c in context.cookies() if c.get("name") == "sessionid"])
    context.close()


@pytest.fixture
def page(site: Site, open_page: Open, answer: Answer) -> Page:
    return answer.open(open_page(site))


@pytest.mark.parametrize(("screen", "theme"), LOOKS)
def test_the_page_decides_before_anything_else(
    site: Site, open_page: Open, answer: Answer, screen: str, theme: Theme
) -> None:
    page = answer.open(open_page(site, screen=screen, theme=theme))
    sentence = page.locator("#decision-title").inner_text()
    assert len(sentence.split()) <= 15
    assert re.match(r"(Switch|Keep|Try|Drop|It does not fit)", sentence)
    screens = {"desktop": 3, "tablet": 3, "phone": 7}[screen]
    top = page.locator("#proof").evaluate("element => element.getBoundingClientRect().top")
    assert top <= screens * page.evaluate("window.innerHeight")
    assert barriers(page) == []
    assert overflow(page) <= 0


def test_the_ladder_makes_a_rung_the_pages_answer_with_one_click(page: Page) -> None:
    expect(page.locator("#decision-title")).to_contain_text("bf16")
    headings = page.locator("#ladder thead th").all_inner_texts()
    assert [" ".join(heading.split()) for heading in headings[:5]] == [
        "Change", "Speedup predicted", "Cost at an assumed price", "What it does to training",
        "Effort",
    ]  # fmt: skip
    page.locator("#ladder").get_by_role("link", name=re.compile("^Use batch")).click()
    expect(page.locator("#decision-title")).not_to_contain_text("bf16")
    expect(page.locator(".rung-answer")).to_contain_text("shown here")


def test_the_headline_offers_what_keeps_the_global_batch_and_what_raises_it(page: Page) -> None:
    kept, raised = page.locator(".offer").all()
    expect(kept.get_by_role("heading")).to_have_text("Keeps the global batch of 16")
    expect(kept).to_contain_text("Learning rate: as it is.")
    expect(raised.get_by_role("heading")).to_contain_text("Raises the global batch from 16 to ")
    expect(raised).to_contain_text("square root rule for Adam-like optimizers")
    for offer in (kept, raised):
        expect(offer.locator(".figure")).to_contain_text("\N{MULTIPLICATION SIGN}")
    raised.get_by_role("link", name="Use").click()
    expect(page.locator("#decision-title")).to_contain_text("batch")


def test_what_does_not_fit_gets_advice_too(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member)
    doing.analyze(page, model="llama-3.2-1b", gpu="t4", precision="fp32", sequence_length="64")
    expect(page.locator("#no-fit-title")).to_have_text(
        "No, it does not fit", timeout=doing.ANSWER_MS
    )
    expect(page.get_by_text("The analysis failed")).to_have_count(0)
    doing.wait_for_ladder(page)
    expect(page.locator("#decision-title")).to_contain_text("fits")


def test_the_slider_goes_through_the_batches_by_keyboard_and_click_without_a_request(
    page: Page,
) -> None:
    slider = page.get_by_role("slider", name="Batch size")
    reading = page.locator(".picture-reading")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    # The browser asks for a page's icon when it likes.
    icon = page.locator("link[rel~=icon]").get_attribute("href")
    slider.focus()
    slider.press("End")
    expect(reading).to_contain_text("runs out of memory")
    slider.press("Home")
    expect(reading).to_contain_text("fits")
    expect(reading).to_contain_text("samples/s")
    before = reading.inner_text()
    page.locator(".picture-bar").nth(5).click(force=True)
    assert reading.inner_text() != before
    assert [url for url in requests if urlsplit(url).path != icon] == []


def test_the_lines_to_paste_can_be_copied(page: Page) -> None:
    page.get_by_role("link", name="Copy config").click()
    code = page.locator("#config-1").inner_text()
    assert "per_device_train_batch_size=" in code
    assert "MemoryMarkCallback" in code
    page.locator("#config").get_by_role("button", name="Copy").first.click()
    expect(page.locator("#config").get_by_role("button").first).to_have_text("Copied")


def test_the_tabs_show_one_part_of_the_proof_at_a_time(page: Page) -> None:
    expect(page.get_by_role("tab", name="Memory")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#log")).to_be_hidden()
    expect(page.locator("#past-memory-scroll")).to_be_visible()
    look(page, "proof-memory")
    page.get_by_role("tab", name="Memory").press("ArrowRight")
    expect(page.get_by_role("heading", name="What if?")).to_be_visible()
    past = page.locator("#past-speed-scroll")
    expect(past.get_by_role("row", name="All models")).to_contain_text(re.compile(r"±\d+\.\d%"))
    look(page, "proof-speed")
    page.get_by_role("tab", name="Reproduce").click()
    expect(page.locator("#log")).to_be_visible()
    expect(page.get_by_role("heading", name="Largest tensors")).to_be_hidden()


def test_the_first_screen_is_light_and_the_charts_library_comes_with_its_first_chart(
    page: Page,
) -> None:
    address = page.url
    page.goto("about:blank")  # ends what the page still loads
    page.context.new_cdp_session(page).send("Network.clearBrowserCache")
    loaded: list[Response] = []
    page.on("response", lambda response: loaded.append(response))
    page.goto(address, wait_until="networkidle")
    assert not any("plotly" in response.url for response in loaded)
    sizes = {response.url: response.request.sizes()["responseBodySize"] for response in loaded}
    fonts = [size for url, size in sizes.items() if url.endswith(".woff2")]
    assert sum(sizes.values()) - sum(fonts) < FIRST_SCREEN_BYTES
    assert sum(fonts) < FONT_BYTES
    page.locator("[data-chart]").first.scroll_into_view_if_needed()
    expect(page.locator("[data-chart] svg.main-svg").first).to_be_visible()
    assert any("plotly" in response.url for response in loaded)


def test_without_javascript_picture_tables_and_lines_are_there(
    site: Site, open_page: Open, answer: Answer
) -> None:
    plain = answer.open(open_page(site, javascript=False))
    expect(plain.locator(".picture-bars")).to_be_visible()
    expect(plain.get_by_role("heading", name="Trials")).to_be_visible()
    expect(plain.locator("#config-1")).to_be_visible()
    expect(plain.locator("#log")).to_be_visible()


def test_history_share_link_and_api_show_the_decision_of_the_page(
    site: Site, page: Page, answer: Answer, open_page: Open
) -> None:
    sentence = page.locator("#decision-title").inner_text()
    cost = page.locator(".decision-cost").inner_text()
    # The sentence has a range where the speedup depends on the CPU, the lists its middle.
    speedup = page.locator(".offer-shown .figure").inner_text()
    money = re.search(r"\$[\d.,]+ less per year", cost)
    assert money
    saved = money.group().split()[0]
    number = urlsplit(answer.url).path.strip("/")
    expect(page.locator("#chips")).to_contain_text("fp32 → bf16")

    page.goto(f"{site.url}/history/")
    row = page.get_by_role("row").filter(has=page.locator(f"#analysis-{number}"))
    for said in ("fp32 → bf16", "with bf16", speedup, saved):
        expect(row).to_contain_text(said)

    body = page.request.get(f"{site.url}/api/v1/analyses/{number}/").json()
    assert body["decision"]["sentence"] == sentence
    assert body["moves"][0].startswith("bf16")

    page.goto(answer.url)
    page.locator("#decision").get_by_role("link", name="Share").click()
    page.get_by_role("button", name="Create link").click()
    shared = open_page(site)
    shared.goto(page.get_by_label("Address of the link").input_value())
    expect(shared.locator("#decision-title")).to_have_text(sentence)
    expect(shared.locator(".decision-cost")).to_contain_text(money.group())
