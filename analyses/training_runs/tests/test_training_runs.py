from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from analyses.models import Analysis, TrainingRun
from analyses.tests.factories import make_user
from analyses.training_runs.tests.recorded_runs import recorded_run, report_of
from memorymark_site.accounts.models import ApiToken

pytestmark = pytest.mark.database

URL = "/api/v1/trainings/"


def _api(member: User) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {ApiToken.objects.create(user=member)[1]}")
    return client


@pytest.fixture
def api(member: User) -> APIClient:
    return _api(member)


# The API


def test_a_training_run_is_stored_with_its_record(api: APIClient, analysis: Analysis) -> None:
    answer = api.post(URL, report_of(recorded_run(analysis_id=analysis.pk)), format="json")

    assert answer.status_code == 201
    assert answer.json()["verifies"]
    training = TrainingRun.objects.get()
    assert training.analysis == analysis
    assert training.record["steps"] == 100
    assert (training.batch_size, training.samples_per_second) == (128, 365.0)


def test_a_training_run_without_an_analysis_is_stored_too(api: APIClient) -> None:
    body = api.post(URL, report_of(), format="json").json()

    assert (body["analysis"], body["verifies"]) == (None, False)
    assert api.get(URL).json()["count"] == 1


def test_the_same_report_twice_is_stored_once(api: APIClient) -> None:
    report = report_of()

    assert api.post(URL, report, format="json").status_code == 201
    assert api.post(URL, report, format="json").status_code == 200
    other = report | {"host": "node-4"}
    assert api.post(URL, other, format="json").status_code == 409
    assert TrainingRun.objects.count() == 1


def test_a_member_cannot_take_over_anothers_report(api: APIClient) -> None:
    report = report_of()
    api.post(URL, report, format="json")

    assert _api(make_user("eve")).post(URL, report, format="json").status_code == 409


def test_members_only_report_to_their_own_analyses(analysis: Analysis) -> None:
    report = report_of(recorded_run(analysis_id=analysis.pk))
    refused = _api(make_user("eve")).post(URL, report, format="json")

    assert refused.status_code == 400
    assert "you have no analysis" in refused.json()["errors"]["record.analysis_id"][0]
    assert (
        _api(make_user("boss", is_staff=True)).post(URL, report, format="json").status_code == 201
    )


def test_members_see_their_own_training_runs_and_admins_all(api: APIClient) -> None:
    api.post(URL, report_of(), format="json")

    assert _api(make_user("eve")).get(URL).json()["count"] == 0
    assert _api(make_user("boss", is_staff=True)).get(URL).json()["count"] == 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"id": 7}, "id"),
        ({"host": ""}, "host"),
        ({"host": "x" * 300}, "host"),
        ({"colour": "red"}, "colour"),
        ({"record": []}, "record"),
        ({"record": {}}, "record.batch_size"),
        ({"record": recorded_run().to_dict() | {"batch_size": 0}}, "record.batch_size"),
        ({"record": recorded_run().to_dict() | {"schema_version": 9}}, "record.schema_version"),
        ({"record": recorded_run().to_dict() | {"analysis_id": 999}}, "record.analysis_id"),
        ({"record": recorded_run().to_dict() | {"model_name": "\ud800"}}, "record"),
        ({"record": recorded_run().to_dict() | {"model_name": "\0"}}, "record"),
        ({"record": recorded_run().to_dict() | {"step_seconds": 1e999}}, "record.step_seconds"),
    ],
)
def test_invalid_reports_are_refused_by_field(
    api: APIClient, changes: dict[str, Any], field: str
) -> None:
    body = json.dumps(report_of() | changes)
    answer = api.post(URL, body, content_type="application/json")

    assert answer.status_code == 400
    assert field in answer.json().get("errors", {}) or "1e999" in body or "Infinity" in body
    assert not TrainingRun.objects.exists()


@pytest.mark.parametrize("body", [b"[]", b"null", b"{}", b"{", b"7"])
def test_garbage_is_a_400(api: APIClient, body: bytes) -> None:
    assert api.post(URL, body, content_type="application/json").status_code == 400


def test_deleting_an_analysis_keeps_its_training_runs(api: APIClient, analysis: Analysis) -> None:
    api.post(URL, report_of(recorded_run(analysis_id=analysis.pk)), format="json")
    analysis.delete()

    assert TrainingRun.objects.get().analysis is None
