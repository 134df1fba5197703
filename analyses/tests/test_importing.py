from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from analyses.importing.document import read_document
from analyses.lab import save_settings
from analyses.models import (
    Analysis,
    CountedSavings,
    Notification,
    NotificationChoices,
    Push,
    Status,
)
from analyses.savings.breakdown import totals
from analyses.selectors import savings_visible_to
from analyses.tests.factories import make_analysis, make_result, make_text_result, make_user
from engine.core.choices import Goal
from engine.core.errors import InvalidInput
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.interface.result import AnalysisResult, Comparison, MeasuredOn
from engine.interface.trial import GpuFacts, Source
from memorymark_site.accounts.models import ApiToken

pytestmark = pytest.mark.database

URL = "/api/v1/analyses/import/"
HOUR, LATER = "2026-03-01T12:00:00+00:00", "2026-03-01T12:01:30+00:00"

Change = Callable[[dict[str, Any]], object]


def _document(result: AnalysisResult | None = None, **request: object) -> dict[str, Any]:
    result = result or make_result()
    asked = AnalysisRequest.parse({"model": "bert", "gpu": "a10"} | request).to_dict()
    for name in ("hours_per_run", "runs_per_year", "price_per_hour_usd"):
        if name not in request:
            del asked[name]
    document = {
        "schema_version": 1,
        "id": "5f0f0f6e-0d1c-4f0e-8f5e-0a4a4c1e6b01",
        "request": asked,
        "result": result.to_dict(),
        "started_at": HOUR,
        "finished_at": LATER,
        "origin": {"host": "laptop-7", "ran": "memorymark analyze"},
        "environment": {"torch": "2.13.0", "python": "3.11.7"},
    }
    return copy.deepcopy(json.loads(json.dumps(document)))


def _measured() -> dict[str, Any]:
    """A document as a machine with its own A10 pushes it."""
    result = make_result(source=Source.MEASURED)
    speeds: dict[int | None, float | None] = {
        trial.batch_size: trial.samples_per_second for trial in result.trials
    }
    now, then = speeds[result.current_batch_size], speeds[result.recommended_batch_size]
    assert now is not None
    assert then is not None
    result = replace(
        result,
        safe_batch_size=None,
        comparison=Comparison([now] * 3, [then] * 3, 0.75),
        speedup=then / now,
        speedup_low=then / now,
        speedup_high=then / now,
        measured_on=MeasuredOn("NVIDIA A10", "2.13.0", "5.0.0", 8),
        gpu=GpuFacts("NVIDIA A10", GPUS["a10"].total_bytes, GPUS["a10"].usable_bytes),
    )
    return _document(result, gpu="local")


@pytest.fixture
def api(member: User) -> APIClient:
    client = APIClient()
    token = ApiToken.objects.create(user=member)[1]
    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    return client


def test_a_pushed_analysis_is_in_the_history(api: APIClient, member: User) -> None:
    answer = api.post(URL, _document(), format="json")

    assert answer.status_code == 201
    assert answer["Location"] == answer.json()["url"]
    analysis = Analysis.objects.get()
    assert (analysis.owner, analysis.status) == (member, Status.SUCCEEDED)
    assert analysis.recommended_batch_size == 128
    assert analysis.source == "predicted"
    assert analysis.started_at is not None
    assert analysis.finished_at is not None
    assert (analysis.finished_at - analysis.started_at).total_seconds() == 90
    assert analysis.trials.count() == len(make_result().trials)
    assert answer.json()["pushed_from"] == "laptop-7"


def _about_texts(goal: Goal) -> dict[str, Any]:
    """A document as ``memorymark generate`` or ``memorymark longest`` pushes it."""
    lengths: dict[str, Any] = {"prompt_length": 512} if goal is Goal.GENERATION else {}
    document = _document(model="gpt2", goal=str(goal), current_batch_size=8, **lengths)
    document["result"] = json.loads(json.dumps(make_text_result(goal).to_dict()))
    return document


