from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import DjangoAssertNumQueries
from rest_framework.test import APIClient

from analyses.models import FINAL_STATUSES, Analysis, Job, Status
from analyses.tests.factories import make_analysis, make_request, make_result, make_user
from engine.interface.trial import Trial
from engine.interface.workload import Workload
from engine.models.architectures import ARCHITECTURES
from engine.models.coverage import checked_with, model_types
from memorymark_site.accounts.models import ApiToken

pytestmark = pytest.mark.database

URL = "/api/v1/analyses/"
CONFIG = {"model_type": "bert", "vocab_size": 1000, "max_position_embeddings": 128}
GOOD = {"model": "bert", "gpu": "a10", "current_batch_size": 32}


@pytest.fixture
def token(member: User) -> str:
    return str(ApiToken.objects.create(user=member)[1])


@pytest.fixture
def api(token: str) -> APIClient:
    client = APIClient(raise_request_exception=True)
    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    return client


def test_a_script_submits_and_reads_its_analysis(api: APIClient, member: User) -> None:
    created = api.post(URL, GOOD, format="json")

    assert created.status_code == 201
    assert created["Location"] == created.json()["url"]
    read = api.get(created["Location"])
    assert read.status_code == 200
    body = read.json()
    assert (body["status"], body["owner"]) == ("queued", member.username)
    assert body["request"]["current_batch_size"] == 32
    assert (body["trials"], body["result"], body["failure"]) == ([], None, None)
    assert Job.objects.get().analysis_id == body["id"]


