from __future__ import annotations

import html
import json
import platform
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from pytest_django.live_server_helper import LiveServer
from rest_framework.test import APIClient

from analyses import services
from analyses.jobs import plans
from analyses.jobs.lifecycle import move
from analyses.models import (
    Analysis,
    CountedSavings,
    Job,
    QueryKind,
    RunSavings,
    Status,
    Training,
)
from analyses.savings.breakdown import Total, totals
from analyses.selectors import savings_visible_to
from analyses.stored_result import result_columns
from analyses.tests.factories import (
    make_analysis,
    make_global_batch,
    make_request,
    make_result,
    make_training,
    make_user,
)
from analyses.tests.query_answers import answer_next, plan_with_answers
from analyses.training_runs.services import store_report, why_not_verified
from analyses.training_runs.side_by_side import side_by_side
from engine.answer.amounts import trial_at
from engine.core.choices import Precision
from engine.core.numbers import significant
from engine.core.sizes import gib_number
from engine.interface.request import AnalysisRequest
from engine.interface.result import Source
from engine.interface.workload import Workload
from engine.recording import Loop, TrainingRecord
from memorymark_site.accounts import tokens
from memorymark_site.accounts.models import ApiToken, Scope

pytestmark = pytest.mark.database

URL = "/api/v1/trainings/"
PARAMETERS = next(
    trial.breakdown["parameters"] for trial in make_result().trials if trial.breakdown
)
"""Bytes of the model's in :func:`make_result`."""


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
        ({"model_name": "gpt2"}, "it trained gpt2, not BERT base"),
        ({"model_name": "Net", "parameter_bytes": 40_000}, "its model has <0.01 GiB of parameters"),
        ({"versions": {"torch": "2.11.0+cu130"}}, "it trained with torch 2.11.0+cu130"),
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
        {"model_name": "bert-base-uncased"},
        {"model_name": "MyModule", "parameter_bytes": PARAMETERS},
        {"parameter_bytes": PARAMETERS * 103 // 100},  # another number of labels
        {"versions": {"torch": "2.13.1+cu130", "transformers": "5.23.0", "python": "3.12"}},
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
    result = make_result(software={"torch": "2.13.0", "peft": "0.17.0"})
    return why_not_verified(request, "", result, _record(**changes))


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


# The top of the page


def _page(client: Client, member: User, analysis: Analysis) -> str:
    client.force_login(member)
    return " ".join(client.get(f"/{analysis.pk}/").content.decode().split())


def test_the_top_of_the_page_says_how_the_prediction_came_true(
    client: Client, api: APIClient, member: User, analysis: Analysis
) -> None:
    _reported(api, analysis)
    trial = trial_at(make_result(), 128)
    assert trial is not None

    page = _page(client, member, analysis)
    expected = significant(trial.samples_per_second)
    reserved = gib_number(trial.peak_reserved_bytes, 1)
    assert (
        f"Verified: measured 365 against {expected} samples/s predicted, "
        f"10.7 against {reserved} GiB reserved."
    ) in page
    assert page.index("Verified: measured") < page.index("Copy config</a>")


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({"batch_size": 64}, "it trained with batch 64, not 128"),
        ({"device_name": "NVIDIA H100 80GB HBM3"}, "it trained on NVIDIA H100 80GB HBM3"),
        ({"precision": "bf16-mixed"}, "it trained in bf16-mixed, not fp32"),
        ({"model_name": "gpt2"}, "it trained gpt2, not BERT base"),
    ],
)
def test_the_top_of_the_page_says_which_condition_a_run_missed(
    client: Client,
    api: APIClient,
    member: User,
    analysis: Analysis,
    changes: dict[str, Any],
    missed: str,
) -> None:
    _reported(api, analysis, **changes)

    page = _page(client, member, analysis)
    assert f"Not verified by the last run: {missed}." in page
    assert "Verified:" not in page


def test_a_toy_on_a_cpu_does_not_stand_beside_the_prediction(
    client: Client, api: APIClient, member: User, analysis: Analysis
) -> None:
    toy = {"device": "cpu", "device_name": "CPU (x86_64)", "model_name": "Linear"}
    _reported(api, analysis, **toy)
    analysis.refresh_from_db()

    found = side_by_side(analysis)
    assert found is not None
    assert [row.training for row in found.rows] == [None]
    assert [other.why for other in found.others] == ["it trained on CPU (x86_64)"]
    page = _page(client, member, analysis)
    assert "Reported here, but not counted:" in page


# From a training job or a file to the page


