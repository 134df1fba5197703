"""How runs come to the page of their analysis: by the lines that it prints, or by a file."""

from __future__ import annotations

import html
import json
import platform
import re
from dataclasses import replace
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from pytest_django.live_server_helper import LiveServer
from rest_framework.test import APIClient

from analyses.models import (
    Analysis,
    Status,
    TrainingRun,
)
from analyses.tests.factories import (
    make_analysis,
    make_request,
    make_result,
    make_user,
)
from analyses.training_runs.tests.recorded_runs import recorded_run, report_of
from engine.core.choices import Precision
from engine.interface.trial import Source
from engine.interface.workload import Workload
from engine.recording import TrainingRecord
from memorymark_site.accounts import tokens
from memorymark_site.accounts.models import Scope

pytestmark = pytest.mark.database

URL = "/api/v1/trainings/"


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

    run = TrainingRun.objects.get()
    assert run.analysis == analysis
    assert (run.batch_size, run.record["model_name"]) == (128, "bert")
    assert "Not verified by the last run: its model has" in " ".join(
        client_page(client, member, analysis).split()
    )


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
    runs = (recorded_run(), recorded_run(steps=101, analysis_id=other.pk))
    page = _upload(client, analysis, _file(*runs))

    assert "2 training runs added." in page
    assert f"Some name another analysis and are there: #{other.pk}." in page
    assert "Verified: measured 365" in page
    assert TrainingRun.objects.get(analysis=other).verifies
    page = _upload(client, analysis, _file(*runs))
    assert "0 training runs added. 2 had been reported before." in page
    assert TrainingRun.objects.count() == 2


def test_a_run_reported_without_an_analysis_finds_it_later(
    client: Client, member: User, analysis: Analysis
) -> None:
    api, record = APIClient(), recorded_run()
    api.force_authenticate(member)
    api.post(URL, report_of(record, id=record.id), format="json")
    named = report_of(replace(record, analysis_id=analysis.pk), id=record.id)

    answer = api.post(URL, named, format="json")
    assert (answer.status_code, answer.json()["verifies"]) == (200, True)
    assert TrainingRun.objects.get().analysis == analysis
    elsewhere = make_analysis(member, Status.SUCCEEDED)
    again = report_of(replace(record, analysis_id=elsewhere.pk), id=record.id)
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
    assert not TrainingRun.objects.exists()


def test_a_file_with_one_wrong_run_adds_nothing(
    client: Client, member: User, analysis: Analysis
) -> None:
    client.force_login(member)
    foreign = make_analysis(make_user("eve"), Status.SUCCEEDED)
    page = _upload(
        client, analysis, _file(recorded_run(), recorded_run(steps=109, analysis_id=foreign.pk))
    )

    assert f"you have no analysis {foreign.pk}" in page
    assert not TrainingRun.objects.exists()