@pytest.mark.parametrize("goal", [Goal.GENERATION, Goal.LENGTH])
def test_an_answer_about_texts_is_pushed_too(api: APIClient, goal: Goal) -> None:
    answer = api.post(URL, _about_texts(goal), format="json")

    assert answer.status_code == 201, answer.json()
    analysis = Analysis.objects.get()
    assert (analysis.goal, analysis.status) == (goal, Status.SUCCEEDED)
    assert analysis.longest_tokens == make_text_result(goal).longest_tokens
    assert not CountedSavings.objects.exists()


def test_generation_is_pushed_by_older_versions_too(api: APIClient) -> None:
    document = _about_texts(Goal.GENERATION)
    for part in (document["request"], document["result"]["workload"]):
        part["optimizer"] = "adamw"  # they name one, which counts for nothing

    assert api.post(URL, document, format="json").status_code == 201


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda sent: sent["result"].update(goal="length"), "result.goal"),
        (lambda sent: sent["result"].update(generation=None), "result"),
        (
            lambda sent: sent["result"]["generation"].update(largest_batch_size=4000),
            "result.generation",
        ),
        (
            lambda sent: sent["result"]["generation"].update(longest_length=9),
            "result.generation",
        ),
        (
            lambda sent: sent["result"]["generation"]["trial"].update(source="measured"),
            "result.source",
        ),
    ],
)
def test_an_inconsistent_answer_about_texts_is_refused(
    api: APIClient, change: Change, field: str
) -> None:
    sent = _about_texts(Goal.GENERATION)
    change(sent)
    answer = api.post(URL, sent, format="json")
    assert answer.status_code == 400
    assert field in answer.json()["errors"]


def test_the_pages_say_where_it_ran(client: Client, api: APIClient, member: User) -> None:
    pk = api.post(URL, _measured(), format="json").json()["id"]
    make_analysis(member, Status.SUCCEEDED)
    client.force_login(member)
    page = client.get(f"/{pk}/").content.decode()

    assert "imported from laptop-7 (<code>memorymark analyze</code>)" in page
    assert "torch 2.13.0" in page
    assert "badge-measured" in page
    listed = client.get("/history/?q=imported&columns=pushed").content.decode()
    assert "laptop-7" in listed
    assert listed.count('<input type="checkbox" name="ids"') == 1
    assert "laptop-7" not in client.get("/history/?q=-imported&columns=pushed").content.decode()
    assert "laptop-7" in "".join(
        part.decode()
        for part in client.get("/history/export.csv?columns=pushed").streaming_content  # type: ignore[attr-defined]  # of a streaming response, which the client's type leaves out
    )


def test_the_host_is_not_shown_outside_the_lab(client: Client, api: APIClient) -> None:
    pk = api.post(URL, _document(), format="json").json()["id"]
    client.force_login(make_user("boss", is_staff=True))
    made = client.post(f"/{pk}/share/", {"days": "7"}).content.decode()
    address = made.split('id="share-address" value="')[1].split('"')[0]

    shown = Client().get(address)
    assert shown.status_code == 200
    assert "laptop-7" not in shown.content.decode()


def test_a_push_names_its_project(api: APIClient) -> None:
    sent = api.post(URL, _document() | {"project": "Thesis"}, format="json")
    assert (sent.status_code, sent.json()["project"]) == (201, "Thesis")
    wrong = api.post(URL, _document() | {"project": "x" * 61}, format="json")
    assert "at most 60" in str(wrong.json()["errors"]["project"])


def test_the_same_push_twice_is_stored_once(api: APIClient) -> None:
    first = api.post(URL, _document(), format="json")
    again = api.post(URL, _document(), format="json")

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert Analysis.objects.count() == Push.objects.count() == 1


def test_another_push_with_the_same_id_is_refused(api: APIClient) -> None:
    api.post(URL, _document(), format="json")
    other = api.post(URL, _document() | {"finished_at": "2026-03-01T13:00:00Z"}, format="json")

    assert other.status_code == 409
    assert "create a new one" in other.json()["detail"]
    assert Analysis.objects.count() == 1


