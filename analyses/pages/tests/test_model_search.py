"""The searchable list of models, which falls back to radio buttons without JavaScript."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from analyses.pages.new.widgets import search_text
from engine.models.presets import PRESETS

NEW = "/new/"


def test_every_model_is_an_option_of_the_searchable_list(page: Client) -> None:
    html = page.get(NEW).content.decode()
    box = html[html.index("data-combobox hidden") : html.index("data-combobox-plain")]
    assert 'role="combobox"' in box
    assert 'aria-controls="model-list"' in box
    assert 'aria-expanded="false"' in box
    options = [tag for tag in box.split("<") if 'role="option"' in tag]
    assert len(options) == len(PRESETS) + 2  # a hub id, a config.json
    assert all('aria-selected="false"' in option and 'id="option-' in option for option in options)
    assert len({option.split('id="')[1].split('"')[0] for option in options}) == len(options)
    assert sum('data-value="other"' in option for option in options) == 2
    assert "name=" not in box  # the radio buttons remain the fields, and work without JavaScript
    assert "combobox.js" in html


def test_models_of_timm_are_found_where_it_is_installed(
    page: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "timm-names" not in page.get(NEW).content.decode()
    monkeypatch.setattr("analyses.pages.new.widgets.missing_modules", lambda package: [])
    html = page.get(NEW).content.decode()
    names = html.split('<script id="timm-names" type="application/json">')[1].split("</script>")[0]
    assert "timm/convnextv2_tiny" in json.loads(names)
    assert '<template id="timm-option">' in html


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("bert", "bert"),
        ("google-bert/bert-base", "bert"),
        ("speech", "whisper"),
        ("images convolutional", "resnet"),
        ("next token", "gpt2"),
        ("causal", "gpt2"),
        ("language models meta", "llama-3.1-8b"),
    ],
)
def test_a_model_is_found_by_name_id_kind_and_description(typed: str, found: str) -> None:
    assert all(word in search_text(PRESETS[found]) for word in typed.split())


def test_presets_are_listed_in_groups_that_do_not_recur(page: Client) -> None:
    html = page.get(NEW).content.decode()
    plain = html[html.index("data-combobox-plain") :]
    groups = [tag.split('"')[0] for tag in plain.split('role="group" aria-label="')[1:]]
    assert groups[:2] == ["Language models", "Text encoders"]
    assert len(groups) == len(set(groups))


def test_an_invalid_model_is_reported_beside_the_search(page: Client) -> None:
    html = page.post(NEW, {"model": "skynet", "gpu": "a10"}).content.decode()
    search = next(tag for tag in html.split("<") if 'id="model-search"' in tag)
    assert 'aria-invalid="true"' in search
    assert "model-error" in search
    assert 'class="field-error" id="model-error"' in html
