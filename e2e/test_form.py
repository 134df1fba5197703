"""The form on a laptop and a phone: what is in sight, what is folded, and how few keys it takes."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import FilePayload, Locator, Page, expect

from e2e import doing
from e2e.conftest import PHONE, Open
from e2e.looking import look
from e2e.running import Account, Site

pytestmark = pytest.mark.e2e

MAX_TAB_STOPS = 9
"""From the form's first field to its button; the header has as many, which one link skips."""

CONFIG = {
    "model_type": "bert",
    "hidden_size": 128,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
}


RECIPE = """\
base_model: Qwen/Qwen3-0.6B
adapter: lora
lora_r: 8
lora_target_linear: true
sequence_len: 512
micro_batch_size: 2
output_dir: out
"""


OF_TWO = "model_name_or_path: Qwen/Qwen3-0.6B\nper_device_train_batch_size: 2\n"
"""LLaMA-Factory has these keys, and TRL."""


def _recipe(text: str = RECIPE) -> FilePayload:
    return FilePayload(name="lora.yaml", mimeType="application/yaml", buffer=text.encode())


def _is_whole_in_sight(element: Locator) -> bool:
    inside: bool = element.evaluate(
        """e => { const box = e.getBoundingClientRect();
                  return box.height >= 44 && box.top >= 0 && box.bottom <= innerHeight; }"""
    )
    return inside


@pytest.mark.parametrize("window", [{}, PHONE], ids=["laptop", "phone"])
def test_the_button_is_always_in_sight(
    site: Site, member: Account, open_page: Open, window: dict[str, str]
) -> None:
    page = open_page(site, member, **window)
    if not window:
        page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/new/")
    button = page.get_by_role("button", name="Analyze")
    expect(page.locator(".preview-headline")).to_be_visible(timeout=doing.ANSWER_MS)
    doing.unfold(page)
    height = page.evaluate("document.documentElement.scrollHeight")
    for place in range(0, height, 400):
        page.evaluate(f"scrollTo(0, {place})")
        assert _is_whole_in_sight(button), place
    look(page, "form")


