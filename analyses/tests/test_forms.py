from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from analyses.forms import AnalysisForm, default_values, gpu_choices, values_of
from analyses.models import Analysis, Node
from analyses.tests.factories import make_analysis, make_request
from engine.gpus import GIB, GPUS
from engine.presets import PRESETS
from engine.request import AnalysisRequest

NEW = "/new/"


@pytest.fixture
def page(client: Client, member: User) -> Client:
    client.force_login(member)
    return client


def post(page: Client, **changes: str) -> AnalysisForm | Analysis:
    """Send the form with some fields changed; gives the form if it comes back."""
    response = page.post(NEW, default_values() | changes)
    if response.status_code == 302:
        return Analysis.objects.get()
    assert not Analysis.objects.exists()
    form: AnalysisForm = response.context["form"]
    return form


def test_it_offers_every_model_and_gpu_and_starts_with_sound_defaults(page: Client) -> None:
    html = page.get(NEW).content.decode()
    for preset in PRESETS.values():
        assert preset.description in html
    for gpu in GPUS.values():
        assert f'value="{gpu.name}"' in html
        assert f"{gpu.total_bytes / GIB:,.2f} GiB" in html
    values = default_values()
    assert (values["model"], values["gpu"], values["precision"]) == ("bert", "a10", "fp32")
    assert (values["current_batch_size"], values["hours_per_run"]) == ("16", "8")


def test_the_defaults_are_a_valid_question(page: Client) -> None:
    analysis = post(page)
    assert isinstance(analysis, Analysis)
    assert analysis.request == make_request() | {"batch_multiple": 8}


def test_pressing_analyze_leads_to_the_analysis(page: Client, member: User) -> None:
    response = page.post(NEW, default_values() | {"model": "gpt2", "optimizer": "sgd"})
    analysis = Analysis.objects.get()
    assert response.status_code == 302
    assert response["Location"] == reverse("analyses:detail", args=[analysis.pk])
    assert (analysis.owner, analysis.model, analysis.optimizer) == (member, "gpt2", "sgd")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "skynet"),
        ("model", ""),
        ("gpu", "abacus"),
        ("gpu", ""),
        ("precision", "fp3"),
        ("optimizer", "luck"),
        ("mode", "sleep"),
        ("sequence_length", "513"),
        ("sequence_length", "0"),
        ("current_batch_size", "0"),
        ("current_batch_size", "-1"),
        ("current_batch_size", "1000000000"),
        ("current_batch_size", "sixteen"),
        ("current_batch_size", "1e3"),
        ("batch_multiple", "0"),
        ("memory_limit_bytes", "12"),
        ("hours_per_run", "-3"),
        ("runs_per_year", "nan"),
        ("price_per_hour_usd", "free"),
        ("current_batch_size", "16\x00"),
    ],
)
def test_a_wrong_field_gets_a_message_beside_it(page: Client, field: str, value: str) -> None:
    form = post(page, **{field: value})
    assert isinstance(form, AnalysisForm)
    assert list(form.errors) == [field]
    assert len(str(form.errors[field][0])) > 10


def test_all_mistakes_are_shown_at_once_and_the_input_is_kept(page: Client) -> None:
    response = page.post(
        NEW,
        default_values()
        | {"current_batch_size": "none", "sequence_length": "9999", "hours_per_run": "long"},
    )
    html = response.content.decode()
    assert set(response.context["form"].errors) == {
        "current_batch_size",
        "sequence_length",
        "hours_per_run",
    }
    assert 'value="9999"' in html
    assert 'value="long"' in html
    assert 'id="id_hours_per_run_error"' in html
    assert html.count("autofocus") == 1
    focused = next(tag for tag in html.split("<") if "autofocus" in tag)
    assert 'name="current_batch_size"' in focused  # the first one on the page


def test_hostile_input_comes_back_as_text(page: Client) -> None:
    html = page.post(NEW, default_values() | {"runs_per_year": '"><script>'}).content.decode()
    assert "&quot;&gt;&lt;script&gt;" in html
    assert '"><script>' not in html


def test_a_size_that_the_model_does_not_take_is_ignored(page: Client) -> None:
    analysis = post(page, model="resnet", sequence_length="128", image_size="64")
    assert isinstance(analysis, Analysis)
    assert analysis.request["image_size"] == 64
    assert analysis.request["sequence_length"] is None


def test_a_duplicate_starts_from_the_earlier_question(page: Client, member: User) -> None:
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


def test_a_request_survives_the_form_unchanged() -> None:
    request = make_request(
        model="resnet", image_size=96, memory_limit_bytes=2**33, price_per_hour_usd=0.86
    )
    assert AnalysisRequest.parse(values_of(request)).to_dict() == request


@pytest.mark.parametrize("source", ["999", "x", "-1", "1e9", "9" * 40, "\N{SUPERSCRIPT TWO}"])
def test_a_duplicate_of_nothing_is_not_found(page: Client, source: str) -> None:
    assert page.get(NEW, {"from": source}).status_code == 404


def test_the_labs_own_node_is_offered_only_while_one_with_a_gpu_is_online(db: None) -> None:
    groups = dict(gpu_choices())
    assert "This lab" not in groups
    Node.objects.create(name="without", heartbeat_at=timezone.now())
    assert "This lab" not in dict(gpu_choices())
    Node.objects.create(
        name="with", gpu_name="NVIDIA L4", gpu_total_bytes=22 * GIB, heartbeat_at=timezone.now()
    )
    assert dict(gpu_choices())["This lab"] == [("local", "this lab's node: NVIDIA L4, 22.00 GiB")]


def test_the_catalogue_is_in_groups_that_hold_every_gpu_once(db: None) -> None:
    names = [choice[0] for _, choices in gpu_choices() for choice in choices]
    assert sorted(names) == sorted(GPUS)
    assert {"Data centre", "GeForce", "Workstation"} <= set(dict(gpu_choices()))


def test_it_requires_a_login(client: Client, db: None) -> None:
    for response in (client.get(NEW), client.post(NEW, default_values())):
        assert response.status_code == 302
        assert reverse("accounts:login") in response["Location"]
    assert not Analysis.objects.exists()