def test_a_member_cannot_take_over_anothers_push(api: APIClient) -> None:
    api.post(URL, _document(), format="json")
    client = APIClient()
    token = ApiToken.objects.create(user=make_user("eve"))[1]
    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")

    assert client.post(URL, _document(), format="json").status_code == 409


def test_a_pushed_analysis_counts_in_the_savings(api: APIClient, member: User) -> None:
    api.post(URL, _measured(), format="json")

    found = totals(savings_visible_to(member))
    assert found.potential.workloads == 1
    assert found.potential.usd_per_year > 0
    assert found.potential.sources == ("measured",)
    month = CountedSavings.objects.get().month
    assert f"{month:%Y-%m}" == "2026-03"  # when it ran, not when it arrived


def test_its_savings_use_the_labs_assumptions(api: APIClient) -> None:
    boss = make_user("boss", is_staff=True)
    save_settings(
        boss,
        hours_per_run=2.0,
        runs_per_year=10.0,
        grid_co2e_grams_per_kwh="",
        sharing_allowed=True,
    )
    document = _document()
    document["result"]["savings"]["usd_per_year"] = 1e9
    body = api.post(URL, document, format="json").json()

    speedup = body["result"]["speedup"]
    assert body["gpu_hours_per_year"] == pytest.approx(20 * (1 - 1 / speedup))
    assert body["usd_per_year"] < 100
    assert body["assumed_by"]["hours_per_run"] == "lab"


def test_its_own_assumptions_override_the_labs(api: APIClient) -> None:
    names = ("hours_per_run", "runs_per_year", "price_per_hour_usd", "grid_co2e_grams_per_kwh")
    document = _document(None, **dict.fromkeys(names, 1.0))
    body = api.post(URL, document, format="json").json()

    assert body["usd_per_year"] == pytest.approx(1 - 1 / body["result"]["speedup"])
    assert body["kg_co2e_per_year"] == pytest.approx(body["kwh_per_year"] / 1000)
    assert body["assumed_by"] == {}


def test_its_energy_is_computed_again(api: APIClient) -> None:
    document = _document()
    energy = document["result"]["savings"]["energy"]
    expected = energy["kwh_per_year"]
    low = energy["kwh_per_year_low"]
    energy["kwh_per_year_low"] = -1e9  # the one number that may be below zero
    energy["kg_co2e_per_year"] = 1e9
    body = api.post(URL, document, format="json").json()

    assert body["kwh_per_year"] == pytest.approx(expected)
    assert body["result"]["savings"]["energy"]["kwh_per_year_low"] == pytest.approx(low)
    assert body["kg_co2e_per_year"] == pytest.approx(expected * 481 / 1000)


@pytest.mark.parametrize(
    "changes",
    [
        {"kwh_per_year_low": 1e9},
        {"kwh_per_year_high": 0.0},
        {"kwh_per_year_high": -1.0},
        {"kwh_per_year": -1.0},
        {"current_watts": -1.0},
    ],
)
def test_energy_beyond_its_interval_or_below_zero_is_refused(
    api: APIClient, changes: dict[str, float]
) -> None:
    document = _document()
    document["result"]["savings"]["energy"] |= changes
    refused = api.post(URL, document, format="json")
    assert refused.status_code == 400
    assert not Analysis.objects.exists()


def test_its_result_is_not_reused_for_other_analyses(api: APIClient) -> None:
    api.post(URL, _document(), format="json")
    asked = api.post("/api/v1/analyses/", {"model": "bert", "gpu": "a10"}, format="json")

    assert asked.json()["status"] == "queued"


def test_its_owner_is_not_notified(api: APIClient, member: User) -> None:
    NotificationChoices.objects.create(
        member=member, by_webhook=True, webhook_url="https://x.example", only_after_seconds=0
    )
    api.post(URL, _document(), format="json")

    assert not Notification.objects.exists()


def test_it_can_be_adopted_and_deleted(client: Client, api: APIClient, member: User) -> None:
    pk = api.post(URL, _document(), format="json").json()["id"]

    assert api.post(f"/api/v1/analyses/{pk}/adopt/").json()["adopted_by"] == member.username
    client.force_login(member)
    client.post(f"/history/delete/?ids={pk}")
    assert not Analysis.objects.exists()
    assert not Push.objects.exists()


