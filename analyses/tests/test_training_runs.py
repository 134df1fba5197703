from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from analyses import services
from analyses.jobs import plans
from analyses.jobs.lifecycle import move
from analyses.models import Analysis, Job, QueryKind, Status, Training
from analyses.savings.breakdown import Total, totals
from analyses.selectors import savings_visible_to
from analyses.stored_result import result_columns
from analyses.tests.factories import make_analysis, make_global_batch, make_result, make_user
from analyses.tests.query_answers import answer_next, plan_with_answers
from analyses.training_runs.services import store_report, why_not_verified
from analyses.training_runs.side_by_side import side_by_side
from engine.interface.request import AnalysisRequest
from engine.interface.result import Source
from engine.recording import Loop, TrainingRecord
from memorymark_site.accounts.models import ApiToken

pytestmark = pytest.mark.database

URL = "/api/v1/trainings/"


def _record(**changes: Any) -> TrainingRecord:
    return replace(
        TrainingRecord(
            batch_size=128,
            steps=100,
            samples=12_800,
            warm_up_steps=5,
            timed_steps=95,
            device="cuda",
            device_name="NVIDIA A10",
            device_total_bytes=23_696_375_808,
            started_at="2026-03-01T12:00:00+00:00",
            ended_at="2026-03-01T12:30:00+00:00",
            loop=Loop.TRAINER,
            step_seconds=0.35,
            step_seconds_low=0.34,
            step_seconds_high=0.37,
            samples_per_second=365.0,
            peak_allocated_bytes=11_000_000_000,
            peak_reserved_bytes=11_500_000_000,
            precision="fp32",
        ),
        **changes,
    )


def _report(record: TrainingRecord | None = None, **changes: Any) -> dict[str, Any]:
    report = {"id": str(uuid4()), "host": "node-3", "record": (record or _record()).to_dict()}
    return json.loads(json.dumps(report | changes))  # type: ignore[no-any-return]  # JSON is Any


def _api(member: User) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {ApiToken.objects.create(user=member)[1]}")
    return client


@pytest.fixture
def api(member: User) -> APIClient:
    return _api(member)


@pytest.fixture
def analysis(member: User) -> Analysis:
    return make_analysis(member, Status.SUCCEEDED)


# The rule


def test_a_training_run_as_recommended_verifies() -> None:
    assert _why_not() == ""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"batch_size": 64}, "batch 64, not 128"),
        ({"world_size": 2}, "2 devices, not 1"),
        ({"device_name": "NVIDIA H100 80GB HBM3"}, "NVIDIA H100"),
        ({"device": "cpu", "device_name": "CPU (x86_64)"}, "CPU"),
        ({"device_name": "some GPU"}, "some GPU"),
        ({"precision": "bf16-mixed"}, "bf16-mixed, not fp32"),
        (
            {
                "timed_steps": 0,
                "step_seconds": None,
                "step_seconds_low": None,
                "step_seconds_high": None,
                "samples_per_second": None,
            },
            "no step",
        ),
    ],
)
def test_any_other_training_run_does_not_verify(changes: dict[str, Any], reason: str) -> None:
    assert reason in _why_not(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"gradient_accumulation": 4},  # there was no global batch to keep
        {"precision": ""},
        {"precision": "16-true"},  # a framework's name, not one of ours
        {"device_name": "A10"},
        {"interrupted": True},
    ],
)
def test_settings_outside_the_analysis_do_not_matter(changes: dict[str, Any]) -> None:
    assert _why_not(**changes) == ""


@pytest.mark.parametrize(("accumulation", "verifies"), [(4, True), (1, False), (8, False)])
def test_the_global_batch_must_be_kept(accumulation: int, verifies: bool) -> None:
    result = replace(make_result(), global_batch=make_global_batch(512, accumulation=4))
    request = AnalysisRequest.parse({"model": "bert", "gpu": "a10", "global_batch_size": 512})
    record = _record(gradient_accumulation=accumulation)

    assert (why_not_verified(request, "", result, record) == "") == verifies


