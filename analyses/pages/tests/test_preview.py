"""The panel beside the form of a new analysis, while settings are typed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from analyses.jobs import lease, unwanted
from analyses.jobs.engine_output import Failure
from analyses.models import Node, Query, QueryKind, QueryStatus
from analyses.pages.new import views
from analyses.pages.new.values import default_values
from analyses.tests.factories import make_trial, make_user
from analyses.tests.query_answers import answer_next, make_prediction, take_next
from engine.core.sizes import gib_number
from engine.events import Answer
from engine.gpus import GPUS

A10_BYTES = GPUS["a10"].total_bytes
URL = "/new/preview/"


@pytest.fixture
def page(client: Client, member: User, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(views, "SHORT_WAIT_SECONDS", 0)
    client.force_login(member)
    return client


def typed(page: Client, **changes: str) -> str:
    return text_of(page.post(URL, default_values() | changes))


def text_of(response: Any) -> str:
    assert isinstance(response, HttpResponse)
    assert response.status_code == 200
    return response.content.decode()


def test_without_a_batch_the_one_to_start_with_is_shown(page: Client, node: Node) -> None:
    text = answered(page, make_prediction(64), no_batch="on")
    assert "Start with batch 64. Yes, it fits, with" in text
    assert Query.objects.get().request["current_batch_size"] is None


def polled(html: str) -> str:
    return html.split("</header>")[-1].split('hx-get="')[1].split('"')[0].replace("&amp;", "&")


def answered(page: Client, body: dict[str, Any], **changes: str) -> str:
    """The panel's text once a worker has answered."""
    address = polled(typed(page, **changes))
    answer_next(QueryKind.PREDICT, body)
    return text_of(page.get(address))


def test_the_panel_submits_a_query_and_polls_until_the_answer(page: Client, node: Node) -> None:
    waiting = typed(page, current_batch_size="64")
    assert "Predicting" in waiting
    assert Query.objects.get().request["current_batch_size"] == 64
    assert page.get(polled(waiting)).status_code == 204

    answer_next(QueryKind.PREDICT, make_prediction(64))
    shown = text_of(page.get(polled(waiting)))
    used = make_trial(64).device_used_bytes or 0
    assert f"Yes, it fits, with {gib_number(A10_BYTES - used)} GiB free" in shown
    between = f"{gib_number(round(used * 0.94))} to {gib_number(round(used * 1.06))}"
    needs = f"Batch 64 at 128 tokens uses {gib_number(used)} GiB ({between})"
    assert f"{needs} of the 22.07 GiB of NVIDIA A10." in shown
    assert "A step takes 187 ms (131–281): 342 samples per second, 43,700 tokens/s." in shown
    assert "badge-predicted" in shown
    assert "<svg" in shown
    assert "hx-get" not in shown


def test_what_is_computed_says_so(page: Client, node: Node) -> None:
    prediction = make_prediction(64)
    prediction["trial"]["source"] = "computed"
    shown = answered(page, prediction)
    assert "badge-computed" in shown
    assert "badge-predicted" not in shown


def test_a_stored_answer_is_shown_immediately_without_a_worker(page: Client, node: Node) -> None:
    first = answered(page, make_prediction(16))
    node.delete()
    assert typed(page, hours_per_run="3") == first


def test_a_batch_that_does_not_fit_shows_what_it_needs(page: Client, node: Node) -> None:
    shown = answered(page, make_prediction(300), current_batch_size="300")
    too_much = (make_trial(300).device_used_bytes or 0) - A10_BYTES
    assert f"No, it does not fit: {gib_number(too_much)} GiB too much" in shown
    assert "NVIDIA A10 has 22.07 GiB" in shown
    assert "A step takes" not in shown


def test_a_close_fit_says_that_it_may_not_fit(page: Client, node: Node) -> None:
    shown = answered(page, make_prediction(244), current_batch_size="244")
    most = (make_trial(244).device_used_high_bytes or 0) - A10_BYTES
    assert f"Maybe: at most {gib_number(most)} GiB too much" in shown
    assert "It would not fit at the high end of the prediction." in shown


def test_invalid_input_is_noted_quietly_and_submits_nothing(page: Client) -> None:
    shown = typed(page, current_batch_size="many", gpu="t4", precision="bf16-mixed")
    assert "<strong>Current batch size (samples):</strong> Enter a whole number from 1 to" in shown
    assert "<strong>Precision:</strong> NVIDIA T4 has no bf16" in shown
    assert "hx-get" not in shown
    assert not Query.objects.exists()


@pytest.mark.parametrize(
    "typed_in",
    [
        {"config": "{\0}"},
        {"model": "\0"},
        {"gpu": "\0"},
        {"ask": "compare", "compared_batches": "\0"},
    ],
)
def test_what_no_field_takes_is_noted_too(page: Client, typed_in: dict[str, str]) -> None:
    assert "Null characters are not allowed." in typed(page, **typed_in)
    assert not Query.objects.exists()


