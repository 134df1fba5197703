from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.client import Lab, Misconfigured
from engine.core.errors import EngineError
from engine.recording import Loop, TrainingRecord, to_lab
from engine.tests.fake_lab import FakeLab

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

    to_lab()(RECORD)


def test_missing_settings_are_reported_before_training(
    server: FakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MEMORYMARK_TOKEN")

    with pytest.raises(Misconfigured, match="MEMORYMARK_TOKEN"):
        to_lab()
