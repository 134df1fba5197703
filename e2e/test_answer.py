"""The page of an answer: the decision, the ladder, the slider, the lines to paste and the tabs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, Response, expect

from e2e import browsing, doing
from e2e.browsing import LOOKS, Theme
from e2e.conftest import Open
from e2e.looking import barriers, look, overflow
from e2e.running import Account, Site

pytestmark = pytest.mark.e2e

FIRST_SCREEN_BYTES = 150_000
"""All that the first screen and the slider take from the server, compressed."""
FONT_BYTES = 350_000
"""Three weights of Inter: loaded once for all pages, while text is shown in the system's font."""


@dataclass(frozen=True)
class Answer:
    """An answer with its whole ladder, and the member it belongs to."""

    url: str
    owner: Account

    def open(self, page: Page) -> Page:
        """Show it in a window of the site that nobody has signed in to."""
        doing.resume(page, self.url, self.owner.session)
        return page


@pytest.fixture(scope="module")
def answer(site: Site, browser: Browser) -> Iterator[Answer]:
    """One for all tests of this file; none of them changes it."""
    context = browser.new_context(**browsing.context_options(site.url))
    context.set_default_timeout(doing.TIMEOUT_MS)
    page = context.new_page()
    owner = site.add_member("reader")
    doing.resume(page, site.url, owner.session)
    doing.analyze(page, model="bert", gpu="a10", precision="fp32")
    doing.wait_for_verdict(page)
    doing.wait_for_ladder(page)
    yield Answer(page.url, owner)
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


def test_the_first_screen_has_the_two_bars_and_the_three_cards(page: Page) -> None:
    today, then = page.locator("#decision .use").all()
    expect(today).to_contain_text(re.compile(r"Today: batch 16.*GiB of .*fits, .*GiB unused"))
    expect(then).to_contain_text(re.compile(r"Then: batch \d+.*GiB of .*fits, .*GiB unused"))
    assert _fill(today) != _fill(then)  # red, green
    cards = page.locator("#decision .figure-card")
    assert cards.locator("dt").all_inner_texts() == [
        "Speedup", "Cost per run", "Potential savings per year",
    ]  # fmt: skip
    for gone in ("+cpu", "vLLM"):
        expect(page.locator("#analysis")).not_to_contain_text(gone)
    expect(page.locator("#decision")).to_contain_text("Today's settings are assumed: ")
    for part in (today, then, *cards.all()):
        expect(part.locator(".badge").first).to_be_visible()
        assert part.evaluate("e => e.getBoundingClientRect().bottom <= innerHeight")


def _fill(bar: Locator) -> str:
    fill: str = bar.locator(".use-used").evaluate("e => getComputedStyle(e).fill")
    return fill


def test_links_to_the_sections_stay_in_sight(page: Page) -> None:
    sections = page.get_by_role("navigation", name="Sections")
    names = sections.get_by_role("link").all_inner_texts()
    assert names == ["Decision", "Changes", "Memory", "GPUs", "Proof", "Config"]
    for name in reversed(names):
        link = sections.get_by_role("link", name=name)
        target = page.locator(str(link.get_attribute("href")))
        link.click()
        expect(target).to_be_in_viewport()
        expect(sections).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("link", name="Analyze another")).to_have_attribute("href", "/new/")


@pytest.mark.parametrize("screen", ["tablet", "phone"])
def test_the_commands_that_measure_stay_on_the_page(
    site: Site, open_page: Open, answer: Answer, screen: str
) -> None:
    page = answer.open(open_page(site, screen=screen))
    page.get_by_text("Measure to confirm").click()
    commands = page.locator(".measure .menu-items")
    expect(commands).to_be_visible()
    assert commands.evaluate("e => e.getBoundingClientRect().right <= innerWidth")
    assert commands.evaluate("e => e.getBoundingClientRect().left >= 0")
    assert overflow(page) <= 0


def test_tabs_and_tables_that_do_not_scroll_show_no_sign_of_it(page: Page) -> None:
    for card in page.locator(".card:has(.scroll)").all():  # a gradient below the covers shows
        assert card.evaluate("e => getComputedStyle(e).backgroundImage") == "none"
    tabs = page.get_by_role("tablist", name="Proof")
    assert tabs.evaluate("e => e.scrollHeight <= e.clientHeight")


