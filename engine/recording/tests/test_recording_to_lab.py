from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.cli.main import main
from engine.client import Lab, Misconfigured
from engine.client.tests.fake_lab import FakeLab
from engine.core.errors import EngineError
from engine.recording import Loop, TrainingRecord, to_file, to_lab

RECORD = TrainingRecord(
    batch_size=16,
    steps=2,
    samples=32,
    warm_up_steps=5,
    timed_steps=0,
    device="cpu",
    device_name="CPU (x86_64)",
    device_total_bytes=2**34,
    started_at="2026-03-01T12:00:00+00:00",
    ended_at="2026-03-01T12:30:00+00:00",
    loop=Loop.PLAIN,
    analysis_id=12,
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeLab]:
    monkeypatch.setenv("MEMORYMARK_OUTBOX", str(tmp_path / "outbox"))
    monkeypatch.setattr("engine.client.connection.FIRST_PAUSE_SECONDS", 0.01)
    with FakeLab() as server:
        monkeypatch.setenv("MEMORYMARK_URL", server.url)
        monkeypatch.setenv("MEMORYMARK_TOKEN", "mm_token")
        yield server


def test_a_record_is_reported_to_the_lab(server: FakeLab) -> None:
    server.respond((201, {"id": 3}))
    to_lab()(RECORD)

    (request,) = server.requests
    assert request.path == "/api/v1/trainings/"
    assert request.body["record"] == RECORD.to_dict()
    assert request.body["id"]


def test_a_record_for_an_unreachable_lab_is_sent_later(
    server: FakeLab, caplog: pytest.LogCaptureFixture
) -> None:
    server.respond((503, b""))
    with caplog.at_level(logging.WARNING):
        to_lab()(RECORD)
    assert "is waiting in" in caplog.text

    server.respond((201, {"id": 3}))
    assert len(Lab().send_outbox().answers) == 1


def test_a_refused_record_is_reported_with_its_path(server: FakeLab, tmp_path: Path) -> None:
    server.respond((400, {"record.analysis_id": ["you have no analysis 12"]}))

    with pytest.raises(EngineError, match="you have no analysis 12"):
        to_lab()(RECORD)
    assert len(list((tmp_path / "outbox" / "rejected").glob("*.json"))) == 1


def test_another_documents_refusal_is_not_reported_for_this_one(server: FakeLab) -> None:
    server.respond((503, b""))
    to_lab()(RECORD)
    server.respond((400, {"record": ["no"]}), (201, {"id": 4}))

    to_lab()(replace(RECORD, steps=3))


def test_a_run_has_one_id_whichever_analysis_it_names() -> None:
    assert replace(RECORD, analysis_id=None).id == RECORD.id
    assert replace(RECORD, steps=3).id != RECORD.id


def test_a_file_of_runs_is_pushed_and_each_names_its_analysis(
    server: FakeLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "training_runs.jsonl"
    for record in (RECORD, replace(RECORD, steps=3, analysis_id=None)):
        to_file(file)(record)
    server.respond((201, {"id": 4}), (201, {"id": 5}))

    assert main(["push", str(file), "--analysis", "145"]) == 0
    sent = [request.body["record"]["analysis_id"] for request in server.requests]
    assert sent == [12, 145]
    said = capsys.readouterr().err
    assert f"reported: {server.url}/12/\nreported: {server.url}/145/\nsent 2" in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "error: FILE: training_runs.jsonl has no record in it"),
        ('{"batch_size": 1', "error: FILE: training_runs.jsonl is not JSON"),
        ('{"batch_size": 1}', "error: FILE: training_runs.jsonl, record 1: "),
        ("[" * 100_000, "error: FILE: training_runs.jsonl is not JSON"),
    ],
)
def test_a_file_that_is_no_recording_is_refused_before_anything_is_sent(
    server: FakeLab, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    file = tmp_path / "training_runs.jsonl"
    file.write_text(text)

    assert main(["push", str(file)]) == 2
    assert message in capsys.readouterr().err
    assert not server.requests
    assert main(["push", "--analysis", "3"]) == 2
    assert "error: --analysis: " in capsys.readouterr().err


def test_missing_settings_are_reported_before_training(
    server: FakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MEMORYMARK_TOKEN")

    with pytest.raises(Misconfigured, match="MEMORYMARK_TOKEN"):
        to_lab()
