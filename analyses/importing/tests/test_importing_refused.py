"""Pushed analyses that are refused, and the reasons."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from analyses.importing.document import read_document
from analyses.importing.tests.pushed_documents import (
    pushed_document,
    pushed_measurement,
    pushed_texts,
)
from analyses.models import Analysis
from engine.core.choices import Goal
from engine.core.errors import InvalidInput

pytestmark = pytest.mark.database

URL = "/api/v1/analyses/import/"

Change = Callable[[dict[str, Any]], object]


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
    sent = pushed_texts(Goal.GENERATION)
    change(sent)
    answer = api.post(URL, sent, format="json")
    assert answer.status_code == 400
    assert field in answer.json()["errors"]


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
    document = pushed_document()
    document["result"]["savings"]["energy"] |= changes
    refused = api.post(URL, document, format="json")
    assert refused.status_code == 400
    assert not Analysis.objects.exists()


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
    document = pushed_document()
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
    document = pushed_measurement()
    read_document(document)
    _set(path, value)(document)

    with pytest.raises(InvalidInput, match=r"result\.speedup"):
        read_document(document)


@pytest.mark.parametrize("wrong", ["no model", "an endless figure", "half a letter", "a NUL"])
def test_the_api_answers_400_and_stores_nothing(api: APIClient, wrong: str) -> None:
    change, field = WRONG[wrong]
    document = pushed_document()
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
    assert client.post(URL, pushed_document(), content_type="application/json").status_code == 401


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
    document = pushed_document()
    document["result"]["profile"] = profile
    assert api.post(URL, document, format="json").status_code == 201
    if isinstance(values, list):
        values = [{**profile[part][0], **values[0]}]  # type: ignore[index]  # it is a dictionary of lists
    document["result"]["profile"] = profile | {part: values}
    document["id"] = "5f0f0f6e-0d1c-4f0e-8f5e-0a4a4c1e6b02"
    errors = api.post(URL, document, format="json").json()["errors"]
    assert next(iter(errors)).startswith("result")
