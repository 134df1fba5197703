"""The endpoints of the first service: its shapes, for a member with a token."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from analyses import services
from analyses.api import first_service
from analyses.models import Analysis, Status
from analyses.tests.factories import make_analysis, make_result, make_user, make_viewer
from engine.answer.amounts import trial_at
from engine.core.sizes import GIB
from memorymark_site.accounts import tokens
from memorymark_site.accounts.models import Scope

pytestmark = pytest.mark.database

FIELDS = {
    "optimal_batch_size", "optimal_memory_gb", "current_batch_size", "waste_gb", "waste_percent",
    "speedup", "cost_savings_annual", "results",
}  # fmt: skip


@pytest.fixture
def api(member: User) -> APIClient:
    return _api(member)


def _api(member: User, scope: Scope = Scope.WRITE) -> APIClient:
    client = APIClient()
    token = tokens.create(member, "a program", scope, 7)[1]
    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    return client


@pytest.fixture
def answered(member: User, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Every submitted analysis is answered at once; the list has what was submitted."""
    submitted: list[dict[str, Any]] = []

    def submit(owner: User, fields: dict[str, Any], **_: object) -> Analysis:
        submitted.append(fields)
        return make_analysis(owner, Status.SUCCEEDED, make_result())

    monkeypatch.setattr(services, "submit", submit)
    return submitted


def test_analyze_answers_in_the_first_services_fields(
    api: APIClient, answered: list[dict[str, Any]]
) -> None:
    answer = api.post("/analyze", {"model_name": "bert"}, format="json")
    result, body = make_result(), answer.json()
    optimal = trial_at(result, 128)
    assert optimal
    assert optimal.device_used_bytes
    assert result.current_headroom_bytes
    assert result.savings

    assert answer.status_code == 200
    assert body.keys() >= FIELDS
    assert answered == [{"model": "bert", "gpu": "a10"}]
    assert (body["optimal_batch_size"], body["current_batch_size"]) == (128, 16)
    assert body["optimal_memory_gb"] == round(optimal.device_used_bytes / GIB, 2)
    assert body["waste_gb"] == round(result.current_headroom_bytes / GIB, 2)
    assert body["waste_percent"] == round(
        100 * result.current_headroom_bytes / result.gpu.total_bytes, 1
    )
    assert body["speedup"] == result.speedup
    assert body["cost_savings_annual"] == result.savings.usd_per_year
    assert (body["source"], body["gpu_name"]) == ("predicted", "NVIDIA A10")
    sizes = [one["batch_size"] for one in body["results"]]
    assert sizes == sorted(trial.batch_size for trial in result.trials)
    assert {one["fits"] for one in body["results"]} == {True, False}


def test_other_fields_of_an_analysis_may_stand_beside_the_model(
    api: APIClient, answered: list[dict[str, Any]]
) -> None:
    body = {"model_name": "bert", "gpu": "h100", "current_batch_size": 32}
    assert api.post("/analyze", body, format="json").status_code == 200
    assert answered == [{"model": "bert", "gpu": "h100", "current_batch_size": 32}]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{", "not JSON"),
        ("[" * 50_000, "too deeply"),
        ("[]", "one JSON object"),
        ("{}", "model_name"),
        ('{"model_name": "no-such-model"}', "model_name: unknown model 'no-such-model'"),
        ('{"model_name": 7}', "model_name"),
        ('{"model_name": "bert\\u0000"}', "model_name"),
        ('{"model_name": "\\ud800"}', "model_name"),
        ('{"model_name": "bert", "colour": "red"}', "colour"),
        ('{"model_name": "bert", "current_batch_size": 0}', "current_batch_size"),
        ('{"model_name": "bert", "gpu": [1]}', "gpu"),
        ('{"model_name": "t5-small", "goal": "length"}', "goal: /analyze finds batches"),
        ('{"model_name": "t5-small", "goal": []}', "goal: /analyze finds batches"),
    ],
)
def test_what_is_wrong_is_a_400_with_one_message(api: APIClient, body: str, said: str) -> None:
    answer = api.post("/analyze", body, content_type="application/json")

    assert answer.status_code == 400
    assert list(answer.json()) == ["error"]
    assert said in answer.json()["error"]
    assert not Analysis.objects.exists()


