"""The record of a training run: it survives JSON, and invalid ones are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import InvalidInput
from engine.recording import Loop, TrainingRecord, to_file

RECORD = TrainingRecord(
    batch_size=16,
    steps=100,
    samples=3200,
    warm_up_steps=5,
    timed_steps=90,
    device="cuda",
    device_name="NVIDIA A10",
    device_total_bytes=23_696_769_024,
    started_at="2026-01-31T12:00:00+00:00",
    ended_at="2026-01-31T12:01:00+00:00",
    loop=Loop.TRAINER,
    gradient_accumulation=2,
    step_seconds=0.5,
    step_seconds_low=0.4,
    step_seconds_high=0.6,
    samples_per_second=64.0,
    peak_allocated_bytes=2**30,
    peak_reserved_bytes=2**31,
    versions={"torch": "2.13.0"},
    analysis_id=45,
)


def _without(name: str) -> dict[str, object]:
    return {key: value for key, value in RECORD.to_dict().items() if key != name}


def test_a_record_survives_json() -> None:
    assert TrainingRecord.parse(json.loads(json.dumps(RECORD.to_dict()))) == RECORD


def test_a_run_without_a_timed_step_has_no_times() -> None:
    none: dict[str, Any] = dict.fromkeys(
        ("step_seconds", "step_seconds_low", "step_seconds_high", "samples_per_second")
    )
    short = replace(RECORD, steps=3, timed_steps=0, **none)
    assert TrainingRecord.parse(short.to_dict()) == short


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("batch_size", 0, "enter a whole number from 1"),
        ("batch_size", None, "enter a whole number from 1"),
        ("batch_size", 1.5, "enter a whole number from 1"),
        ("gradient_accumulation", "many", "enter a whole number"),
        ("steps", -1, "enter a whole number from 0"),
        ("step_seconds", "fast", "enter a number from 0"),
        ("step_seconds", float("nan"), "enter a number from 0"),
        ("samples_per_second", -1.0, "enter a number from 0"),
        ("peak_allocated_bytes", 2**60, "enter a whole number"),
        ("device", "abacus", "choose one of cuda, cpu, mps"),
        ("device_name", "", "at most 500 characters"),
        ("model_name", "x" * 501, "at most 500 characters"),
        ("precision", "fp32\n", "at most 500 characters"),
        ("loop", "keras", "choose one of plain, trainer, lightning"),
        ("interrupted", 1, "neither true nor false"),
        ("interrupted", "no", "neither true nor false"),
        ("versions", ["torch"], "enter at most 32 names and versions"),
        ("versions", {"torch": 2}, "enter at most 32 names and versions"),
        ("versions", {f"p{n}": "1" for n in range(33)}, "at most 32"),
        ("started_at", "yesterday", "is not a UTC time"),
        ("started_at", 1_700_000_000, "is not a UTC time"),
        ("ended_at", "2026-01-31T12:00:00", "is not a UTC time"),
        ("ended_at", "2026-01-31T12:00:00+02:00", "is not a UTC time"),
        ("analysis_id", 0, "enter a whole number from 1"),
        ("schema_version", 2, "'2' is not known here, only 1"),
        ("schema_version", None, "is not known here"),
        ("colour", "red", "unknown field; known are analysis_id,"),
    ],
)
def test_an_invalid_field_is_named_with_what_to_enter(
    field: str, value: object, message: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        TrainingRecord.parse(RECORD.to_dict() | {field: value})
    assert list(refusal.value.fields) == [field]
    assert message in refusal.value.fields[field]


@pytest.mark.parametrize("field", ["batch_size", "started_at", "loop", "schema_version"])
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        TrainingRecord.parse(_without(field))
    assert refusal.value.fields == {field: "is missing"}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"timed_steps": 96}, "timed_steps"),
        ({"timed_steps": 0}, "step_seconds"),
        ({"step_seconds": None}, "step_seconds"),
        ({"samples_per_second": None}, "step_seconds"),
        ({"step_seconds_high": None}, "step_seconds_low"),
        ({"step_seconds": 0.7}, "step_seconds"),
        ({"peak_reserved_bytes": 2**29}, "peak_reserved_bytes"),
        ({"ended_at": "2026-01-31T11:00:00+00:00"}, "ended_at"),
    ],
)
def test_contradictory_numbers_are_refused(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        TrainingRecord.parse(RECORD.to_dict() | changes)
    assert field in refusal.value.fields


def test_all_invalid_fields_are_named_together() -> None:
    with pytest.raises(InvalidInput) as refusal:
        TrainingRecord.parse(RECORD.to_dict() | {"batch_size": 0, "loop": "", "versions": 1})
    assert refusal.value.fields.keys() == {"batch_size", "loop", "versions"}


def test_times_in_utc_compare_as_text() -> None:
    zulu = TrainingRecord.parse(RECORD.to_dict() | {"ended_at": "2026-01-31T12:01:00Z"})
    assert zulu.ended_at == RECORD.ended_at == "2026-01-31T12:01:00.000000+00:00"


def test_records_are_lines_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "training_runs.jsonl"
    sink = to_file(path)
    sink(RECORD)
    to_file(path)(replace(RECORD, batch_size=32, samples=6400))
    lines = path.read_text().splitlines()
    read = [TrainingRecord.parse(json.loads(line)) for line in lines]
    assert [record.batch_size for record in read] == [16, 32]


def test_a_relative_path_is_fixed_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sink = to_file("training_runs.jsonl")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    sink(RECORD)
    assert (tmp_path / "training_runs.jsonl").read_text()


def test_an_unwritable_path_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Is a directory"):
        to_file(tmp_path)


def test_reading_records_needs_no_torch() -> None:
    code = (
        "import sys, engine.recording; "
        "sys.exit(bool({'torch', 'transformers', 'lightning', 'django'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_script_of_a_run_is_in_its_record_and_changes_no_other_id() -> None:
    named = replace(RECORD, program="train.py", program_hash="3f" * 32)

    assert TrainingRecord.parse(named.to_dict()) == named
    assert "program_hash" not in RECORD.to_dict()  # records of older versions keep their ids
    assert named.id != RECORD.id