@pytest.mark.parametrize(
    ("measured_gpu", "trained_on", "verifies"),
    [
        ("NVIDIA A10", "NVIDIA A10", True),
        ("Radeon 7", "Radeon 7", True),
        ("Radeon 7", "NVIDIA A10", False),
        ("CPU (x86_64)", "CPU (x86_64)", True),
    ],
)
def test_a_measured_analysis_is_verified_on_its_gpu(
    measured_gpu: str, trained_on: str, verifies: bool
) -> None:
    request = AnalysisRequest.parse({"model": "bert", "gpu": "local"})
    record = _record(device_name=trained_on)

    assert (why_not_verified(request, measured_gpu, make_result(), record) == "") == verifies


def _why_not(**changes: Any) -> str:
    request = AnalysisRequest.parse({"model": "bert", "gpu": "a10"})
    return why_not_verified(request, "", make_result(), _record(**changes))


# The API


def test_a_training_run_is_stored_with_its_record(api: APIClient, analysis: Analysis) -> None:
    answer = api.post(URL, _report(_record(analysis_id=analysis.pk)), format="json")

    assert answer.status_code == 201
    assert answer.json()["verifies"]
    training = Training.objects.get()
    assert training.analysis == analysis
    assert training.record["steps"] == 100
    assert (training.batch_size, training.samples_per_second) == (128, 365.0)


def test_a_training_run_without_an_analysis_is_stored_too(api: APIClient) -> None:
    body = api.post(URL, _report(), format="json").json()

    assert (body["analysis"], body["verifies"]) == (None, False)
    assert api.get(URL).json()["count"] == 1


def test_the_same_report_twice_is_stored_once(api: APIClient) -> None:
    report = _report()

    assert api.post(URL, report, format="json").status_code == 201
    assert api.post(URL, report, format="json").status_code == 200
    other = report | {"host": "node-4"}
    assert api.post(URL, other, format="json").status_code == 409
    assert Training.objects.count() == 1


def test_a_member_cannot_take_over_anothers_report(api: APIClient) -> None:
    report = _report()
    api.post(URL, report, format="json")

    assert _api(make_user("eve")).post(URL, report, format="json").status_code == 409


def test_members_only_report_to_their_own_analyses(analysis: Analysis) -> None:
    report = _report(_record(analysis_id=analysis.pk))
    refused = _api(make_user("eve")).post(URL, report, format="json")

    assert refused.status_code == 400
    assert "you have no analysis" in refused.json()["errors"]["record.analysis_id"][0]
    assert (
        _api(make_user("boss", is_staff=True)).post(URL, report, format="json").status_code == 201
    )


def test_members_see_their_own_training_runs_and_admins_all(api: APIClient) -> None:
    api.post(URL, _report(), format="json")

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
        ({"record": _record().to_dict() | {"batch_size": 0}}, "record.batch_size"),
        ({"record": _record().to_dict() | {"schema_version": 9}}, "record.schema_version"),
        ({"record": _record().to_dict() | {"analysis_id": 999}}, "record.analysis_id"),
        ({"record": _record().to_dict() | {"model_name": "\ud800"}}, "record"),
        ({"record": _record().to_dict() | {"model_name": "\0"}}, "record"),
        ({"record": _record().to_dict() | {"step_seconds": 1e999}}, "record.step_seconds"),
    ],
)
def test_invalid_reports_are_refused_by_field(
    api: APIClient, changes: dict[str, Any], field: str
) -> None:
    body = json.dumps(_report() | changes)
    answer = api.post(URL, body, content_type="application/json")

    assert answer.status_code == 400
    assert field in answer.json().get("errors", {}) or "1e999" in body or "Infinity" in body
    assert not Training.objects.exists()


@pytest.mark.parametrize("body", [b"[]", b"null", b"{}", b"{", b"7"])
def test_garbage_is_a_400(api: APIClient, body: bytes) -> None:
    assert api.post(URL, body, content_type="application/json").status_code == 400


def test_deleting_an_analysis_keeps_its_training_runs(api: APIClient, analysis: Analysis) -> None:
    api.post(URL, _report(_record(analysis_id=analysis.pk)), format="json")
    analysis.delete()

    assert Training.objects.get().analysis is None


def test_a_report_that_comes_before_the_result_verifies_it_later(
    api: APIClient, member: User
) -> None:
    running = make_analysis(member, Status.RUNNING)
    body = api.post(URL, _report(_record(analysis_id=running.pk)), format="json").json()
    _reported(api, running, batch_size=64)
    assert body["verifies"] is False

    job = Job.objects.filter(analysis=running)
    move(job, Status.RUNNING, Status.SUCCEEDED, subject=result_columns(make_result()))
    services.adopt(Analysis.objects.get(pk=running.pk), member)
    _reported(api, running)  # counts once, whichever comes first

    assert Training.objects.get(pk=body["id"]).verifies
    assert Training.objects.filter(verifies=True).count() == 2
    assert verified(member).workloads == 1


