"""Models that the form does not list: by id, by name, or by a config."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client
from pytest_django import Settings

from analyses.models import Analysis
from analyses.pages.new.form import AnalysisForm
from analyses.pages.new.values import default_values
from analyses.pages.tests.new_form import CONFIG, NEW, OTHER, post
from analyses.tests.factories import make_analysis, make_request
from engine.models.config_text import MAX_CONFIG_BYTES


def test_any_hub_model_can_be_entered(page: Client) -> None:
    analysis = post(page, **OTHER, other_model="acme/own-model")
    assert isinstance(analysis, Analysis)
    assert (analysis.model, analysis.request["config"]) == ("acme/own-model", None)


def test_a_lab_without_hub_access_says_so(page: Client, settings: Settings) -> None:
    assert "does not use the" not in page.get("/new/").content.decode()
    settings.ASKS_HUB = False
    shown = page.get("/new/").content.decode()
    assert "MEMORYMARK_HUB=off" in shown
    assert "enter a Hugging Face ID" not in shown


@pytest.mark.parametrize("name", ["timm/convnextv2_tiny", "timm/resnet50.a1_in1k"])
def test_a_model_of_timm_goes_by_its_name_without_the_hub(
    page: Client, settings: Settings, name: str
) -> None:
    settings.ASKS_HUB = False
    form = post(page, **OTHER, other_model="timm/nonesuch")
    assert isinstance(form, AnalysisForm)
    assert "imm has no architecture" in form.errors["other_model"][0]
    analysis = post(page, **OTHER, other_model=name)
    assert isinstance(analysis, Analysis)
    assert analysis.model == name


@pytest.mark.parametrize("name", ["", "no-such-preset", "https://example.org/x", "a/b/c"])
def test_an_invalid_hub_id_has_a_message_beside_it(page: Client, name: str) -> None:
    form = post(page, **OTHER, other_model=name)
    assert isinstance(form, AnalysisForm)
    assert list(form.errors) == ["other_model"]


def test_an_id_typed_for_another_model_is_ignored_once_a_preset_is_chosen(page: Client) -> None:
    analysis = post(page, other_model="acme/own", config="{bad")
    assert isinstance(analysis, Analysis)
    assert analysis.model == "bert"


def upload(page: Client, content: bytes, **changes: str) -> HttpResponse:
    file = SimpleUploadedFile("config.json", content, "application/json")
    response: Any = page.post(NEW, default_values() | OTHER | changes | {"config_file": file})
    return cast(HttpResponse, response)


def test_an_uploaded_config_sets_the_model(page: Client) -> None:
    assert upload(page, json.dumps(CONFIG).encode()).status_code == 302
    analysis = Analysis.objects.get()
    assert (analysis.model, analysis.request["config"]) == ("own-config", CONFIG)


def test_a_typed_config_sets_the_model_with_its_own_name(page: Client) -> None:
    analysis = post(page, **OTHER, other_model="mine", config=json.dumps(CONFIG))
    assert isinstance(analysis, Analysis)
    assert (analysis.model, analysis.request["config"]) == ("mine", CONFIG)


@pytest.mark.parametrize(
    "content",
    [
        b"{bad",
        b"\xff\xfe\x81",
        b"[]",
        b"{}",
        b'{"model_type": "quantum"}',
        b"[" * 100_000,
        json.dumps({"model_type": "mine", "auto_map": {"AutoModel": "code.Model"}}).encode(),
        json.dumps(CONFIG | {"hidden_size": -1}).encode(),
        json.dumps(CONFIG | {"layer_types": ["\0"]}).encode(),
        json.dumps(CONFIG | {"layer_types": ["\ud800"]}).encode(),
    ],
)
def test_an_unusable_config_has_a_message_beside_it(page: Client, content: bytes) -> None:
    response = upload(page, content)
    assert response.status_code == 200
    form = response.context["form"]  # type: ignore[attr-defined]  # Django's test client adds it
    assert list(form.errors) == ["config"]
    assert not Analysis.objects.exists()


def test_the_text_of_an_invalid_upload_comes_back_for_correction(page: Client) -> None:
    html = upload(page, b"<script>{").content.decode()
    assert "&lt;script&gt;{</textarea>" in html


def test_a_huge_upload_is_discarded(page: Client) -> None:
    response = upload(page, b"x" * (4 * MAX_CONFIG_BYTES))
    form = response.context["form"]  # type: ignore[attr-defined]  # Django's test client adds it
    assert form.errors["config"] == ["It is larger than 1 MiB."]
    assert len(form.data["config"]) == MAX_CONFIG_BYTES + 1


def test_a_duplicate_keeps_its_custom_config(page: Client, member: User) -> None:
    earlier = make_analysis(member, request=make_request(model="mine", config=CONFIG))
    form = page.get(f"{NEW}?from={earlier.pk}").context["form"]
    assert (form["model"].value(), form["other_model"].value()) == ("other", "mine")
    assert json.loads(form["config"].value()) == CONFIG