def test_an_unfinished_choice_of_model_says_what_is_missing(page: Client) -> None:
    assert "<strong>Hugging Face ID:</strong>" in typed(page, model="other", other_model="")


def test_hostile_text_stays_plain_text(page: Client) -> None:
    assert "<script>" not in typed(page, allocator="<script>alert(1)</script>")


def test_a_missing_worker_is_reported_immediately(page: Client) -> None:
    shown = typed(page)
    assert "No worker is online" in shown
    assert "hx-get" not in shown


def test_the_panel_stops_waiting_for_a_worker_that_has_gone(page: Client, node: Node) -> None:
    address = polled(typed(page))
    Node.objects.all().delete()
    shown = text_of(page.get(address))
    assert "No worker is online" in shown
    assert "hx-get" not in shown


def test_the_panel_says_that_workers_are_busy_and_waits_for_them(
    page: Client, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = polled(typed(page))
    monkeypatch.setattr(views, "MAX_UNCLAIMED_SECONDS", -1)
    shown = text_of(page.get(address))
    assert "The workers are busy" in shown
    assert "You can still select Analyze." in shown
    assert page.get(polled(shown)).status_code == 204

    running = take_next()
    assert "busy" not in text_of(page.get(polled(shown)))
    assert running is not None
    lease.finish(running, Answer(make_prediction(16)))
    assert "Yes, it fits" in text_of(page.get(polled(shown)))


def test_a_polling_page_keeps_its_query_alive(page: Client, node: Node) -> None:
    address = polled(typed(page))
    Query.objects.update(asked_at=timezone.now() - timedelta(minutes=1))
    page.get(address)
    assert unwanted.drop_unwanted() == 0


def test_a_newer_query_replaces_the_previous_one(page: Client, node: Node) -> None:
    old = polled(typed(page, current_batch_size="1"))
    typed(page, current_batch_size="12")
    assert [one.status for one in Query.objects.order_by("pk")] == ["dropped", "waiting"]
    assert "was cancelled" in text_of(page.get(old))


def test_the_engine_s_reason_is_shown(page: Client, node: Node) -> None:
    address = polled(typed(page, model="other", other_model="someone/private"))
    lease.finish(take_next(), Failure("invalid_input", "x", {"model": "the hub does not have it"}))
    assert "Can&#x27;t predict: the hub does not have it" in text_of(page.get(address))


def test_an_answer_of_another_version_is_marked(page: Client, node: Node) -> None:
    assert "Another version of MemoryMark" in answered(page, {"trial": {"batch": 1}})


def test_a_gpu_of_the_lab_is_predicted_from_the_catalogue(page: Client, node: Node) -> None:
    Node.objects.update(gpu_name="NVIDIA A10")
    shown = answered(page, make_prediction(16), gpu="local:NVIDIA A10")
    assert Query.objects.get().request["gpu"] == "a10"
    assert "Predicted for the catalogue&#x27;s NVIDIA A10. Analyze measures" in shown


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": "local:Some GPU"}, "Some GPU is measured, not predicted"),
        ({"gpu": "local:Some GPU", "compile": "on"}, "Some GPU is measured, not predicted"),
    ],
)
def test_settings_that_can_only_be_measured_say_so(
    page: Client, node: Node, changes: dict[str, str], reason: str
) -> None:
    Node.objects.update(gpu_name="Some GPU")
    assert reason in typed(page, **changes)


def test_compiled_steps_are_not_predicted(page: Client, node: Node) -> None:
    Node.objects.update(gpu_name="NVIDIA A10")
    shown = typed(page, gpu="local:NVIDIA A10", compile="on")
    assert "<strong>torch.compile:</strong>" in shown
    assert "cannot be predicted" in shown


def test_a_member_cannot_read_anothers_query(page: Client, node: Node) -> None:
    address = polled(typed(page))
    page.force_login(make_user("alan"))
    assert page.get(address).status_code == 404


def test_invalid_addresses_do_no_harm(page: Client, node: Node) -> None:
    typed(page)
    pk = Query.objects.get().pk
    shown = text_of(page.get(f"{URL}{pk}/?since=\u0664x&shown=dancing"))
    assert "The workers are busy" in shown


def test_the_panel_requires_a_login(client: Client, db: None) -> None:
    response = client.post(URL, default_values())
    assert response.status_code == 302
    assert not Query.objects.exists()


def test_without_javascript_there_is_no_panel(page: Client) -> None:
    html = page.get("/new/").content.decode()
    assert 'id="preview" class="card preview" hidden' in html


def test_a_finished_status_is_one_of_three() -> None:
    final = {status for status in QueryStatus if Query(status=status).is_final}
    assert final == {QueryStatus.ANSWERED, QueryStatus.FAILED, QueryStatus.DROPPED}
