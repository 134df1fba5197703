"""The form for a new analysis comes back with a message beside each mistake."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from analyses.models import Analysis
from analyses.pages.new.form import AnalysisForm
from analyses.pages.new.values import default_values
from analyses.pages.tests.new_form import NEW, post


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
        ("allocator", "faster"),
        ("attention", "close"),
        ("gradient_accumulation", "0"),
        ("global_batch_size", "17"),
        ("lora_rank", "-8"),
        ("lora_targets", "x" * 501),
        ("parallelism", "some"),
        ("world_size", "2000"),
        ("task", "image-classification"),
        ("label_count", "none"),
        ("hours_per_run", "-3"),
        ("runs_per_year", "nan"),
        ("price_per_hour_usd", "free"),
        ("current_batch_size", "16\x00"),
    ],
)
def test_an_invalid_field_has_a_message_beside_it(page: Client, field: str, value: str) -> None:
    form = post(page, **{field: value})
    assert isinstance(form, AnalysisForm)
    assert list(form.errors) == [field]
    assert len(str(form.errors[field][0])) > 10


def test_all_mistakes_are_shown_together_and_the_input_is_kept(page: Client) -> None:
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


def test_hostile_input_comes_back_as_plain_text(page: Client) -> None:
    html = page.post(NEW, default_values() | {"runs_per_year": '"><script>'}).content.decode()
    assert "&quot;&gt;&lt;script&gt;" in html
    assert '"><script>' not in html


@pytest.mark.parametrize("name", ["model", "current_batch_size", "memory_limit_bytes", "teacher"])
def test_an_endless_value_is_refused_and_not_repeated_whole(page: Client, name: str) -> None:
    for address in (NEW, f"{NEW}preview/"):
        response = page.post(address, default_values() | {name: "x" * 1_000_000})
        assert response.status_code == 200
        assert len(response.content) < 1_000_000
    assert not Analysis.objects.exists()


@pytest.mark.parametrize("source", ["999", "x", "-1", "1e9", "9" * 40, "\N{SUPERSCRIPT TWO}"])
def test_a_duplicate_of_a_missing_analysis_is_not_found(page: Client, source: str) -> None:
    assert page.get(NEW, {"from": source}).status_code == 404


def test_the_form_requires_a_login(client: Client, db: None) -> None:
    for response in (client.get(NEW), client.post(NEW, default_values())):
        assert response.status_code == 302
        assert reverse("account_login") in response["Location"]
    assert not Analysis.objects.exists()