def test_a_measurement_on_another_machine_keeps_its_gpu(api: APIClient) -> None:
    body = api.post(URL, _measured(), format="json").json()

    assert (body["source"], body["measured_gpu"]) == ("measured", "NVIDIA A10")


def _set(path: str, value: object) -> Change:
    def change(document: dict[str, Any]) -> None:
        *inner, last = path.split(".")
        for name in inner:
            document = document[int(name) if name.isdigit() else name]  # type: ignore[index]  # JSON, walked down by a path
        if value is ...:
            del document[last]
        else:
            document[int(last) if last.isdigit() else last] = value  # type: ignore[index]  # JSON, walked down by a path

    return change


WRONG: dict[str, tuple[Change, str]] = {
    "a later version": (_set("schema_version", 2), "schema_version"),
    "no version": (_set("schema_version", ...), "schema_version"),
    "an unknown field": (_set("colour", "red"), "colour"),
    "no id": (_set("id", 7), "id"),
    "no model": (_set("request.model", "bort"), "request.model"),
    "an unknown GPU": (_set("request.gpu", "a11"), "request.gpu"),
    "not an object": (_set("result", []), "result"),
    "no result": (_set("result", {}), "result"),
    "an unknown figure": (_set("result.colour", "red"), "result"),
    "a text for a figure": (_set("result.largest_batch_size", "many"), "result"),
    "another model": (_set("result.workload.model", "gpt2"), "result.workload"),
    "another precision": (_set("request.precision", "bf16-mixed"), "result.workload"),
    "own code": (_set("result.workload", None), "result.workload"),
    "another GPU": (_set("request.gpu", "t4"), "result.gpu"),
    "more usable than there is": (_set("result.gpu.usable_bytes", 2**40), "result.gpu"),
    "a smaller GPU": (_set("request.memory_limit_bytes", 2**30), "result.gpu"),
    "a batch not asked about": (_set("request.current_batch_size", 8), "result.current_batch_size"),
    "no headroom": (_set("result.current_headroom_bytes", None), "result.current_batch_size"),
    "measured on a name": (_set("result.source", "measured"), "result.source"),
    "a trial of one": (_set("result.trials.0.source", "measured"), "result.source"),
    "no trials": (_set("result.trials", []), "result.trials"),
    "too many trials": (
        lambda document: document["result"].update(trials=document["result"]["trials"] * 200),
        "result.trials",
    ),
    "the same trial twice": (
        lambda document: document["result"]["trials"].append(document["result"]["trials"][0]),
        "result.trials",
    ),
    "a batch of none": (_set("result.trials.0.batch_size", 0), "result.trials"),
    "less reserved than allocated": (
        _set("result.trials.0.peak_reserved_bytes", 1),
        "result.trials",
    ),
    "a breakdown of something else": (
        _set("result.trials.0.breakdown.parameters", 1),
        "result.trials",
    ),
    "a larger limit than tried": (
        _set("result.largest_batch_size", 5000),
        "result.largest_batch_size",
    ),
    "a next batch that fits": (_set("result.trials.2.fits", True), "result.trials"),
    "no next batch": (_set("result.next_batch_size", 9000), "result.largest_batch_size"),
    "a recommendation beyond": (
        _set("result.recommended_batch_size", 9000),
        "result.recommended_batch_size",
    ),
    "a recommendation not tried": (
        _set("result.recommended_batch_size", 100),
        "result.recommended_batch_size",
    ),
    "a made-up speedup": (_set("result.speedup", 1.6), "result.speedup"),
    "a speedup outside its interval": (_set("result.speedup_low", 9.0), "result.speedup"),
    "an end before the start": (_set("finished_at", "2026-02-01T00:00:00Z"), "finished_at"),
    "no zone": (_set("started_at", "2026-03-01T12:00:00"), "started_at"),
    "a time to come": (_set("finished_at", "2996-03-01T12:00:00Z"), "finished_at"),
    "no host": (_set("origin.host", ...), "origin.host"),
    "a long host": (_set("origin.host", "x" * 300), "origin.host"),
    "something else of the origin": (_set("origin.user", "ada"), "origin.user"),
    "too many versions": (_set("environment", {str(n): "1" for n in range(99)}), "environment"),
    "a version that is no text": (_set("environment.torch", 2.13), "environment.torch"),
    "a figure below zero": (_set("result.trials.0.alloc_retries", -1), "result"),
    "a figure beyond all": (_set("result.trials.0.peak_allocated_bytes", 10**30), "result"),
    "a figure beyond floats": (_set("result.trials.0.peak_allocated_bytes", 10**400), "result"),
    "an endless figure": (_set("result.speedup", float("inf")), "result"),
    "a NUL": (_set("result.verdict", "fits\0"), "result"),
    "half a letter": (_set("origin.ran", "\ud800"), "origin.ran"),
    "a novel": (_set("result.verdict", "x" * 30_000), "result"),
    "a long list": (_set("result.caveats", [""] * 20_000), "result"),
    "deep nesting": (
        _set("request.config", json.loads("[" * 200 + "]" * 200)),
        "request",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_invalid_documents_are_reported_by_field(wrong: str) -> None:
    change, field = WRONG[wrong]
    document = _document()
    change(document)

    with pytest.raises(InvalidInput) as refused:
        read_document(document)
    assert field in refused.value.fields, refused.value.fields
    assert refused.value.fields[field]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("result.comparison.recommended_samples_per_second", [900.0] * 3),
        ("result.comparison.recommended_samples_per_second", [900.0]),
        ("result.comparison.current_samples_per_second", [0.0] * 3),
        ("result.comparison.current_samples_per_second", []),
    ],
)
def test_a_speedup_must_follow_from_the_measured_rounds(path: str, value: object) -> None:
    document = _measured()
    read_document(document)
    _set(path, value)(document)

    with pytest.raises(InvalidInput, match=r"result\.speedup"):
        read_document(document)


