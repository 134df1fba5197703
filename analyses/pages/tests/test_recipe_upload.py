"""A recipe that is uploaded with the form fills it in, and the answer says what was read of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

import engine
from analyses import services
from analyses.models import Analysis, Status
from analyses.pages.new.form import AnalysisForm
from analyses.pages.new.values import default_values
from analyses.tests.factories import make_analysis, make_result
from engine.recipes import any_framework

pytestmark = pytest.mark.database

NEW = "/new/"
EXAMPLES = Path(engine.__file__).parent / "examples" / "recipes"
RECIPE = """\
base_model: meta-llama/Llama-3.2-1B
adapter: lora
lora_r: 8
lora_target_linear: true
sequence_len: 1024
micro_batch_size: 2
output_dir: out
"""
ON_EIGHT = "deepspeed:\n  zero_optimization: {stage: 2}\n"


@dataclass(frozen=True)
class Uploaded:
    """The form that comes back, its page, and the messages at the upload."""

    form: AnalysisForm
    html: str
    messages: str


def upload(page: Client, text: str | bytes, **typed: str) -> Uploaded:
    content = text.encode() if isinstance(text, str) else text
    file = SimpleUploadedFile("recipe.yaml", content, "application/yaml")
    response = page.post(NEW, default_values() | typed | {"recipe_file": file})
    assert response.status_code == 200
    assert not Analysis.objects.exists()
    form: AnalysisForm = response.context["form"]
    messages = " ".join(map(str, form.errors.get("recipe", [])))
    return Uploaded(form, response.content.decode(), messages)


def sent(form: AnalysisForm) -> dict[str, Any]:
    """Fields that the browser sends of a form that it shows."""
    values = {name: form[name].value() for name in form.fields}
    return {name: value for name, value in values.items() if value not in (None, False, "")}


def read_of(analysis: Analysis) -> dict[str, Any]:
    assert analysis.recipe is not None
    return dict(analysis.recipe)


def analyzed(page: Client, form: AnalysisForm, **changes: str) -> Analysis:
    response = page.post(NEW, sent(form) | changes)
    assert response.status_code == 302, response.context["form"].errors
    return Analysis.objects.get()


def test_the_form_names_the_frameworks(page: Client) -> None:
    assert f"Of {any_framework()}, at most 256 KiB." in page.get(NEW).content.decode()


def test_it_fills_in_the_form_and_submits_nothing(page: Client) -> None:
    filled = upload(page, RECIPE, gpu="l4")
    form, html = filled.form, filled.html
    shown = {name: form[name].value() for name in ("model", "gpu", "lora_rank", "precision")}
    assert shown == {
        "model": "llama-3.2-1b", "gpu": "l4", "lora_rank": "8", "precision": "bf16-true",
    }  # fmt: skip
    assert (form["current_batch_size"].value(), form["sequence_length"].value()) == ("2", "1024")
    assert "Filled in from a recipe of axolotl 0.18.0." in html
    assert "Not used, since memory and speed do not depend on it: output_dir." in html
    assert "--world-size" not in html


def test_what_it_filled_in_is_analyzed_and_the_answer_names_the_recipe(page: Client) -> None:
    analysis = analyzed(page, upload(page, RECIPE).form)
    assert (analysis.request["lora_rank"], analysis.current_batch_size) == (8, 2)
    assert read_of(analysis)["framework"] == "axolotl"
    assert read_of(analysis)["given_beside"] == {}
    html = page.get(f"/{analysis.pk}/").content.decode()
    assert "from a recipe of axolotl 0.18.0" in html
    about = html.split('id="recipe-title"')[1].split("</section>")[0]
    assert "base_model, adapter, lora_r" in about
    assert "output_dir" in about
    assert "optimizer adamw_torch_fused" in about
    assert "--" not in about


def test_what_is_changed_in_the_form_wins_and_is_said(page: Client) -> None:
    analysis = analyzed(page, upload(page, RECIPE).form, current_batch_size="4")
    assert analysis.current_batch_size == 4
    assert read_of(analysis)["given_beside"] == {"current_batch_size": "micro_batch_size"}
    html = page.get(f"/{analysis.pk}/").content.decode()
    assert "micro_batch_size" in html.split("Changed in the form")[1][:200]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RECIPE + "sequence_leng: 1\n", "sequence_leng: line 8: axolotl 0.18.0 has no such key"),
        (RECIPE + "deepspeed: zero.json\n", "deepspeed: line 8: "),
        ("[1", "This is not YAML"),
        (b"\xff\xfe\x81", "This is not text in UTF-8"),
        ("a: " + "x" * 300_000, "It is larger than 256 KiB"),
        (RECIPE.replace("lora_r: 8", "lora_r: 0"), "lora_r: line 3: "),
        (RECIPE.replace("meta-llama/Llama-3.2-1B", "a b"), "base_model: line 1: "),
        ("", "It has no keys"),
        ("lr: 1", "Looked for"),
    ],
)
def test_what_is_wrong_is_named_by_its_key_at_the_upload(
    page: Client, text: str | bytes, message: str
) -> None:
    refused = upload(page, text)
    assert message in refused.messages
    assert 'id="id_recipe_error"' in refused.html
    assert "Nothing has been submitted" in refused.html


def test_a_refused_recipe_leaves_the_form_as_it_was(page: Client) -> None:
    form = upload(page, "[1", model="gpt2", current_batch_size="24").form
    assert (form["model"].value(), form["current_batch_size"].value()) == ("gpt2", "24")
    assert not form["recipe"].value()


def test_a_wrong_value_can_be_corrected_in_the_form(page: Client) -> None:
    form = upload(page, RECIPE.replace("lora_r: 8", "lora_r: 0")).form
    assert form["sequence_length"].value() == "1024"
    analysis = analyzed(page, form, lora_rank="16")
    assert read_of(analysis)["given_beside"] == {"lora_rank": "lora_r"}


def test_a_model_on_disk_takes_its_config_beside_the_recipe(page: Client) -> None:
    filled = upload(page, RECIPE.replace("meta-llama/Llama-3.2-1B", "./thesis/llama"))
    assert "base_model: line 1: " in filled.messages
    assert filled.form["other_model"].value() == "./thesis/llama"
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2}
    analysis = analyzed(page, filled.form, other_model="thesis/llama", config=json.dumps(config))
    assert analysis.request["config"]["hidden_size"] == 64
    assert read_of(analysis)["given_beside"] == {"model": "base_model"}


def test_what_the_recipe_lacks_is_taken_from_the_form(page: Client) -> None:
    assert "Number of GPUs" in upload(page, RECIPE + ON_EIGHT).messages
    form = upload(page, RECIPE + ON_EIGHT, world_size="8").form
    assert (form["world_size"].value(), form["parallelism"].value()) == ("8", "zero-2")
    assert analyzed(page, form).request["world_size"] == 8


def test_each_question_keeps_its_batch_and_its_gpu(page: Client) -> None:
    fit = upload(page, RECIPE, ask="fit", gpu="t4")
    assert fit.form["batch_to_check"].value() == "2"
    assert "T4 has no bf16" in fit.messages
    form = upload(page, RECIPE, ask="gpu").form
    assert analyzed(page, form).request["gpu"] == "any"


def test_the_recipe_survives_a_form_that_comes_back(page: Client) -> None:
    values = sent(upload(page, RECIPE).form) | {"lora_rank": "none"}
    again = page.post(NEW, values)
    assert "Filled in from a recipe of axolotl" in again.content.decode()
    analysis = analyzed(page, again.context["form"], lora_rank="8")
    assert read_of(analysis)["framework"] == "axolotl"


def test_all_that_are_compared_have_it(page: Client) -> None:
    form = upload(page, RECIPE, ask="compare").form
    both: dict[str, Any] = sent(form) | {
        "compared_models": "llama-3.2-1b", "compared_gpus": ["a10", "l4"],
        "compared_precisions": "bf16-true", "compared_batches": "2",
    }  # fmt: skip
    assert page.post(NEW, both).status_code == 302
    assert [read_of(one)["framework"] for one in Analysis.objects.all()] == ["axolotl"] * 2


def test_a_rerun_has_the_recipe_too(page: Client, member: User) -> None:
    analysis = analyzed(page, upload(page, RECIPE).form)
    again = services.run_again(analysis, member)
    assert again.recipe == analysis.recipe


def test_the_api_has_it_and_an_analysis_without_one_has_none(page: Client, member: User) -> None:
    analysis = analyzed(page, upload(page, RECIPE).form)
    other = make_analysis(member, Status.SUCCEEDED, make_result())
    told = page.get(f"/api/v1/analyses/{analysis.pk}/").json()["recipe"]
    assert (told["release"], told["not_used"]) == ("0.18.0", ["output_dir"])
    assert page.get(f"/api/v1/analyses/{other.pk}/").json()["recipe"] is None
    assert "recipe-title" not in page.get(f"/{other.pk}/").content.decode()


@pytest.mark.longer
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if path.stem == "ms_swift" else pytest.mark.slow)
        for path in sorted(EXAMPLES.glob("*.yaml"))
    ],
    ids=lambda path: path.stem,
)
def test_a_recipe_without_one_of_its_keys_fills_in_or_is_refused(page: Client, path: Path) -> None:
    recipe = yaml.safe_load(path.read_text())
    for left_out in recipe:
        shorter = {key: value for key, value in recipe.items() if key != left_out}
        found = upload(page, yaml.safe_dump(shorter), gpu="h100")
        assert found.messages or "Filled in from a recipe of" in found.html, left_out


OF_NOBODY = "model_name_or_path: meta-llama/Llama-3.2-1B\nper_device_train_batch_size: 2\n"
"""Keys that LLaMA-Factory and TRL both have."""


def test_a_recipe_whose_keys_do_not_tell_its_framework_waits_until_it_is_chosen(
    page: Client,
) -> None:
    waiting = upload(page, OF_NOBODY)
    assert "\N{LEFT DOUBLE QUOTATION MARK}Framework of the recipe" in waiting.messages
    assert waiting.form.asks_for_framework
    again = page.post(NEW, sent(waiting.form))
    assert again.context["form"].asks_for_framework  # nothing was submitted without it
    chosen = page.post(NEW, sent(waiting.form) | {"recipe_framework": "trl"})
    assert "Filled in from a recipe of TRL" in chosen.content.decode()
    form = chosen.context["form"]
    assert not form.asks_for_framework
    assert form["current_batch_size"].value() == "2"
    analysis = analyzed(page, form)
    assert read_of(analysis)["framework"] == "trl"
    assert read_of(analysis)["given_beside"] == {}


def test_a_framework_that_does_not_have_its_keys_can_be_changed(page: Client) -> None:
    waiting = upload(page, OF_NOBODY + "lora_r: 8\nlora_rank: 8\n")
    refused = page.post(NEW, sent(waiting.form) | {"recipe_framework": "trl"})
    form = refused.context["form"]
    assert "lora_rank: line 4: TRL" in str(form.errors["recipe"])
    assert form.asks_for_framework
    assert "is not read" in str(
        page.post(NEW, sent(form) | {"recipe_framework": "nemo"}).context["form"].errors["recipe"]
    )


@pytest.mark.parametrize("chosen", ["", "trl"])
def test_another_upload_takes_the_place_of_one_whose_framework_was_asked_for(
    page: Client, chosen: str
) -> None:
    form = upload(page, OF_NOBODY).form
    if chosen:
        form = page.post(NEW, sent(form) | {"recipe_framework": chosen}).context["form"]
    typed = {name: str(value) for name, value in sent(form).items()}
    filled = upload(page, RECIPE, **typed)
    assert "Filled in from a recipe of axolotl" in filled.html
    assert not filled.form.asks_for_framework
