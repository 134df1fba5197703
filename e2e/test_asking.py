"""The form in a real browser: questions, presets, search, preview, a session that ends."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from e2e import doing
from e2e.browsing import Watch
from e2e.conftest import Open
from e2e.looking import look
from e2e.running import Account, Site

pytestmark = pytest.mark.e2e


def test_the_question_decides_what_is_asked(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member)
    page.goto("/new/?ask=gpu")
    expect(page.get_by_role("button", name="Find the GPU")).to_be_visible()
    expect(page.get_by_label("Price limit")).to_be_visible()
    expect(page.locator("#id_gpu")).to_be_hidden()
    expect(page.get_by_label("Current batch size")).to_be_hidden()
    page.get_by_label("Does it fit?").check()
    expect(page.get_by_label("Batch to check")).to_be_visible()
    expect(page.get_by_label("Price limit")).to_be_hidden()
    page.get_by_label("Compare settings").check()
    expect(page.get_by_role("group", name="Precisions")).to_be_visible()
    expect(page.get_by_role("button", name="Compare", exact=True)).to_be_visible()


def test_whether_it_fits_is_answered_in_the_first_word(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)

    def check(batch: int, first: str) -> None:
        page.goto("/new/?ask=fit")
        doing.fill(page, "model", doing.SAMPLE["model"])
        page.get_by_label("Batch to check").fill(str(batch))
        expect(page.locator(".preview-headline")).to_have_text(
            re.compile(f"^{first}[,:] "), timeout=doing.ANSWER_MS
        )
        page.get_by_role("button", name="Check this batch").click()
        doing.wait_for_verdict(page)
        expect(page.locator("#decision")).to_have_text(re.compile(rf"^\s*{first}[,:] batch "))

    check(int(doing.SAMPLE["current_batch_size"]), "Yes")
    number = urlsplit(page.url).path.strip("/")
    result = page.request.get(f"{site.url}/api/v1/analyses/{number}/").json()["result"]
    assert result["safe_batch_size"] < result["largest_batch_size"]
    check(result["largest_batch_size"], "Maybe")
    check(4000, "No")


BEST = (
    r"Cheapest per sample that surely fits: .+, \$[\d,.]+ per million\. "
    r"Then .+ \$[\d,.]+, .+ \$[\d,.]+, .+ \$[\d,.]+\."
)


def test_which_gpu_is_answered_with_its_condition_its_number_and_three_others(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    page.goto("/new/?ask=gpu")
    doing.fill(page, "model", "resnet-18")
    page.get_by_role("button", name="Find the GPU").click()
    doing.wait_for_verdict(page)
    expect(page.locator("#gpus .card-note").first).to_have_text(re.compile(BEST))
    expect(page.get_by_role("heading", name="GPU map")).to_be_visible()


def test_no_batch_yet_gets_one_to_start_with(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member)
    page.goto("/new/")
    doing.fill(page, "model", doing.SAMPLE["model"])
    no_batch = page.get_by_label("I have no batch yet")
    no_batch.focus()
    page.keyboard.press("Space")
    expect(page.get_by_label("Current batch size")).to_be_hidden()
    page.get_by_role("button", name="Analyze").click()
    assert doing.wait_for_verdict(page).startswith("Start with batch ")
    expect(page.get_by_text("Current batch none yet")).to_be_visible()
    page.get_by_role("link", name="Duplicate").first.click()
    expect(no_batch).to_be_checked()
    no_batch.uncheck()
    expect(page.get_by_label("Current batch size")).to_be_visible()


def _wait_for_the_panel(page: Page) -> None:
    """Wait until the panel is that of the settings; before, it is too pale to be read."""
    expect(page.locator(".preview-old")).to_have_count(0)
    expect(page.get_by_text("The settings are complete.")).to_be_visible()


def test_texts_are_asked_for_by_clicks(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member)
    page.goto("/new/")
    page.get_by_label("Generating text?").check()
    doing.fill(page, "model", "gpt2")
    page.get_by_label("Texts at once").fill("4")
    page.get_by_label("Prompt length").fill("256")
    expect(page.get_by_label("Optimizer", exact=True)).to_be_hidden()
    expect(page.get_by_text("Multi-GPU", exact=True)).to_be_hidden()
    _wait_for_the_panel(page)
    look(page, "generating")
    page.get_by_role("button", name="Find the limits").click()
    assert doing.wait_for_verdict(page).startswith("Generate up to ")
    expect(page.get_by_role("heading", name="Memory by texts at once")).to_be_visible()
    slider = page.get_by_role("slider", name="Length in tokens")
    slider.fill("0")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("^Length [0-9,]+: fits"))
    look(page, "generated")

    page.get_by_role("link", name="Duplicate").first.click()
    expect(page.get_by_label("Generating text?")).to_be_checked()
    expect(page.get_by_label("Texts at once")).to_have_value("4")
    page.get_by_label("Longest sequence?").check()
    expect(page.get_by_label("Texts at once")).to_be_hidden()
    expect(page.get_by_label("Sequence length")).to_be_hidden()
    page.get_by_label("Batch to check").fill("2")
    _wait_for_the_panel(page)
    look(page, "longest-asked")
    page.get_by_role("button", name="Find the longest").click()
    assert doing.wait_for_verdict(page).startswith("Train with sequences of up to 1,024 tokens")
    look(page, "longest")
    page.goto("/history/")
    expect(page.get_by_role("cell", name="2 at most 1,024 tokens")).to_be_visible()
    look(page, "history-of-texts")


def test_groups_fold_and_say_what_is_set(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member)
    page.goto("/new/")
    group = page.locator(".advanced-several")
    expect(group).to_be_hidden()
    doing.unfold(page)
    expect(page.get_by_label("Parallelism", exact=True)).to_be_hidden()
    group.locator("summary").click()
    page.get_by_label("Parallelism", exact=True).select_option("ddp")
    group.locator("summary").click()
    expect(group.locator("[data-set]")).to_have_text("Parallelism: DDP: a whole copy on each GPU")


def test_the_search_takes_words_for_the_way_of_training(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    page.goto("/new/")
    search = page.get_by_role("combobox", name="Search models")
    search.click()
    search.press_sequentially("llama 3 8b lora")
    search.press("Enter")
    expect(search).to_have_value("Llama 3 8B")
    expect(page.get_by_label("LoRA rank")).to_have_value("16")
    expect(page.get_by_label("Precision", exact=True)).to_have_value("bf16-true")
    page.get_by_role("link", name="Full fine-tuning").click()
    expect(page.get_by_label("LoRA rank")).to_have_value("")
    expect(page).to_have_url(f"{site.url}/new/")  # filled in place


def test_what_does_not_combine_is_not_offered(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member)
    page.goto("/new/")
    doing.unfold(page)
    page.get_by_text("Adapters and quantization", exact=True).click()
    in_4_bits = page.get_by_label("Quantization").locator("option[value=nf4]")
    whole = page.get_by_label("Modules trained whole")
    expect(in_4_bits).to_be_disabled()
    expect(in_4_bits).to_have_attribute("title", re.compile("set a LoRA rank too"))
    expect(whole).to_be_disabled()
    expect(page.locator("#id_modules_to_save_helptext")).to_contain_text("set a LoRA rank")
    page.get_by_label("LoRA rank").fill("16")
    expect(in_4_bits).to_be_enabled()
    expect(whole).to_be_enabled()
    expect(page.locator("#id_modules_to_save_helptext")).to_contain_text("embed_tokens")
    whole.fill("lm_head")
    page.get_by_label("LoRA rank").fill("")
    expect(whole).to_be_enabled()  # what was typed can be taken out
    expect(page.locator("#preview")).to_contain_text("set a LoRA rank")


def test_an_old_prediction_never_looks_new(
    site: Site, member: Account, open_page: Open, watch: Watch
) -> None:
    watch.expected_statuses.add(500)
    page = open_page(site, member)
    page.goto("/new/")
    preview = page.locator("#preview")
    expect(preview.locator(".preview-headline")).to_be_visible()
    page.route("**/new/preview/", lambda route: route.fulfill(status=500))
    page.get_by_label("Current batch size").fill("32")
    expect(preview).to_contain_text("Updating…")
    expect(preview).to_contain_text("The site answered with error 500.")
    expect(preview.locator(".preview-headline")).to_have_count(0)
    watch.wrong = [line for line in watch.wrong if "/new/preview/" not in line]  # htmx logs it


def test_a_form_whose_session_has_ended_comes_back_after_sign_in(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    page.goto("/new/")
    page.get_by_label("Sequence length").fill("77")
    page.context.clear_cookies(name="sessionid")
    page.get_by_role("button", name="Analyze").click()
    page.get_by_label("Username").fill(member.name)
    page.get_by_label("Password").fill(member.password)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_text("Your form is as you left it.")).to_be_visible()
    expect(page.get_by_label("Sequence length")).to_have_value("77")


def test_a_comparison_shows_all_its_analyses_and_follows_them(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    page.goto(f"/new/?ask=compare&model={doing.SAMPLE['model']}")
    # Beside the form's own fp32 and A10.
    page.locator("[name=compared_precisions][value=bf16-mixed]").check()
    page.get_by_label("Filter GPUs").fill("L4")
    page.get_by_role("checkbox", name="L4", exact=True).check()
    panel = page.locator("#preview-answer")
    expect(panel).to_contain_text("4 analyses")
    page.get_by_label("Batches (samples)").fill(", ".join(map(str, range(1, 8))))
    expect(panel).to_contain_text("make 28 analyses; choose at most 24")
    page.get_by_label("Batches (samples)").fill("8")
    expect(panel).to_contain_text("4 analyses")
    look(page, "sweep")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("table.compare thead th")).to_have_count(4)
    expect(page.locator(".compare-progress")).to_contain_text("of 4 done")
    page.evaluate("window.isTheSamePage = true")
    look(page, "comparison-running")

    plain = open_page(site, member, javascript=False)
    plain.goto(page.url)
    expect(plain.get_by_role("link", name="Reload now")).to_be_visible()

    progress = page.locator(".compare-progress")
    expect(progress).to_contain_text("4 of 4 done", timeout=doing.ANSWER_MS)
    largest = page.locator("tr", has_text="Largest batch that fits").locator(".figure")
    expect(largest).to_have_text([re.compile("^[0-9,]+$")] * 4)
    expect(page.locator(".compare-source")).to_contain_text("predicted")
    expect(page.locator("#picture")).to_have_attribute("src", re.compile("answers=4"))
    expect(page.get_by_role("button", name="Download PNG")).to_be_visible()
    assert page.evaluate("window.isTheSamePage")
    look(page, "comparison")
    chart = page.locator("[data-chart=speed-figure]")
    chart.scroll_into_view_if_needed()
    expect(chart.locator("svg.main-svg").first).to_be_visible()
    chart.hover()
    expect(chart.locator(".hoverlayer .legend .traces")).to_have_count(4)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy as Markdown").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator("#compare-markdown").text_content()
    assert "| Largest batch that fits (predicted) | " in copied
