"""The demo in a browser: no page has errors, accessibility problems or overflow; and the keyboard.

One file, so that one test process fills the demo, which takes a minute.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from e2e import browsing, doing, pages
from e2e.browsing import LOOKS, Theme, Watch
from e2e.conftest import PHONE, Open
from e2e.looking import barriers, broken_words, labels_of_picture, overflow, overflow_at
from e2e.running import Account, Site
from memorymark_site.tests.fault_statuses import STATUSES

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module", params=LOOKS, ids="-".join)
def window(
    request: pytest.FixtureRequest, demo: Site, demo_account: Account, browser: Browser
) -> Iterator[tuple[Page, Watch]]:
    """A signed-in window of this size and theme on the demo."""
    screen, theme = request.param
    watch = Watch()
    context = browser.new_context(**browsing.context_options(demo.url, screen, theme))
    context.set_default_timeout(doing.TIMEOUT_MS)
    watch.over(context)
    page = context.new_page()
    doing.resume(page, demo.url, demo_account.session)
    yield page, watch
    context.close()


def test_every_page_is_free_of_faults(
    window: tuple[Page, Watch], subtests: pytest.Subtests
) -> None:
    page, watch = window
    for name, address in pages.addresses(page).items():
        with subtests.test(page=name):
            watch.wrong.clear()
            watch.expected_statuses = pages.REFUSED if name.startswith("not-") else set()
            page.goto(address, wait_until="networkidle")
            watch.look(page)

            assert watch.wrong == []
            assert barriers(page) == []
            assert overflow(page) <= 0
            assert overflow_at(page, "tablet") <= 0


def test_the_gpus_page_says_how_far_a_nodes_predictions_are_right(
    demo: Site, demo_account: Account, open_page: Open
) -> None:
    page = open_page(demo, demo_account)
    page.goto("/gpus/")
    expect(page.get_by_text("Predictions on this node: memory within").first).to_be_visible()
    compared = page.get_by_role("region", name="Measured and predicted on h100-1")
    expect(compared).to_be_hidden()
    page.locator("summary", has_text="h100-1").click()
    expect(compared).to_be_visible()


@pytest.mark.parametrize(("screen", "theme"), LOOKS)
def test_the_sign_in_pages_are_free_of_faults(
    demo: Site, open_page: Open, watch: Watch, screen: str, theme: Theme
) -> None:
    watch.expected_statuses = pages.REFUSED
    page = open_page(demo, screen=screen, theme=theme)
    for address in pages.WITHOUT_LOGIN.values():
        page.goto(address)

        assert barriers(page) == []
        assert overflow(page) <= 0


@pytest.mark.parametrize(("screen", "theme"), LOOKS)
def test_the_error_pages_are_free_of_faults(
    demo: Site, open_page: Open, watch: Watch, screen: str, theme: Theme
) -> None:
    page = open_page(demo, screen=screen, theme=theme)
    for name, status in STATUSES.items():
        watch.expected_statuses = {status}
        page.goto(pages.FAULTS[f"fault-{name}"])

        assert barriers(page) == []
        assert overflow(page) <= 0


@pytest.fixture
def page(demo: Site, demo_account: Account, open_page: Open) -> Page:
    return open_page(demo, demo_account)


def test_the_shortcut_sheet_lists_what_works_on_the_page(page: Page) -> None:
    page.goto("/history/")
    page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keyboard shortcuts")
    for does in ("Search", "Next row", "Select the row", "New analysis", "Savings"):
        expect(sheet.get_by_text(does, exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()

    page.goto("/savings/")
    page.keyboard.press("?")
    expect(sheet).to_be_visible()
    expect(sheet.get_by_text("Next row")).to_be_hidden()


def test_two_keys_open_a_page_except_while_typing(page: Page) -> None:
    page.goto("/history/")
    page.keyboard.press("/")
    expect(page.get_by_label("Search", exact=True)).to_be_focused()
    page.keyboard.type("gs")
    assert "/history/" in page.url
    page.get_by_label("Search", exact=True).blur()
    page.evaluate("performance.now = () => 0")  # as if no time passes between the two keys
    page.keyboard.press("g")
    page.keyboard.press("s")

    page.wait_for_url("**/savings/")


def test_rows_can_be_reached_and_selected_with_keys(page: Page) -> None:
    page.goto("/history/")
    for key in "jjx":
        page.keyboard.press(key)
    expect(page.locator("#results tbody tr").nth(1).get_by_role("checkbox")).to_be_checked()
    expect(page.locator("[data-selected]")).to_have_text("1 selected:")
    page.keyboard.press("k")
    number = page.locator("#results .row-id").first.inner_text()
    page.locator("#results .row-id a").first.focus()
    page.keyboard.press("Enter")

    page.wait_for_url(f"**/{number}/")


def test_ticks_are_kept_from_page_to_page(page: Page) -> None:
    page.goto("/history/")
    page.get_by_role("checkbox", name="Select #").first.check()
    page.get_by_role("link", name="Next").click()
    page.get_by_role("checkbox", name="Select #").first.check()
    expect(page.locator("[data-selected]")).to_have_text("2 selected (1 not on this page):")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare/?ids=*,*")

    page.goto("/history/")
    expect(page.locator("[data-selected]")).to_have_text("2 selected (1 not on this page):")
    page.get_by_role("button", name="Clear selection").click()
    expect(page.locator("[data-selected]")).to_have_text("With selected:")


def test_twenty_rows_fit_a_laptops_screen(page: Page) -> None:
    page.set_viewport_size({"width": 1366, "height": 768})
    page.goto("/history/")
    rows = page.locator("#rows tr")
    expect(rows.nth(19)).to_be_in_viewport(ratio=1)
    assert overflow(page) <= 0
    table = page.locator(".scroll")
    assert table.evaluate("box => box.scrollWidth - box.clientWidth") <= 0

    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Roomy rows").check()
    expect(page.locator("#rows .chips li").first).to_have_css("display", "list-item")
    expect(page).to_have_url(re.compile(r"density=roomy"))


@pytest.mark.parametrize("path", ["/savings/", "/savings/report/"])
def test_a_printed_page_says_that_its_lab_is_invented(page: Page, path: str) -> None:
    page.goto(path)
    page.emulate_media(media="print")
    expect(page.get_by_role("note").filter(has_text="invented")).to_be_visible()
    assert overflow(page) <= 0


def test_a_search_becomes_chips_that_can_be_removed(page: Page) -> None:
    page.goto("/history/")
    search = page.get_by_label("Search", exact=True)
    search.fill("model:vit this-year")
    search.press("Enter")
    bar = page.locator("#search-bar")
    expect(bar.get_by_role("link", name="Remove model:vit")).to_be_visible()
    expect(search).to_be_focused()
    expect(search).to_have_value("")
    search.press("Backspace")
    page.wait_for_url("**/history/?q=model%3Avit")
    bar.get_by_role("link", name="Remove model:vit").click()

    page.wait_for_url("**/history/")


def test_each_model_of_a_comparison_has_a_winner_and_its_picture_whole_labels(page: Page) -> None:
    ids = [
        str(row["id"])
        for model in ("resnet", "t5-small")
        for precision in ("fp32", "bf16-mixed")
        for row in _succeeded(page, model=model, precision=precision, gpu="a10")[:1]
    ]
    assert len(ids) == 4
    page.goto(f"/compare/?ids={','.join(ids)}")
    verdict = page.locator(".compare-verdict")
    expect(verdict).to_contain_text("each has a winner of its own")
    expect(verdict).to_contain_text("ResNet-50: ")
    expect(verdict).to_contain_text("T5 small: ")
    assert page.locator(".compare-group").all_inner_texts() == ["Results", "Settings"]
    expect(page.get_by_role("rowheader", name="Cost of a million samples").first).to_be_visible()
    labels, cut = labels_of_picture(page, f"/compare/bars.svg?ids={','.join(ids)}")
    assert len(labels) > 2 * len(ids)
    assert cut == []


def _succeeded(page: Page, **query: str) -> list[dict[str, Any]]:
    answer = page.request.get("/api/v1/analyses/", params={"status": "succeeded", **query})
    rows: list[dict[str, Any]] = answer.json()["results"]
    return rows


def test_words_of_mentions_stay_whole_on_a_phone(
    demo: Site, demo_account: Account, open_page: Open
) -> None:
    page = open_page(demo, demo_account, **PHONE)
    for address, part in (("/", "#decisions"), ("/savings/", ".changes")):
        page.goto(address)
        mentions = page.locator(part).first
        expect(mentions.get_by_role("button", name="Mention").first).to_be_attached()
        assert broken_words(mentions) == []


def test_savings_are_no_longer_than_seven_screens_of_a_phone(
    demo: Site, demo_account: Account, open_page: Open
) -> None:
    page = open_page(demo, demo_account, **PHONE)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/savings/")
    expect(page.locator(".saved [data-chart] .main-svg").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollHeight") < 6_000  # pixels


_CUT_TABLES = """() => [...document.querySelectorAll(".card-table")]
  .filter((card) => card.scrollWidth > card.clientWidth).map((card) => card.innerText)"""


@pytest.mark.parametrize("path", ["/savings/", "/savings/superseded/", "/gpu-hours/"])
def test_no_table_of_money_is_cut_on_paper(page: Page, path: str) -> None:
    page.set_viewport_size({"width": 688, "height": 1000})  # A4 between its margins
    page.goto(path)
    page.emulate_media(media="print")
    assert page.evaluate(_CUT_TABLES) == []


def test_what_is_folded_on_a_screen_is_printed(page: Page) -> None:
    page.goto("/savings/")
    formula = page.get_by_text("USD per year = GPU-hours per year × price")
    expect(formula).to_be_hidden()
    page.emulate_media(media="print")
    expect(formula).to_be_visible()


def test_single_letter_shortcuts_can_be_turned_off(page: Page) -> None:
    page.goto("/history/")
    page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keyboard shortcuts")
    page.get_by_label("Single-letter shortcuts").uncheck()
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    page.keyboard.press("n")
    page.keyboard.press("?")

    expect(sheet).to_be_visible()
    assert "/history/" in page.url


PRESS_AS_THE_LIST_CLOSES = """() => {
    document.getElementById("shortcuts").close();
    const question = new KeyboardEvent("keydown", { key: "?", bubbles: true, cancelable: true });
    document.activeElement.dispatchEvent(question);
}"""


def test_a_key_pressed_in_the_frame_in_which_the_list_closes_counts(page: Page) -> None:
    page.goto("/history/")
    page.keyboard.press("?")
    page.get_by_label("Single-letter shortcuts").focus()
    page.evaluate(PRESS_AS_THE_LIST_CLOSES)

    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
