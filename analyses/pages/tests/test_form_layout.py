"""The form from top to bottom, numbers as people write them, and chips to compare."""

from __future__ import annotations

import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from analyses.models import Analysis
from analyses.pages.new.sweep import chosen_to_compare
from analyses.pages.new.values import default_values
from analyses.pages.new.widgets import NumberField

NEW = "/new/"


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("1,024", "1024"),
        ("1,234,567", "1234567"),
        ("1,024.5", "1024.5"),
        ("8,16", "8,16"),
        ("0,5", "0,5"),
        ("1024", "1024"),
        ("many", "many"),
        ("", ""),
    ],
)
def test_commas_between_thousands_are_read_and_others_are_left_to_the_engine(
    typed: str, read: str
) -> None:
    assert NumberField(required=False).clean(typed) == read


def test_a_batch_with_a_comma_is_a_number(page: Client) -> None:
    page.post(NEW, default_values() | {"current_batch_size": "1,024", "sequence_length": "128"})
    assert Analysis.objects.get().request["current_batch_size"] == 1024


def test_the_parts_come_in_the_order_of_the_work(page: Client) -> None:
    html = page.get(NEW).content.decode()
    parts = (
        "What do you want to know?",
        ">Model<",
        "GPU and batch",
        ">Analyze<",
        ">Training<",
        ">Advanced<",
    )
    places = [html.index(part) for part in parts]
    assert places == sorted(places)
    folded = html.split('<details class="card advanced">')[1]
    assert folded.count("data-group") > 8


def test_an_uploaded_config_is_taken_whatever_preset_was_chosen(page: Client) -> None:
    config = b'{"model_type": "bert", "hidden_size": 128, "num_attention_heads": 2}'
    upload = SimpleUploadedFile("config.json", config)
    page.post(NEW, default_values() | {"model": "gpt2", "config_file": upload})
    asked = Analysis.objects.get().request
    assert asked["config"]["hidden_size"] == 128
    assert "Upload config.json" in page.get(NEW).content.decode()


@pytest.mark.parametrize(("gpu", "named"), [("l4", "l4"), ("local:NVIDIA A10", "a10")])
def test_your_own_script_has_its_command_with_the_chosen_gpu(
    page: Client, gpu: str, named: str
) -> None:
    html = page.get(NEW, {"gpu": gpu}).content.decode()
    script = html.split('class="own-script"')[1].split("</details>")[0]
    assert f"memorymark analyze train.py --batch-flag batch_size --gpu {named} --push --" in script
    assert "export MEMORYMARK_URL=http://testserver\nexport MEMORYMARK_TOKEN=\n" in script
    assert 'href="/tokens/"' in script
    assert "This site never runs your code" in script


def test_a_comparison_starts_with_the_forms_own_choice(page: Client) -> None:
    html = page.get(NEW, {"ask": "compare", "gpu": "l4"}).content.decode()
    ticked = re.findall(r'name="compared_\w+" value="([^"]+)"[^>]* checked', html)
    assert ticked == ["bert", "fp32", "l4"]
    assert re.search(r'name="compared_batches" value="16"', html)
    assert html.count("data-chip-search") == 3


def test_what_no_chip_stands_for_is_not_ticked(page: Client) -> None:
    assert chosen_to_compare({"model": "bert"}) == {
        "compared_models": ["bert"], "compared_batches": "",
    }  # fmt: skip
    html = page.get(NEW, {"model": "other", "precision": "usual"}).content.decode()
    assert not re.search(r'name="compared_(models|precisions)"[^>]* checked', html)