def test_the_lines_of_the_page_and_nothing_else_bring_the_run_to_its_prediction(
    live_server: LiveServer,
    client: Client,
    member: User,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    cpu = f"CPU ({platform.processor() or platform.machine()})"
    request = make_request(gpu="local", current_batch_size=16)
    result = replace(
        make_result(source=Source.MEASURED), workload=Workload("bert", precision=Precision.FP32)
    )
    analysis = make_analysis(member, Status.SUCCEEDED, result, request=request, measured_gpu=cpu)
    page = client_page(client, member, analysis)
    lines = re.search(r'id="config-3">(.*?)</code>', page, re.DOTALL)
    variables = re.search(r'id="config-variables">(.*?)</code>', page, re.DOTALL)
    assert lines
    assert variables
    assert "export MEMORYMARK_URL=http://testserver" in variables[1]
    monkeypatch.setenv("MEMORYMARK_URL", live_server.url)
    token = tokens.create(member, "training", Scope.WRITE, 7)[1]
    monkeypatch.setenv("MEMORYMARK_TOKEN", token)
    monkeypatch.setenv("MEMORYMARK_OUTBOX", str(tmp_path))
    config = transformers.BertConfig(
        vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    sample = {"input_ids": torch.zeros(4, dtype=torch.long), "labels": torch.tensor(0)}
    script = html.unescape(lines[1]).replace("memorymark.", "engine.")
    names = {
        "torch": torch,
        "model": transformers.AutoModelForSequenceClassification.from_config(config),
        "dataset": [sample] * (128 * 8),
        "DataLoader": torch.utils.data.DataLoader,
    }
    exec(script, names)  # noqa: S102  # as it is pasted

    run = Training.objects.get()
    assert run.analysis == analysis
    assert (run.batch_size, run.record["model_name"]) == (128, "bert")
    assert "Not verified by the last run: its model has" in _page(client, member, analysis)


def test_other_members_read_lines_that_write_a_file(client: Client, analysis: Analysis) -> None:
    page = client_page(client, make_user("eve"), analysis)

    assert "to_lab" not in page
    assert 'to_file("training_runs.jsonl")' in html.unescape(page)
    assert "upload-runs" not in page


def client_page(client: Client, member: User, analysis: Analysis) -> str:
    client.force_login(member)
    return client.get(f"/{analysis.pk}/").content.decode()


def _file(*records: TrainingRecord) -> SimpleUploadedFile:
    text = "".join(json.dumps(record.to_dict()) + "\n" for record in records)
    return SimpleUploadedFile("training_runs.jsonl", text.encode())


def _upload(client: Client, analysis: Analysis, file: SimpleUploadedFile) -> str:
    answer = client.post(f"/{analysis.pk}/training-runs/", {"file": file}, follow=True)
    return " ".join(answer.content.decode().split())


def test_a_file_is_uploaded_to_the_page_and_its_runs_stand_there(
    client: Client, member: User, analysis: Analysis
) -> None:
    client.force_login(member)
    other = make_analysis(member, Status.SUCCEEDED)
    runs = (_record(), _record(steps=101, analysis_id=other.pk))
    page = _upload(client, analysis, _file(*runs))

    assert "2 training runs added." in page
    assert f"Some name another analysis and are there: #{other.pk}." in page
    assert "Verified: measured 365" in page
    assert Training.objects.get(analysis=other).verifies
    page = _upload(client, analysis, _file(*runs))
    assert "0 training runs added. 2 had been reported before." in page
    assert Training.objects.count() == 2


def test_a_run_reported_without_an_analysis_finds_it_later(
    client: Client, api: APIClient, member: User, analysis: Analysis
) -> None:
    record = _record()
    api.post(URL, _report(record, id=record.id), format="json")
    named = _report(replace(record, analysis_id=analysis.pk), id=record.id)

    answer = api.post(URL, named, format="json")
    assert (answer.status_code, answer.json()["verifies"]) == (200, True)
    assert Training.objects.get().analysis == analysis
    elsewhere = make_analysis(member, Status.SUCCEEDED)
    again = _report(replace(record, analysis_id=elsewhere.pk), id=record.id)
    assert api.post(URL, again, format="json").status_code == 409  # it stays where it is


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b"{}", b"[" * 100_000, b"\0", b'{"batch_size": 1e999}'],
)
def test_a_file_that_is_no_recording_adds_nothing(
    client: Client, member: User, analysis: Analysis, content: bytes
) -> None:
    client.force_login(member)
    page = _upload(client, analysis, SimpleUploadedFile("runs.jsonl", content))

    assert "Nothing was added: " in page or "Choose a file" in page
    assert not Training.objects.exists()


def test_a_file_with_one_wrong_run_adds_nothing(
    client: Client, member: User, analysis: Analysis
) -> None:
    client.force_login(member)
    foreign = make_analysis(make_user("eve"), Status.SUCCEEDED)
    page = _upload(client, analysis, _file(_record(), _record(steps=109, analysis_id=foreign.pk)))

    assert f"you have no analysis {foreign.pk}" in page
    assert not Training.objects.exists()


def test_runs_of_other_models_that_verified_before_do_so_no_more(member: User) -> None:
    migration = import_module("analyses.migrations.0045_runs_of_other_models")
    right, mixed, wrong = (
        make_analysis(member, Status.SUCCEEDED, workload_key=key) for key in "abc"
    )
    for analysis in (right, mixed, wrong):
        services.adopt(analysis, member)
    for analysis in (mixed, wrong):
        run = make_training(analysis)
        Training.objects.filter(pk=run.pk).update(record=run.record | {"model_name": "gpt2"})
    kept = [make_training(analysis).pk for analysis in (right, mixed)]

    migration.hold_against_models(apps, None)
    assert (
        list(Training.objects.filter(verifies=True).order_by("pk").values_list("pk", flat=True))
        == kept
    )
    assert set(RunSavings.objects.values_list("training", flat=True)) == set(kept)
    verified_ones = CountedSavings.objects.filter(is_verified=True)
    assert set(verified_ones.values_list("analysis", flat=True)) == {right.pk, mixed.pk}


def test_a_run_as_recommended_before_verifies_no_decision_that_came_later(
    member: User, analysis: Analysis
) -> None:
    plans.submit(member, QueryKind.PLAN, plans.plan_request(analysis))
    run, _ = store_report(member, _report(_record(analysis_id=analysis.pk)))
    assert run.verifies
    answer_next(QueryKind.PLAN, plan_with_answers())
    assert not Training.objects.get(pk=run.pk).verifies