def test_the_ladder_makes_a_rung_the_pages_answer_with_one_click(page: Page) -> None:
    expect(page.locator("#decision-title")).to_contain_text("bf16")
    headings = page.locator("#ladder thead th").all_inner_texts()
    assert [" ".join(heading.split()) for heading in headings[:5]] == [
        "Change", "Speedup predicted", "Cost at an assumed price", "What it does to training",
        "Effort",
    ]  # fmt: skip
    gains = page.locator("#ladder tbody .rung-gain").all_inner_texts()
    speedups = [float(gain.split("\N{MULTIPLICATION SIGN}")[0].replace(",", "")) for gain in gains]
    assert speedups == sorted(speedups, reverse=True)
    for cost in page.locator("#ladder tbody .rung-gain + td").all():
        expect(cost).to_contain_text(re.compile(r"\$[\d,.]+\s*per run|^\s*–\s*$"))
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
    sentence = page.locator("#decision-title").inner_text()
    raised.get_by_role("link", name="Use").click()
    expect(page.locator("#decision-title")).to_contain_text("batch")
    compared = page.locator("#compared")
    expect(compared).to_contain_text(sentence)
    expect(page.locator("#decision").get_by_role("link", name="Share")).to_have_count(0)
    compared.get_by_role("link", name="Back to the decision").click()
    expect(page.locator("#decision-title")).to_have_text(sentence)


def test_what_does_not_fit_gets_advice_too(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member)
    small = {"model": "distilbert", "precision": "fp32", "sequence_length": "64"}
    doing.analyze(page, **small, gpu="t4", memory_limit_bytes="1.2 GiB")
    expect(page.locator("#no-fit-title")).to_have_text(
        "No, it does not fit", timeout=doing.ANSWER_MS
    )
    expect(page.get_by_text("The analysis failed")).to_have_count(0)
    doing.wait_for_ladder(page)
    expect(page.locator("#decision-title")).to_contain_text("fits")
    rungs = page.locator("#ladder .rung")
    expect(rungs.filter(has_text=re.compile(r"^\s*as it is"))).to_have_class(
        re.compile("rung-fails")
    )
    today, then = page.locator("#decision .use").all()
    expect(today).to_contain_text("GiB too much")
    expect(then).to_contain_text("GiB unused")
    for label in ("Samples per second", "Cost of a million samples", "Largest batch"):
        expect(page.locator("#decision .figure-card").filter(has_text=label)).to_be_visible()
    expect(page.locator("#chips")).to_contain_text("→")  # as they changed with the decision
    number = urlsplit(page.url).path.strip("/")
    body = page.request.get(f"{site.url}/api/v1/analyses/{number}/").json()
    assert body["outcome"] == "does_not_fit"
    assert body["decision"]["sentence"] == page.locator("#decision-title").inner_text()
    expect(page.locator("#decision").get_by_role("link", name="Share")).to_be_visible()
    page.reload()  # with the scripts of an answer
    expect(page.get_by_role("slider", name="Batch size")).to_be_visible()
    page.get_by_role("tab", name="Trials").click()
    expect(page.get_by_role("heading", name="Trials")).to_be_visible()