def test_an_analysis_without_a_result_is_not_verified(api: APIClient, member: User) -> None:
    running = make_analysis(member, Status.RUNNING)
    _reported(api, running)
    move(Job.objects.filter(analysis=running), Status.RUNNING, Status.FAILED)

    assert not Training.objects.get().verifies


# Savings and pages


def verified(member: User) -> Total:
    return totals(savings_visible_to(member)).verified


def _reported(api: APIClient, analysis: Analysis, **changes: Any) -> None:
    report = _report(_record(analysis_id=analysis.pk, **changes))
    assert api.post(URL, report, format="json").status_code == 201


def test_realised_savings_are_verified_or_self_reported(
    client: Client, api: APIClient, member: User
) -> None:
    trained, said = (make_analysis(member, Status.SUCCEEDED, workload_key=key) for key in "ab")
    for analysis in (trained, said):
        services.adopt(analysis, member)
    for _ in range(2):  # the same analysis counts once
        _reported(api, trained)
    _reported(api, said, batch_size=64)

    found = verified(member)
    assert found.workloads == 1
    assert found.usd_per_year == pytest.approx(trained.usd_per_year)
    client.force_login(member)
    page = client.get("/savings/").content.decode()
    assert "in 1 workload, is confirmed by a recorded training run" in page
    assert page.count(">verified</span>") == 1
    lines = b"".join(client.get("/savings/analyses.csv").streaming_content).decode()  # type: ignore[attr-defined]  # of a streaming response, which the client's type leaves out
    assert [line.split(",")[7] for line in lines.splitlines()] == ["verified", "no", "yes"]


def test_only_realised_savings_are_shown_as_verified(client: Client, member: User) -> None:
    adopted, _ = (make_analysis(member, Status.SUCCEEDED, workload_key=key) for key in "ab")
    services.adopt(adopted, member)
    client.force_login(member)

    assert client.get("/savings/").content.decode().count("of it is confirmed") == 1


def test_an_analysis_not_adopted_is_not_verified(
    client: Client, api: APIClient, member: User, analysis: Analysis
) -> None:
    services.adopt(analysis, member)
    services.undo_adoption(analysis, member)
    _reported(api, analysis)
    client.force_login(member)

    assert verified(member).workloads == 0
    assert "Mark the analysis as adopted" in client.get(f"/{analysis.pk}/").content.decode()


def test_the_page_shows_predicted_measured_and_real_side_by_side(
    client: Client, api: APIClient, member: User
) -> None:
    result = make_result(source=Source.MEASURED)
    result = replace(result, curve=[replace(result.trials[-1], source=Source.PREDICTED)])
    analysis = make_analysis(member, Status.SUCCEEDED, result)
    services.adopt(analysis, member)
    _reported(api, analysis, batch_size=64)
    _reported(api, analysis)
    analysis.refresh_from_db()

    found = side_by_side(analysis)
    assert found is not None
    assert found.is_verified
    assert [(row.name, row.batch_size) for row in found.rows] == [
        ("Predicted", 128), ("Measured", 128), ("Training run", 128), ("Training run", 64),
    ]  # fmt: skip
    client.force_login(member)
    page = client.get(f"/{analysis.pk}/").content.decode()
    assert "Predicted vs. recorded" in page
    assert "grace on node-3, NVIDIA A10" in page


def test_without_training_runs_the_page_does_not_mention_them(
    client: Client, member: User, analysis: Analysis
) -> None:
    client.force_login(member)

    assert "Predicted vs. recorded" not in client.get(f"/{analysis.pk}/").content.decode()


def test_a_run_as_recommended_before_verifies_no_decision_that_came_later(
    member: User, analysis: Analysis
) -> None:
    plans.submit(member, QueryKind.PLAN, plans.plan_request(analysis))
    run, _ = store_report(member, _report(_record(analysis_id=analysis.pk)))
    assert run.verifies
    answer_next(QueryKind.PLAN, plan_with_answers())
    assert not Training.objects.get(pk=run.pk).verifies