def test_a_finished_analysis_has_trials_and_result(api: APIClient, member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    body = api.get(f"{URL}{analysis.pk}/").json()

    assert body["status"] == "succeeded"
    assert body["result"]["verdict"]
    assert body["trials"][0]["batch_size"] == 16
    assert body["trials"][0]["peak_allocated_bytes"] > 0
    assert set(body["trials"][0]) == {field.name for field in fields(Trial)} | {"tokens_per_second"}
    assert body["trials"][0]["breakdown"]["parameters"] > 0
    assert body["largest_batch_size"] == body["result"]["largest_batch_size"]


def test_tokens_are_counted_beside_samples_where_the_input_is_text(
    api: APIClient, member: User
) -> None:
    images = make_result(workload=Workload("resnet"))
    text = make_analysis(member, Status.SUCCEEDED)
    pictures = make_analysis(member, Status.SUCCEEDED, images, request=make_request(model="resnet"))

    body = api.get(f"{URL}{text.pk}/").json()
    assert body["tokens_per_sample"] == 128
    (trial, *_) = body["trials"]
    assert trial["tokens_per_second"] == pytest.approx(128 * trial["samples_per_second"])

    body = api.get(f"{URL}{pictures.pk}/").json()
    assert body["tokens_per_sample"] is None
    assert {trial["tokens_per_second"] for trial in body["trials"]} == {None}


def test_a_failed_analysis_says_why(api: APIClient, member: User) -> None:
    analysis = make_analysis(
        member, Status.FAILED, failure_code="does_not_fit", failure_reason="batch 1 needs 30 GiB"
    )

    assert api.get(f"{URL}{analysis.pk}/").json()["failure"] == {
        "code": "does_not_fit",
        "reason": "batch 1 needs 30 GiB",
    }


def test_the_list_has_pages_newest_first(api: APIClient, member: User) -> None:
    pks = [make_analysis(make_user("lin") if n == 0 else member).pk for n in range(3)]
    body = api.get(URL, {"page_size": 2}).json()

    assert body["count"] == 3
    assert [analysis["id"] for analysis in body["results"]] == [pks[2], pks[1]]
    assert [a["owner"] for a in api.get(body["next"]).json()["results"]] == ["lin"]
    assert "result" not in body["results"][0]


@pytest.mark.parametrize(
    ("sort", "size"),
    [
        ("-id", 1),
        ("id", 5),
        ("speedup", 2),
        ("-speedup", 3),
        ("member", 2),
        *(
            pytest.param(sort, size, marks=pytest.mark.slow)
            for sort in ("speedup", "-speedup", "member")
            for size in (1, 2, 3, 5)
        ),
    ],
)
def test_each_analysis_is_on_exactly_one_page(
    api: APIClient, member: User, sort: str, size: int
) -> None:
    for number in range(7):
        is_equal = number % 3 == 0  # to another one: in speedup, or in having none
        result = make_result(recommended=32 if is_equal else 24) if number % 2 else None
        make_analysis(member, Status.SUCCEEDED if result else Status.QUEUED, result)
    whole = api.get(URL, {"sort": sort}).json()["results"]
    found, address = [], f"{URL}?sort={sort}&page_size={size}"
    while address:
        page = api.get(address).json()
        found += page["results"]
        address = page["next"]

    assert [a["id"] for a in found] == [a["id"] for a in whole]
    assert len(whole) == 7


@pytest.mark.parametrize("query", [{"page": "99"}, {"page": "x"}, {"page": "-1"}])
def test_a_missing_page_is_not_found(api: APIClient, query: dict[str, str]) -> None:
    assert api.get(URL, query).status_code == 404


def test_the_list_takes_the_same_number_of_queries_for_any_length(
    api: APIClient, member: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(5):
        make_analysis(member, Status.SUCCEEDED)
    api.get(URL)  # records the token's use, once a minute
    # token, others of the member, role, count, few or many, ids, rows, tags
    with django_assert_num_queries(8):
        api.get(URL)


def test_a_session_works_too_and_needs_the_csrf_token(member: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(member)

    assert client.get(URL).status_code == 200
    refused = client.post(URL, json.dumps(GOOD), content_type="application/json")
    assert refused.status_code == 403
    assert not Analysis.objects.exists()


@pytest.mark.parametrize("path", ["analyses/", "analyses/1/", "models/", "gpus/"])
def test_everything_requires_authentication(client: Client, db: None, path: str) -> None:
    response = client.get(f"/api/v1/{path}")

    assert response.status_code == 401
    assert response["WWW-Authenticate"] == "Token"
    assert response.json()["detail"]


@pytest.mark.parametrize(
    "header",
    [
        "Token",
        "Token wrong",
        "Token a b",
        "Token mm_" + "0" * 64,
        "Token \xff\xfe",
        "Token a\x00b",
        "Token " + "x" * 5000,
    ],
)
def test_a_bad_token_is_refused(client: Client, member: User, header: str) -> None:
    assert client.get(URL, HTTP_AUTHORIZATION=header).status_code == 401


def test_a_former_members_token_is_refused(api: APIClient, member: User) -> None:
    member.is_active = False
    member.save()

    assert api.get(URL).status_code == 401


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"model": "bort"}, "model"),
        ({"model": 7}, "model"),
        ({"gpu": "a11"}, "gpu"),
        ({"gpu": "local"}, "gpu"),
        ({"current_batch_size": 0}, "current_batch_size"),
        ({"current_batch_size": -1}, "current_batch_size"),
        ({"current_batch_size": 1e9}, "current_batch_size"),
        ({"current_batch_size": 10**9}, "current_batch_size"),
        ({"current_batch_size": "many"}, "current_batch_size"),
        ({"sequence_length": 10**6}, "sequence_length"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_each_invalid_field_is_reported(api: APIClient, fields: dict[str, Any], wrong: str) -> None:
    response = api.post(URL, GOOD | fields, format="json")

    assert response.status_code == 400
    errors = response.json()["errors"]
    assert list(errors) == [wrong]
    assert isinstance(errors[wrong], list)
    assert errors[wrong][0]
    assert not Analysis.objects.exists()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"not json",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'["model"]',
        b'"bert"',
        b"7",
        b"{}",
        b'{"model": NaN, "gpu": "a10"}',
        b'{"model": "bert", "gpu": "a10", "hours_per_run": 1e999}',
        b'{"model": "bert", "gpu": "a10", "hours_per_run": 1' + b"0" * 400 + b"}",
        b'{"model": "bert", "gpu": "a10", "hours_per_run": 1' + b"0" * 9000 + b"}",
        b'{"model": "\\ud800", "gpu": "\\u0000"}',
        b'{"\\ud800": 1, "model": "bert", "gpu": "a10"}',
        b'{"": 1, "model": "bert", "gpu": "a10"}',
        b"[" * 100_000,
        b'{"model":' * 50_000,
        b'{"model": {"a": [[[[]]]]}, "gpu": [1, 2]}',
    ],
)
def test_garbage_is_a_400(api: APIClient, body: bytes) -> None:
    response = api.post(URL, body, content_type="application/json")

    assert response.status_code == 400
    assert isinstance(response.json(), dict)
    assert not Analysis.objects.exists()


def test_a_body_that_is_too_large_is_refused_in_json(api: APIClient) -> None:
    body = b'{"model": "' + b"x" * 3_000_000 + b'"}'
    response = api.post(URL, body, content_type="application/json")

    assert response.status_code == 413
    assert "too large" in response.json()["detail"]


