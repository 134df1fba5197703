"""First questions of the form, and the usual ways of training that fill it in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from analyses.models import Analysis
from analyses.pages.new.form import AnalysisForm
from analyses.pages.new.questions import TRAINING_PRESETS, usual_precision, with_preset
from analyses.pages.new.values import default_values, with_changes
from engine.gpus import ANY
from engine.interface.request import AnalysisRequest

NEW = "/new/"


def ask(page: Client, question: str, **changes: Any) -> Analysis:
    response = page.post(NEW, default_values() | {"ask": question} | changes)
    analysis = Analysis.objects.get()
    assert response["Location"] == reverse("analyses:detail", args=[analysis.pk])
    return analysis


@pytest.mark.parametrize("question", ["batch", "fit", "gpu", "compare"])
def test_a_link_opens_the_form_with_its_question(page: Client, question: str) -> None:
    html = page.get(NEW, {"ask": question}).content.decode()
    checked = next(tag for tag in html.split("<") if 'name="ask"' in tag and "checked" in tag)
    assert f'value="{question}"' in checked


@pytest.mark.parametrize("question", ["", "why", "<script>"])
def test_without_a_known_question_it_asks_for_the_batch(page: Client, question: str) -> None:
    form = page.get(NEW, {"ask": question}).context["form"]
    assert form.question == "batch"


def test_whether_a_batch_fits_asks_for_that_batch(page: Client) -> None:
    analysis = ask(page, "fit", batch_to_check="48", current_batch_size="16")
    assert analysis.current_batch_size == 48


def test_a_wrong_batch_to_check_has_its_message_beside_it(page: Client) -> None:
    values = default_values() | {"ask": "fit", "batch_to_check": "many"}
    form = page.post(NEW, values).context["form"]
    assert list(form.errors) == ["batch_to_check"]


def test_which_gpu_is_one_analysis_of_any_gpu(page: Client) -> None:
    analysis = ask(page, "gpu", most_usd_per_hour="2.5", price_per_hour_usd="9", gpu="a10")
    assert analysis.gpu == ANY
    assert analysis.request["most_usd_per_hour"] == 2.5
    assert analysis.request["precision"] == "fp32"


def test_limits_count_only_where_the_gpu_is_asked_for(page: Client) -> None:
    assert ask(page, "batch", most_usd_per_hour="2.5").request["most_usd_per_hour"] is None


def test_a_running_analysis_of_any_gpu_is_edited_with_its_question(page: Client) -> None:
    analysis = ask(page, "gpu")
    assert page.get(NEW, {"from": analysis.pk}).context["form"].question == "gpu"


# Presets of training


@pytest.mark.parametrize("name", TRAINING_PRESETS)
@pytest.mark.parametrize("model", ["bert", "llama-3-8b", "resnet", "t5-small", "clip", "whisper"])
def test_each_preset_is_a_valid_request_of_each_model(db: None, name: str, model: str) -> None:
    initial = with_preset(with_changes(default_values(), {"model": model}), name)
    form = AnalysisForm(initial | {"gpu": "h100"})
    assert form.is_valid()
    assert AnalysisRequest.parse(form.raw_fields()).workload.model == model


def test_lora_trains_adapters_on_half_precision_weights(page: Client) -> None:
    form = page.get(NEW, {"preset": "lora", "model": "llama-3-8b"}).context["form"]
    assert form["precision"].value() == "bf16-true"
    assert form["lora_rank"].value() == "16"
    assert form["gradient_checkpointing"].value() == "on"


def test_qlora_keeps_the_weights_below_in_4_bits(page: Client) -> None:
    form = page.get(NEW, {"preset": "qlora", "model": "llama-3-8b"}).context["form"]
    assert form["quantization"].value() == "nf4"
    assert form["lora_rank"].value() == "16"


def test_a_classifier_has_the_head_that_the_model_can_have(page: Client) -> None:
    tasks = {
        model: page.get(NEW, {"preset": "classifier", "model": model})
        .context["form"]["task"]
        .value()
        for model in ("llama-3-8b", "resnet", "whisper")
    }
    assert tasks == {
        "llama-3-8b": "sequence-classification",
        "resnet": "image-classification",
        "whisper": "",
    }


def test_the_page_gives_its_script_what_each_preset_sets(page: Client) -> None:
    html = page.get(NEW).content.decode()
    for preset in TRAINING_PRESETS.values():
        assert json.loads(preset.as_json).keys() <= default_values().keys()
        assert f'data-preset="{preset.name}"' in html


@pytest.mark.parametrize(
    ("gpu", "precision"),
    [
        ("a10", "bf16-mixed"),
        ("t4", "fp16-mixed"),
        ("local:NVIDIA A10", "bf16-mixed"),
        ("local:Tesla T4", "fp16-mixed"),
        ("local:Something of 2031", "fp32"),
        (ANY, "bf16-mixed"),
    ],
)
def test_the_usual_precision_is_what_the_gpu_is_good_at(gpu: str, precision: str) -> None:
    assert usual_precision(gpu) == precision
