"""Sweeps: models, precisions, batches and GPUs submitted together and compared."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.forms import Form
from django.test import Client
from django.urls import reverse

from analyses.models import Analysis
from analyses.pages.new.sweep import MAX_COMPARED, Sweep, batches_in
from analyses.pages.new.values import default_values
from engine.gpus import GPUS
from engine.models.presets import PRESETS

NEW = "/new/"


def fields(**changes: Any) -> dict[str, Any]:
    return default_values() | {"ask": "compare"} | changes


def refused(page: Client, **changes: Any) -> Form:
    """The form that comes back; nothing has been submitted."""
    form: Form = page.post(NEW, fields(**changes)).context["form"]
    assert not Analysis.objects.exists()
    return form


def test_a_sweep_submits_every_combination_and_opens_their_comparison(page: Client) -> None:
    response = page.post(
        NEW,
        fields(
            compared_models=["bert", "gpt2"],
            compared_precisions=["fp32", "bf16-mixed"],
            compared_batches="8, 16",
            compared_gpus=["a10", "h100"],
        ),
    )
    analyses = list(Analysis.objects.order_by("pk"))
    found = {(one.model, one.precision, one.current_batch_size, one.gpu) for one in analyses}
    assert len(found) == len(analyses) == 16
    ids = ",".join(str(one.pk) for one in analyses)
    assert response["Location"] == f"{reverse('analyses:compare')}?ids={ids}"
    tags = {tag.name for one in analyses for tag in one.tags.all()}
    assert tags == {f"comparison-{analyses[0].pk}"}


def test_what_is_not_varied_is_that_of_the_form(page: Client) -> None:
    page.post(NEW, fields(compared_gpus=["t4", "h100"], model="resnet", current_batch_size="4"))
    found = {(one.model, one.precision, one.gpu) for one in Analysis.objects.all()}
    assert found == {("resnet", "fp32", "t4"), ("resnet", "fp32", "h100")}
    assert {one.current_batch_size for one in Analysis.objects.all()} == {4}


@pytest.mark.parametrize(("batches", "found"), [("", {None}), ("8 16", {8, 16})])
def test_without_a_batch_yet_only_batches_to_compare_count(
    page: Client, batches: str, found: set[int | None]
) -> None:
    page.post(NEW, fields(no_batch="on", compared_batches=batches, compared_gpus=["a10", "l4"]))
    assert {one.current_batch_size for one in Analysis.objects.all()} == found


@pytest.mark.parametrize(
    ("models", "gpus", "said"),
    [
        ([], [], "Choose two or more models, precisions, batches, GPUs or versions to compare."),
        (list(PRESETS)[:1], [], "Choose two or more models, precisions, batches, GPUs or "),
        (
            list(PRESETS)[:5],
            list(GPUS)[:5],
            f"5 models × 5 GPUs make 25 analyses; choose at most {MAX_COMPARED}.",
        ),
    ],
)
def test_a_sweep_is_bounded(page: Client, models: list[str], gpus: list[str], said: str) -> None:
    form = refused(page, compared_models=models, compared_gpus=gpus)
    assert str(form.errors["compared_gpus"][0]).startswith(said)


def test_one_that_cannot_be_is_named_and_none_is_submitted(page: Client) -> None:
    form = refused(page, compared_gpus=["a10", "t4"], precision="bf16-mixed")
    said = str(form.errors["compared_precisions"][0])
    assert said.startswith("NVIDIA T4: NVIDIA T4 has no bf16")


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"compared_precisions": ["fp32", "bf16-mixed"], "gpu": "t4"}, "compared_precisions"),
        ({"compared_gpus": ["a10", "l4"], "current_batch_size": "many"}, "compared_batches"),
        ({"compared_gpus": ["a10", "none-such"]}, "compared_gpus"),
    ],
)
def test_every_message_stands_where_the_page_shows_an_input(
    page: Client, wrong: dict[str, Any], place: str
) -> None:
    form = refused(page, **wrong)
    assert list(form.errors) == [place]
    html = page.post(NEW, fields(**wrong)).content.decode()
    (classes,) = re.findall(rf'class="(field [^"]*field-{place}[^"]*)"', html)
    assert "field-wrong" in classes.split()


def test_a_wrong_batch_is_named_at_the_batches(page: Client) -> None:
    form = refused(page, compared_batches="8, many", compared_gpus=["a10", "l4"])
    said = str(form.errors["compared_batches"][0])
    assert said.startswith("Batch many · NVIDIA A10: enter a whole number")


@pytest.mark.parametrize(
    ("text", "batches"),
    [("", []), ("8", ["8"]), ("8,16;32  8\n64,", ["8", "16", "32", "64"])],
)
def test_batches_are_separated_by_commas_or_spaces_and_count_once(
    text: str, batches: list[str]
) -> None:
    assert batches_in(text) == batches


@pytest.mark.parametrize(
    ("typed", "count", "factors"),
    [
        ({}, 1, ""),
        ({"compared_gpus": ["a10", "l4"]}, 2, "2 GPUs"),
        (
            {"compared_models": ["bert"], "compared_batches": "8,16", "compared_gpus": ["a10"]},
            2,
            "2 batches",
        ),
    ],
)
def test_a_sweep_counts_its_analyses(typed: dict[str, Any], count: int, factors: str) -> None:
    sweep = Sweep.of(typed)
    assert (sweep.count, sweep.factors) == (count, factors)
    assert len(list(sweep.each())) == count


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"compared_gpus": ["a10", "h100"]}, ["2 analyses", "2 GPUs, side by side."]),
        ({}, ["1 analysis", "Choose two or more"]),
        (
            {"compared_batches": "1,2,3,4,5", "compared_gpus": list(GPUS)[:5]},
            ["25 analyses", "5 batches × 5 GPUs make 25 analyses; choose at most 24."],
        ),
    ],
)
def test_the_panel_says_before_submitting_how_many_analyses_it_makes(
    page: Client, changes: dict[str, Any], said: list[str]
) -> None:
    html = page.post(reverse("analyses:preview"), fields(**changes)).content.decode()
    for text in said:
        assert text in html
    assert not Analysis.objects.exists()