def test_a_body_that_is_not_json_is_refused(api: APIClient) -> None:
    assert api.post(URL, "model=bert", content_type="text/plain").status_code == 415


@pytest.mark.parametrize(
    ("charset", "status"),
    [("utf-8", 201), ("UTF-8", 201), ("klingon", 415), ("rot13", 415), ("hex", 415)],
)
def test_a_charset_that_nobody_knows_is_refused(api: APIClient, charset: str, status: int) -> None:
    kind = f"application/json; charset={charset}"
    answer = api.post(URL, json.dumps(GOOD), content_type=kind)
    assert answer.status_code == status
    assert status == 201 or "in UTF-8" in answer.json()["detail"]


@pytest.mark.parametrize("pk", ["999", str(10**30)])
def test_a_missing_analysis_is_not_found(api: APIClient, pk: str) -> None:
    assert api.get(f"{URL}{pk}/").status_code == 404


def test_analyses_cannot_be_replaced(api: APIClient, member: User) -> None:
    analysis = make_analysis(member)

    assert api.put(f"{URL}{analysis.pk}/", {}, format="json").status_code == 405


def test_models_and_gpus_are_listed(api: APIClient) -> None:
    models = {model["name"]: model for model in api.get("/api/v1/models/").json()["results"]}
    gpus = {gpu["name"]: gpu for gpu in api.get("/api/v1/gpus/").json()["results"]}

    assert models["bert"]["hub_id"] == "google-bert/bert-base-uncased"
    assert models["bert"]["kind"] == "text"
    assert models["bert"]["sequence_length"] == {"default": 128, "smallest": 1, "largest": 512}
    assert gpus["a10"]["total_bytes"] > 2**34
    assert gpus["a10"]["sources"]
    assert gpus["h100"]["spot_price_per_hour_usd"] == 1.8685
    assert "(2026-10-04)" in gpus["h100"]["sources"]["spot_price_per_hour_usd"]
    assert gpus["t4"]["spot_price_per_hour_usd"] is None


def test_model_types_are_listed_with_what_is_predicted_of_them(api: APIClient) -> None:
    sent = api.get("/api/v1/model-types/").json()
    assert sent["transformers"] == checked_with()
    assert [one["name"] for one in sent["results"]] == [one.name for one in model_types()]
    clip = next(one for one in sent["results"] if one["name"] == "clip")
    assert clip == {
        "name": "clip",
        "kinds": ["image-text", "image"],
        "tasks": ["contrastive", "image-classification"],
        "refused": dict(ARCHITECTURES["clip"].refused),
        "presets": ["clip"],
        "needs": [],
    }


def test_a_config_can_be_given(api: APIClient) -> None:
    given = {"model": "mine", "config": CONFIG, "gpu": "a10", "lora_rank": 8}
    response = api.post(URL, given, format="json")
    assert response.status_code == 201
    request = response.json()["request"]
    assert (request["model"], request["config"], request["lora_rank"]) == ("mine", CONFIG, 8)


@pytest.mark.parametrize(
    "config", ["text", 1, [], {"model_type": "bert\0"}, CONFIG | {"a": "\ud800"}]
)
def test_a_config_that_cannot_be_used_is_refused(api: APIClient, config: object) -> None:
    body = json.dumps({"config": config, "gpu": "a10"})
    response = api.post(URL, body, content_type="application/json")
    assert response.status_code == 400
    assert list(response.json()["errors"]) == ["config"]


# Deleting


def _delete(api: APIClient, analysis: Analysis) -> int:
    return api.delete(f"/api/v1/analyses/{analysis.pk}/").status_code


@pytest.mark.parametrize("status", FINAL_STATUSES)
def test_deleting_an_analysis_deletes_everything_that_belongs_to_it(
    api: APIClient, member: User, status: Status
) -> None:
    analysis = make_analysis(member, status)
    assert _delete(api, analysis) == 204
    assert _delete(api, analysis) == 404


@pytest.mark.parametrize("status", [Status.QUEUED, Status.RUNNING, Status.CANCELLING])
def test_an_unfinished_analysis_cannot_be_deleted(
    api: APIClient, member: User, status: Status
) -> None:
    assert _delete(api, make_analysis(member, status)) == 409
    assert Analysis.objects.exists()


def test_members_delete_their_own_analyses_and_admins_any(api: APIClient) -> None:
    analysis = make_analysis(make_user("alan"), Status.SUCCEEDED)
    assert _delete(api, analysis) == 403
    api.force_authenticate(make_user("root", is_staff=True))
    assert _delete(api, analysis) == 204
