from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from engine.cli.main import BAD_INPUT, FAILED, OK, main
from engine.client import ImportedJobs, Lab, LabError
from engine.client.lab import JOBS_AT_ONCE
from engine.client.tests.fake_lab import FakeLab
from engine.jobs.record import MAX_TEXT, JobRecord, Reporter
from engine.jobs.tests.slurm_output import TABLE

TAKEN = {"new": 3, "updated": 0, "unchanged": 0, "refused": []}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLab]:
    with FakeLab() as server:
        monkeypatch.setenv("MEMORYMARK_URL", server.url)
        monkeypatch.setenv("MEMORYMARK_TOKEN", "mm_token")
        yield server


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "sacct.txt"
    path.write_text(TABLE)
    return str(path)


def _printed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["import", *words, "--dry-run"]) == OK
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_the_jobs_of_a_file_are_sent_together(
    server: FakeLab, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.respond((200, TAKEN))
    assert main(["import", "slurm", file]) == OK
    (request,) = server.requests
    assert request.path == "/api/v1/training-jobs/"
    assert [job["id"] for job in request.body["jobs"]] == ["della/100", "della/101_1", "della/105"]
    assert "imported 3 jobs with GPUs: 3 new" in capsys.readouterr().err


def test_a_refused_job_is_told_and_fails_the_command(
    server: FakeLab, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = [{"number": 0, "id": "della/100", "errors": {"user": ["ada is another member"]}}]
    server.respond((200, TAKEN | {"new": 2, "refused": refused}))
    assert main(["import", "slurm", file]) == FAILED
    told = capsys.readouterr().err
    assert "the lab refused della/100: user: ada is another member" in told
    assert "imported 2 jobs with GPUs: 2 new, 0 updated, 0 as before; refused 1" in told


def test_a_dry_run_needs_no_lab(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MEMORYMARK_URL", raising=False)
    assert len(_printed(capsys, "slurm", file)) == 3


def test_output_is_read_from_stdin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(TABLE))
    assert len(_printed(capsys, "slurm", "-")) == 3


def test_gpus_are_named_by_hand_where_the_site_names_them_otherwise(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = _printed(capsys, "slurm", file, "--gpu", "A100=a100-80gb", "--gpu", "gpu=v100-32gb")
    assert [job["device_name"] for job in jobs] == ["a100-80gb", "v100-32gb", "h100"]


def test_only_jobs_since_then_are_sent(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _printed(capsys, "slurm", file, "--since", "0.001") == []
    assert len(_printed(capsys, "slurm", file, "--since", "3000")) == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["slurm", "/no/such/file"], "FILE: /no/such/file cannot be read"),
        (["slurm", "{file}", "--since", "soon"], "--since: enter days"),
        (["slurm", "{file}", "--since", "0"], "--since: enter days"),
        (["slurm", "{file}", "--since", "nan"], "--since: enter days"),
        (["slurm", "{file}", "--gpu", "a100="], "--gpu: 'a100=' names no GPU"),
        (["wandb", "nowhere"], "WHERE: nowhere is no folder"),
    ],
)
def test_bad_input_is_told_by_its_flag(
    file: str, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert main(["import", *(word.format(file=file) for word in words), "--dry-run"]) == BAD_INPUT
    assert told in capsys.readouterr().err


def test_without_a_token_nothing_is_read(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MEMORYMARK_URL", raising=False)
    monkeypatch.delenv("MEMORYMARK_TOKEN", raising=False)
    assert main(["import", "slurm", file]) == BAD_INPUT
    assert "MEMORYMARK_URL" in capsys.readouterr().err


def _jobs(count: int) -> list[JobRecord]:
    now = datetime(2026, 11, 1, tzinfo=UTC)
    return [
        JobRecord(
            reporter=Reporter.SLURM,
            id=f"{number}",
            user="ada",
            device_name="a10",
            gpus=1,
            started_at=now,
            ended_at=now,
            name="x\n" * MAX_TEXT,
        )
        for number in range(count)
    ]


def test_many_jobs_are_sent_in_several_requests_and_added_up(server: FakeLab) -> None:
    server.respond((200, TAKEN), (200, TAKEN | {"unchanged": 2}))
    found = Lab().import_jobs(_jobs(JOBS_AT_ONCE + 1))
    assert found == ImportedJobs(new=6, unchanged=2)
    assert [len(request.body["jobs"]) for request in server.requests] == [JOBS_AT_ONCE, 1]


def test_without_jobs_nothing_is_sent(server: FakeLab) -> None:
    assert Lab().import_jobs([]) == ImportedJobs()
    assert server.requests == []


def test_texts_are_cut_to_what_a_lab_takes() -> None:
    name = _jobs(1)[0].to_dict()["name"]
    assert len(name) == MAX_TEXT
    assert name.isprintable()


@pytest.mark.parametrize("body", [{}, {"new": 1}, [], {**TAKEN, "refused": [{}]}])
def test_another_answer_is_no_import(server: FakeLab, body: Any) -> None:
    server.respond((200, body))
    with pytest.raises(LabError, match="not of an import"):
        Lab().import_jobs(_jobs(1))