def test_an_error_of_the_framework_says_what_to_do(api: APIClient) -> None:
    for answer, advice in (
        (APIClient().get("/models"), "Send the header Authorization: Token mm_… with a valid"),
        (api.post("/analyze", "model", content_type="text/plain"), "Send JSON, with the header"),
        (api.delete("/models"), "The header Allow lists the methods"),
    ):
        assert advice in answer.json()["error"], answer.status_code


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize(("method", "address"), [("get", "/models"), ("post", "/analyze")])
def test_without_a_token_it_is_a_401_in_the_same_shape(method: str, address: str) -> None:
    for client in (APIClient(), APIClient(HTTP_AUTHORIZATION="Token mm_no")):
        answer = getattr(client, method)(address, {}, format="json")
        assert answer.status_code == 401
        assert list(answer.json()) == ["error"]
        assert answer["WWW-Authenticate"] == "Token"


def test_reading_is_not_enough_to_analyze(member: User) -> None:
    for client in (_api(member, Scope.READ), _api(make_viewer("vera"))):
        answer = client.post("/analyze", {"model_name": "bert"}, format="json")
        assert (answer.status_code, list(answer.json())) == (403, ["error"])


def test_a_failed_analysis_is_a_422_with_its_reason(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(owner: User, _fields: object, **_: object) -> Analysis:
        return make_analysis(owner, Status.FAILED, failure_reason="It does not fit.")

    monkeypatch.setattr(services, "submit", submit)
    answer = api.post("/analyze", {"model_name": "bert"}, format="json")
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("It does not fit. See http://testserver/")


def test_what_takes_too_long_goes_on_and_is_named(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_service, "WAIT_SECONDS", 0.0)
    answer = api.post("/analyze", {"model_name": "bert"}, format="json")

    assert (answer.status_code, answer["Retry-After"]) == (503, "30")
    assert f"/{Analysis.objects.get().pk}/" in answer.json()["error"]


@pytest.mark.parametrize("status", [Status.QUEUED, Status.RUNNING])
def test_sent_again_it_waits_for_the_analysis_that_runs(
    api: APIClient, monkeypatch: pytest.MonkeyPatch, status: Status
) -> None:
    monkeypatch.setattr(first_service, "WAIT_SECONDS", 0.0)
    first = api.post("/analyze", {"model_name": "bert"}, format="json")
    Analysis.objects.update(status=status)
    again = api.post("/analyze", {"model_name": "bert", "gpu": "a10"}, format="json")
    assert (again.status_code, again.json()) == (503, first.json())
    assert Analysis.objects.count() == 1


@pytest.mark.parametrize("status", [Status.CANCELLING, Status.CANCELLED, Status.FAILED])
def test_sent_again_after_it_has_ended_it_runs_anew(
    api: APIClient, monkeypatch: pytest.MonkeyPatch, status: Status
) -> None:
    monkeypatch.setattr(first_service, "WAIT_SECONDS", 0.0)
    api.post("/analyze", {"model_name": "bert"}, format="json")
    Analysis.objects.update(status=status)
    api.post("/analyze", {"model_name": "bert"}, format="json")
    assert Analysis.objects.count() == 2


def test_another_request_or_member_has_an_analysis_of_its_own(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_service, "WAIT_SECONDS", 0.0)
    api.post("/analyze", {"model_name": "bert"}, format="json")
    api.post("/analyze", {"model_name": "bert", "current_batch_size": 32}, format="json")
    _api(make_user("ada")).post("/analyze", {"model_name": "bert"}, format="json")
    assert Analysis.objects.count() == 3


def test_models_are_listed_in_the_first_services_fields(api: APIClient) -> None:
    (bert,) = [one for one in api.get("/models").json()["models"] if one["id"] == "bert"]

    assert bert["name"] == "BERT base"
    assert bert.keys() == {"id", "name", "type", "hub_id", "description"}
    json.dumps(bert)


def test_a_browser_gets_the_page_of_models(client: Client, member: User) -> None:
    client.force_login(member)
    answer = client.get("/models", headers={"Accept": "text/html,*/*;q=0.8"}, follow=True)
    assert answer.redirect_chain == [("/models/", 302)]
    assert answer.status_code == 200


@pytest.mark.usefixtures("db")
def test_health_needs_no_token_and_serves_both() -> None:
    body = APIClient().get("/health").json()
    assert body.keys() >= {"status", "gpu_available", "device", "time", "queue", "problems"}