@pytest.mark.parametrize("wrong", ["no model", "an endless figure", "half a letter", "a NUL"])
def test_the_api_answers_400_and_stores_nothing(api: APIClient, wrong: str) -> None:
    change, field = WRONG[wrong]
    document = _document()
    change(document)
    answer = api.post(URL, json.dumps(document), content_type="application/json")

    assert answer.status_code == 400
    if wrong != "an endless figure":  # which is not JSON
        assert list(answer.json()["errors"]) == [field]
    assert not Analysis.objects.exists()


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"null", b"{}", b"{", b"7"])
def test_garbage_is_a_400(api: APIClient, body: bytes) -> None:
    assert api.post(URL, body, content_type="application/json").status_code == 400


def test_pushing_requires_a_token(client: Client, db: None) -> None:
    assert client.post(URL, _document(), content_type="application/json").status_code == 401


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("batch_size", 17),
        ("tensors", [{"size_bytes": 10**400}]),
        ("tensors", [{"count": -1}]),
        ("operations", [{"seconds": -1.0}]),
        ("operations", [{"seconds": 1e300}]),
    ],
)
def test_a_wrong_profile_is_refused(api: APIClient, part: str, values: Any) -> None:
    tensor = {"module": "m", "operation": "o", "category": "c", "count": 1, "size_bytes": 1}
    operation = {"operation": "o", "count": 1, "seconds": 0.1}
    profile = {"batch_size": 16, "peak_phase": "forward", "tensors": [tensor],
               "operations": [operation]}  # fmt: skip
    document = _document()
    document["result"]["profile"] = profile
    assert api.post(URL, document, format="json").status_code == 201
    if isinstance(values, list):
        values = [{**profile[part][0], **values[0]}]  # type: ignore[index]  # it is a dictionary of lists
    document["result"]["profile"] = profile | {part: values}
    document["id"] = "5f0f0f6e-0d1c-4f0e-8f5e-0a4a4c1e6b02"
    errors = api.post(URL, document, format="json").json()["errors"]
    assert next(iter(errors)).startswith("result")