def test_few_tab_stops_lead_to_the_button(site: Site, member: Account, open_page: Open) -> None:
    page = open_page(site, member)
    page.goto("/new/")
    for name, value in doing.SAMPLE.items():
        doing.fill(page, name, value)
    page.get_by_label("Which batch?").focus()
    for _ in range(MAX_TAB_STOPS):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.type") == "submit":
            break
    expect(page.get_by_role("button", name="Analyze")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/\d+/$"))


def test_a_config_is_uploaded_in_sight_and_takes_the_presets_place(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    page.goto("/new/")
    upload = page.get_by_label("Upload config.json")
    config = json.dumps(CONFIG).encode()
    upload.set_input_files(
        FilePayload(name="config.json", mimeType="application/json", buffer=config)
    )
    expect(page.get_by_role("combobox", name="Search models")).to_have_value("Own config.json")
    expect(page.locator("[name=model][value=other]")).to_be_checked()
    expect(page.locator(".preview-headline")).to_contain_text("it fits", timeout=doing.ANSWER_MS)
    doing.fill(page, "model", "gpt2")
    assert upload.evaluate("input => input.files.length") == 0


def test_a_recipe_fills_in_the_form_and_stands_on_the_page_of_its_answer(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    page.goto("/new/")
    page.get_by_label("GPU", exact=True).select_option("l4")
    page.get_by_label("Upload a recipe").set_input_files(_recipe(OF_TWO))
    page.get_by_label("Framework of the recipe").select_option("LLaMA-Factory")
    expect(page.locator("[data-filled-in]")).to_contain_text("from a recipe of LLaMA-Factory")
    page.get_by_label("Upload a recipe").set_input_files(_recipe())
    expect(page.locator("[data-filled-in]")).to_contain_text("from a recipe of axolotl 0.18.0")
    expect(page.get_by_role("combobox", name="Search models")).to_have_value("Qwen3 0.6B")
    expect(page.get_by_label("GPU", exact=True)).to_have_value("l4")
    expect(page.get_by_label("LoRA rank")).to_have_value("8")
    expect(page.locator(".preview-headline")).to_contain_text("it fits", timeout=doing.ANSWER_MS)
    look(page, "new-from-recipe")
    page.get_by_role("button", name="Analyze").click()
    page.wait_for_url(re.compile(r"/\d+/$"))
    expect(page.locator(".lead")).to_contain_text("from a recipe of axolotl 0.18.0")
    doing.wait_for_verdict(page)
    page.get_by_role("tab", name="Reproduce").click()
    keys = page.locator(".recipe")
    for words in ("base_model", "micro_batch_size", "output_dir", "bf16 auto"):
        expect(keys).to_contain_text(words)


def test_a_recipe_is_read_and_refused_without_javascript(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member, javascript=False, **PHONE)
    page.goto("/new/")
    page.get_by_label("Upload a recipe").set_input_files(_recipe(RECIPE + "lora_rang: 4\n"))
    page.get_by_role("button", name="Analyze").click()
    expect(page.locator("#id_recipe_error")).to_contain_text("lora_rang: line 8: ")
    page.get_by_label("Upload a recipe").set_input_files(_recipe())
    page.get_by_role("button", name="Analyze").click()
    expect(page.locator("[name=model][value='qwen3-0.6b']")).to_be_checked()
    page.get_by_label("GPU", exact=True).select_option("l4")  # as in the test above
    page.get_by_role("button", name="Analyze").click()
    page.wait_for_url(re.compile(r"/\d+/$"))
    expect(page.locator(".lead")).to_contain_text("from a recipe of axolotl 0.18.0")


def test_your_own_script_shows_the_command_for_the_chosen_gpu(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/new/")
    page.get_by_label("GPU", exact=True).select_option("l4")
    page.get_by_text("Your own script", exact=True).click()
    command = page.locator("#script-command")
    expect(command).to_contain_text("memorymark analyze train.py")
    expect(command).to_contain_text("--gpu l4 --push ")
    expect(command).to_contain_text(f"export MEMORYMARK_URL={site.url}")
    expect(command).to_contain_text("export MEMORYMARK_TOKEN=")
    page.locator(".own-script").get_by_role("button", name="Copy").click()
    assert page.evaluate("navigator.clipboard.readText()") == command.inner_text()


def test_a_number_with_a_comma_is_predicted_and_submitted(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    page.goto("/new/")
    doing.fill(page, "current_batch_size", "1,024")
    expect(page.locator("#preview")).to_contain_text("Batch 1,024", timeout=doing.ANSWER_MS)
    expect(page.locator("#preview")).not_to_contain_text("whole number")


def _chips(page: Page, group: str) -> Locator:
    return page.get_by_role("group", name=group).locator(".chip")


def test_comparing_fits_one_screen_and_its_chips_are_found_by_typing(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/new/")
    doing.fill(page, "model", "gpt2")
    page.get_by_label("Compare settings").check()
    models, gpus = _chips(page, "Models"), _chips(page, "GPUs")
    expect(models.filter(has=page.locator(":checked"))).to_contain_text("GPT-2")  # as it was chosen
    for part in (models.first, gpus.first, page.get_by_label("Batches (samples)"),
                 page.get_by_label("Optimizer", exact=True)):  # fmt: skip
        assert part.evaluate("e => e.getBoundingClientRect().bottom <= innerHeight")
    page.get_by_label("Filter Models").fill("llama 8b")
    page.get_by_role("checkbox", name="Llama 3 8B", exact=True).check()
    page.get_by_label("Filter GPUs").fill("h100")
    assert all(
        "H100" in text or "A10" in text for text in gpus.locator("visible=true").all_inner_texts()
    )
    expect(page.locator("#preview-answer")).to_contain_text("2 analyses")
    expect(page.locator("#preview-answer")).to_contain_text("2 models, side by side")


def test_uploaded_lengths_are_used_without_another_choice(
    site: Site, member: Account, open_page: Open
) -> None:
    page = open_page(site, member)
    page.goto("/new/")
    doing.unfold(page)
    page.get_by_text("Lengths of samples").click()
    batching = page.get_by_label("Batching", exact=True)
    lengths = FilePayload(name="lengths.txt", mimeType="text/plain", buffer=b"40\n60\n128\n")
    page.get_by_label("Upload lengths").set_input_files(lengths)
    expect(batching).to_have_value("longest")
    expect(page.locator("#preview-answer")).to_contain_text("fits")

    batching.select_option("bucketed")
    page.get_by_label("Upload lengths").set_input_files(lengths)
    expect(batching).to_have_value("bucketed")  # a choice stays
