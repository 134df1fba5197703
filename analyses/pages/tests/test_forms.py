"""The form for a new analysis: what it offers, and what it submits."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from analyses.models import Analysis, Node
from analyses.pages.new.combinations import combinations
from analyses.pages.new.form import AnalysisForm
from analyses.pages.new.values import default_values, values_of
from analyses.pages.new.widgets import gpu_choices
from analyses.pages.tests.new_form import CONFIG, NEW, post
from analyses.tests.factories import make_analysis, make_request
from engine.core.optimizers import Optimizer
from engine.core.sizes import GIB
from engine.gpus import GPUS
from engine.interface.request import FIELDS, AnalysisRequest
from engine.models.presets import PRESETS


def test_the_form_offers_every_model_and_gpu_with_sound_defaults(page: Client) -> None:
    html = page.get(NEW).content.decode()
    for preset in PRESETS.values():
        assert f'value="{preset.name}"' in html
        assert f'title="{preset.description}"' in html
    for gpu in GPUS.values():
        assert f'value="{gpu.name}"' in html
        assert f"{gpu.total_bytes / GIB:,.2f} GiB" in html
    values = default_values()
    assert (values["model"], values["gpu"], values["precision"]) == ("bert", "a10", "fp32")
    assert (values["current_batch_size"], values["hours_per_run"]) == ("16", "8")


def test_every_setting_has_a_help_text(page: Client) -> None:
    form = page.get(NEW).context["form"]
    silent = [name for name, field in form.fields.items() if not field.help_text]
    of_their_parts = ["compared_models", "compared_precisions", "compared_gpus"]
    last = ["recipe", "recipe_beside", "compared_software"]
    assert silent == ["model", "ask", *of_their_parts, *last]  # the page has it beside them


def test_the_form_has_an_input_for_every_field_of_a_request(page: Client) -> None:
    form = page.get(NEW).context["form"]
    own = {"other_model", "ask", "batch_to_check", "no_batch", "texts_at_once"}
    own |= {f"compared_{name}s" for name in ("model", "precision", "gpu")}
    own |= {"compared_batches", "compared_software", "recipe", "project"}
    own |= {"recipe_beside", "recipe_framework"}
    assert form.fields.keys() == FIELDS.keys() - {"goal"} | own  # the question has the goal
    optimizers = [value for value, _ in form.fields["optimizer"].widget.choices]
    assert optimizers == list(Optimizer)


def test_the_defaults_are_a_valid_request(page: Client) -> None:
    analysis = post(page)
    assert isinstance(analysis, Analysis)
    price = GPUS["a10"].price_per_hour_usd
    assert analysis.request == make_request(price_per_hour_usd=price)


def test_no_batch_yet_is_an_answer(page: Client) -> None:
    analysis = post(page, current_batch_size="16", no_batch="on")
    assert isinstance(analysis, Analysis)
    assert analysis.request["current_batch_size"] is None
    assert analysis.current_batch_size is None


def test_no_batch_yet_is_remembered(page: Client, member: User) -> None:
    came_back = post(page, no_batch="on", sequence_length="9999")
    assert isinstance(came_back, AnalysisForm)
    assert came_back["no_batch"].value()
    analysis = make_analysis(member, request=make_request(current_batch_size=None))
    again = page.get(NEW, {"from": str(analysis.pk)}).context["form"]
    assert (again["no_batch"].value(), again["current_batch_size"].value()) == ("on", "")
    moved = page.get(NEW, {"from": str(analysis.pk), "current_batch_size": "64"}).context["form"]
    assert (moved["no_batch"].value(), moved["current_batch_size"].value()) == ("", "64")


def test_a_gpu_is_looked_for_without_a_current_batch(page: Client) -> None:
    analysis = post(page, ask="gpu", current_batch_size="16")
    assert isinstance(analysis, Analysis)
    assert analysis.current_batch_size is None


def test_a_batch_to_check_is_given_even_where_there_is_no_batch_yet(page: Client) -> None:
    analysis = post(page, ask="fit", batch_to_check="32", no_batch="on")
    assert isinstance(analysis, Analysis)
    assert analysis.current_batch_size == 32


def test_pressing_analyze_leads_to_the_analysis(page: Client, member: User) -> None:
    response = page.post(NEW, default_values() | {"model": "gpt2", "optimizer": "sgd"})
    analysis = Analysis.objects.get()
    assert response.status_code == 302
    assert response["Location"] == reverse("analyses:detail", args=[analysis.pk])
    assert (analysis.owner, analysis.model, analysis.optimizer) == (member, "gpt2", "sgd")


def test_a_size_the_model_does_not_have_is_ignored(page: Client) -> None:
    analysis = post(page, model="resnet", sequence_length="128", image_size="64", image_count="2")
    assert isinstance(analysis, Analysis)
    assert analysis.request["image_size"] == 64
    assert analysis.request["sequence_length"] is None
    assert analysis.request["image_count"] is None


def test_a_duplicate_starts_from_the_earlier_settings(page: Client, member: User) -> None:
    earlier = make_analysis(
        member,
        request=make_request(
            model="gpt2", gpu="l4", precision="bf16-mixed", sequence_length=256, hours_per_run=2.5
        ),
    )
    form = page.get(f"{NEW}?from={earlier.pk}").context["form"]
    assert form["model"].value() == "gpt2"
    assert form["precision"].value() == "bf16-mixed"
    assert form["hours_per_run"].value() == "2.5"


@pytest.mark.parametrize(
    "given",
    [
        {"model": "resnet", "image_size": 96, "memory_limit_bytes": 2**33},
        {"price_per_hour_usd": 0.86, "mode": "eval", "attention": "eager"},
        {"model": "acme/own", "task": "token-classification", "label_count": 5},
        {"model": "mine", "config": CONFIG, "optimizer": "lion", "lora_rank": 4},
        {"model": "", "config": CONFIG, "gradient_checkpointing": True},
        {"model": "mine", "config": {"model_type": "qwen2_vl"}, "image_count": 4},
        {"frozen_backbone": True, "gradient_accumulation": 4, "global_batch_size": 64},
        {"parallelism": "fsdp", "world_size": 8, "allocator": "max_split_size_mb:128"},
        {"gpu": "local", "compile": True},
        {"model": "gpt2", "use_cache": True},
        {"model": "gpt2", "use_cache": False},
    ],
)
def test_a_request_survives_the_form_unchanged(db: None, given: dict[str, object]) -> None:
    request = make_request(**given)
    form = AnalysisForm(values_of(request))
    assert form.is_valid()
    assert AnalysisRequest.parse(form.raw_fields()).to_dict() == request


@pytest.mark.parametrize(
    ("changes", "unfolded"),
    [
        ({}, {}),
        ({"mode": "train", "attention": "sdpa", "parallelism": "none", "world_size": "1"}, {}),
        ({"gradient_checkpointing": "on", "lora_rank": "8"}, {}),  # always in sight
        ({"memory_limit_bytes": "12"}, {"limit": "Memory limit: 12"}),
        ({"parallelism": "ddp"}, {"several": "Parallelism: DDP: a whole copy on each GPU"}),
        ({"hours_per_run": "9"}, {"cost": ": 9"}),
        ({"task": "token-classification"}, {"task": "Task: token classification"}),
        ({"cpu_offload": "on"}, {"several": "on"}),
    ],
)
def test_rare_settings_are_folded_unless_one_has_an_error_or_a_value(
    page: Client, changes: dict[str, str], unfolded: dict[str, str]
) -> None:
    response = page.post(NEW, default_values() | {"current_batch_size": "0"} | changes)
    groups = re.findall(
        r'<details class="advanced-group advanced-(\w+)[^"]*"( open)? data-group>\s*<summary>.*?'
        r"<small data-set>(.*?)</small>",
        response.content.decode(),
    )
    assert len(groups) > 8
    assert {key for key, is_open, _ in groups if is_open} == unfolded.keys()
    for key, _, summary in groups:
        assert unfolded.get(key, "") in summary
        assert bool(summary) is (key in unfolded)


def test_rare_settings_reach_the_engine(page: Client) -> None:
    analysis = post(page, lora_rank="8", gradient_checkpointing="on", task="token-classification")
    assert isinstance(analysis, Analysis)
    stored = analysis.request
    assert (stored["lora_rank"], stored["gradient_checkpointing"]) == (8, True)
    assert (stored["task"], stored["label_count"]) == ("token-classification", 9)


def test_a_ticked_compile_box_is_ignored_for_predictions(page: Client) -> None:
    analysis = post(page, compile="on")
    assert isinstance(analysis, Analysis)
    assert analysis.request["compile"] is False


def upload_lengths(page: Client, content: str) -> HttpResponse:
    file = SimpleUploadedFile("lengths.txt", content.encode(), "text/plain")
    fields = default_values() | {"batching": "longest", "lengths_file": file}
    return cast(HttpResponse, page.post(NEW, fields))


def test_uploaded_lengths_become_percentiles(page: Client) -> None:
    content = "\n".join(map(str, range(1, 1001)))
    assert upload_lengths(page, content).status_code == 302
    assert "p50=501,p55=551" in Analysis.objects.get().request["sample_lengths"]


def test_uploaded_lengths_that_are_none_are_told(page: Client) -> None:
    response = upload_lengths(page, "12\nlong\n40")
    assert response.status_code == 200
    assert "&#x27;long&#x27;, entry 2, is not a length" in response.content.decode()
    assert not Analysis.objects.exists()


@pytest.mark.parametrize(
    ("bad", "told"),
    [("1e4", "&#x27;1e4&#x27;, entry 200,001, is not a length"), ("0", "0, entry 200,001, is not")],
)
def test_a_long_list_with_a_mistake_is_not_repeated(page: Client, bad: str, told: str) -> None:
    content = "\n".join(["4096"] * 200_000 + [bad])
    text = upload_lengths(page, content).content.decode()
    empty = page.get(NEW).content.decode()
    assert told in text
    assert len(text) < len(empty) + 10_000
    assert "4096\n4096" not in text


def test_the_longest_of_uploaded_lengths_keeps_its_index(page: Client) -> None:
    assert upload_lengths(page, "12\n700\n40\n700").status_code == 302
    assert Analysis.objects.get().request["sample_lengths"].endswith("max=700@1")


def test_lengths_may_be_typed_one_per_line(page: Client) -> None:
    analysis = post(page, batching="longest", sample_lengths="12 40 7")
    assert isinstance(analysis, Analysis)
    assert analysis.request["sample_lengths"].startswith("min=7,")


def test_the_labs_own_node_is_offered_only_while_one_with_a_gpu_is_online(db: None) -> None:
    groups = dict(gpu_choices())
    assert "This lab" not in groups
    Node.objects.create(name="without", heartbeat_at=timezone.now())
    assert "This lab" not in dict(gpu_choices())
    Node.objects.create(
        name="with", gpu_name="NVIDIA L4", gpu_total_bytes=22 * GIB, heartbeat_at=timezone.now()
    )
    label = f"NVIDIA L4 · 22.00 GiB · ${GPUS['l4'].price_per_hour_usd:.2f}/h · measured on with"
    assert next(iter(dict(gpu_choices()))) == "This lab"  # before the catalogue
    assert dict(gpu_choices())["This lab"] == [("local:NVIDIA L4", label)]


def test_the_catalogue_groups_have_every_gpu_once(db: None) -> None:
    names = [choice[0] for _, choices in gpu_choices() for choice in choices]
    assert sorted(names) == sorted(GPUS)
    assert {"Data centre", "GeForce", "Workstation"} <= set(dict(gpu_choices()))


@pytest.mark.django_db
@pytest.mark.parametrize("one", combinations(), ids=lambda one: one["message"])
def test_the_form_offers_no_combination_that_the_engine_refuses(one: dict[str, Any]) -> None:
    form = AnalysisForm()
    assert "{" not in one["message"]
    for some in (one["this"], *one["others"]):
        choices = getattr(form.fields[some["name"]].widget, "choices", None)
        if choices is not None:
            assert {text for text in some["values"] if text} <= {str(value) for value, _ in choices}
    assert "" not in one["this"]["values"] or one["this"]["excluded"]  # a default can be chosen