def test_what_nothing_makes_fit_shows_what_it_needs_and_where_it_fits(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    doing.analyze(page, model="bert", gpu="a10", memory_limit_bytes="300 MiB")
    expect(page.locator("#no-fit-title")).to_be_visible(timeout=doing.ANSWER_MS)
    (bar,) = page.locator(".use").all()
    expect(bar).to_contain_text("The smallest batch")
    expect(bar).to_contain_text("too much")
    expect(bar.locator(".badge")).to_have_text("predicted")
    used, limit = bar.locator(".use-used"), bar.locator(".bar-limit")
    end, memory = used.bounding_box(), limit.bounding_box()
    assert end
    assert memory
    assert end["x"] < memory["x"] < end["x"] + end["width"]
    doing.wait_for_ladder(page)
    expect(page.get_by_text("Nothing that was tried makes it fit on this GPU.")).to_be_visible()
    expect(page.get_by_text("Cheapest per sample that surely fits")).not_to_have_count(0)
    page.get_by_role("link", name="All GPUs").click()
    expect(page.get_by_role("heading", name="GPU map")).to_be_in_viewport()
    look(page, "no-fit")


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


def test_the_picture_has_axes_with_units_and_figures_wherever_one_points(page: Page) -> None:
    picture = page.locator(".picture-bars")
    for words in ("GPU memory, GiB", "Speed, samples/s", "Batch, samples", "limit", "22.07 GiB"):
        expect(picture.get_by_text(words, exact=True)).to_be_visible()
    limit = picture.locator(".bar-limit").bounding_box()
    label = picture.get_by_text("22.07 GiB", exact=True).bounding_box()
    assert limit
    assert label
    assert label["x"] >= limit["x"] + limit["width"]  # beside the line, not on it
    box = picture.bounding_box()
    assert box
    readings = set()
    picture.scroll_into_view_if_needed()
    for share_x, share_y in ((0.3, 0.1), (0.5, 0.5), (0.8, 0.8)):
        page.mouse.move(0, 0)
        picture.hover(position={"x": box["width"] * share_x, "y": box["height"] * share_y})
        reading = page.locator(".picture-reading").inner_text()
        for figure in ("Batch", "GiB", "samples/s", "per million samples"):
            assert figure in reading
        readings.add(reading)
    assert len(readings) == 3


_LETTERS = """names => names.filter((name) => name.textContent.trim()).map((name) => {
  const { x, y, width, height } = name.getBoundingClientRect();
  const halo = parseFloat(getComputedStyle(name).strokeWidth);
  return { x: x + halo, y: y + halo, width: width - 2 * halo, height: height - 2 * halo };
})"""
"""The boxes of names, without the halo in the colour of the card around them."""


@pytest.mark.parametrize("screen", ["desktop", "phone"])
def test_names_of_batches_say_their_condition_within_the_picture(
    site: Site, open_page: Open, answer: Answer, screen: str
) -> None:
    page = answer.open(open_page(site, screen=screen))
    names = page.locator(".picture-bars .picture-mark")
    expect(names.filter(has_text="fastest that surely fits")).to_have_count(1)
    expect(names.filter(has_text="largest that ")).to_have_count(1)
    edge = page.locator(".by-batch").bounding_box()
    assert edge
    for name in names.evaluate_all(_LETTERS):
        assert name["x"] >= edge["x"]
        assert name["x"] + name["width"] <= edge["x"] + edge["width"]


def test_names_on_the_gpu_map_do_not_overlap(page: Page) -> None:
    names = page.locator(".map-view-on-demand .map-dot text")
    shown = names.evaluate_all(_LETTERS)
    assert len(shown) > 10
    for number, one in enumerate(shown):
        for other in shown[:number]:
            apart_x = (
                one["x"] >= other["x"] + other["width"] or other["x"] >= one["x"] + one["width"]
            )
            apart_y = one["y"] >= other["y"] + other["height"] - 2
            apart_y = apart_y or other["y"] >= one["y"] + one["height"] - 2
            assert apart_x or apart_y, (one, other)


def test_the_lines_to_paste_can_be_copied(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#decision").get_by_role("link", name="Copy config").click()
    expect(page.locator("#decision [data-copy]")).to_have_text("Copied")
    code = page.locator("#config-1").inner_text()
    assert page.evaluate("navigator.clipboard.readText()").strip() == code.strip()
    assert "per_device_train_batch_size=" in code
    assert "MemoryMarkCallback" in code
    assert "to_lab(" in code
    assert f"analysis_id={urlsplit(page.url).path.strip('/')}" in code
    page.locator("#config").get_by_role("button", name="Copy").first.click()
    expect(page.locator("#config").get_by_role("button").first).to_have_text("Copied")


def test_the_lines_to_paste_are_those_of_the_rung_that_is_shown(page: Page) -> None:
    precision, lines = "bf16=True", page.locator("#config-1")
    expect(lines).to_contain_text(precision)
    number = urlsplit(page.url).path.strip("/")
    page.locator("#ladder").get_by_role("link", name=re.compile("^Use batch")).click()
    expect(page.locator(".rung-answer")).to_contain_text("shown here")
    expect(lines).not_to_contain_text(precision)
    said = re.search(r"batch ([\d,]+)", page.locator("#decision-title").inner_text())
    assert said
    expect(lines).to_contain_text(f"per_device_train_batch_size={said[1].replace(',', '')}")
    expect(lines).to_contain_text(f"analysis_id={number}")  # a run of it still finds its answer
    expect(lines).to_contain_text("to_lab(")


def test_the_whole_page_is_no_longer_than_five_screens_of_a_laptop(page: Page) -> None:
    height = page.evaluate("document.documentElement.scrollHeight")
    assert height <= 5 * page.evaluate("window.innerHeight")


def test_the_tabs_show_one_part_of_the_proof_at_a_time(page: Page) -> None:
    expect(page.get_by_role("tab", name="Memory")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#log")).to_be_hidden()
    expect(page.locator("#past-memory-scroll")).to_be_visible()
    look(page, "proof-memory")
    page.get_by_role("tab", name="Memory").press("ArrowRight")
    expect(page.get_by_role("heading", name="Memory over one training step")).to_be_visible()
    look(page, "proof-step")
    page.get_by_role("tab", name="Step").press("ArrowRight")
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
    page.get_by_role("tab", name="Step").click()
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
    speed_card, cost_card, saved_card = page.locator("#decision .figure-value").all_inner_texts()
    # The sentence has a range where the speedup depends on the CPU, the lists its middle.
    speedup = page.locator(".offer-shown .figure").inner_text()
    assert speedup == speed_card
    saved = saved_card
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
    shown = shared.locator("#decision .figure-value").all_inner_texts()
    assert shown == [speed_card, cost_card, saved_card]
