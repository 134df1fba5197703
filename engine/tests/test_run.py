"""The protocol between the engine and the program that starts it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from engine import analysis as analyze_module
from engine.events import Event, Log
from engine.request import AnalysisRequest
from engine.run import run

REQUEST = {"model": "bert", "gpu": "a10", "current_batch_size": 8, "sequence_length": 16}


def events_of(line: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit status and the events for one line, asked by a parent that keeps its pipe open."""
    output = io.StringIO()
    reading, writing = os.pipe()
    os.write(writing, line.encode())
    # The pipe's ends stay open until the tests end: closing one would end this process.
    status = run(os.fdopen(reading, encoding="utf-8", closefd=False), output)
    return status, [json.loads(event) for event in output.getvalue().splitlines()]


def test_an_analysis_ends_with_its_result() -> None:
    status, events = events_of(json.dumps(REQUEST) + "\n")
    assert status == 0
    assert {event["type"] for event in events[:-1]} == {"log", "trial"}
    assert events[-1]["type"] == "result"
    result = events[-1]["result"]
    trials = [event["trial"] for event in events if event["type"] == "trial"]
    assert result["trials"] == trials
    assert result["workload"]["model"] == "bert"
    assert result["current_batch_size"] == 8


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ('{"model": "bert"}\n', {"gpu"}),
        ('{"model": "bert", "gpu": "x", "current_batch_size": 0}\n', {"gpu", "current_batch_size"}),
        ("not json\n", {"request"}),
        ("[1, 2]\n", {"request"}),
        ("\n", {"request"}),
    ],
)
def test_invalid_input_is_told_by_field(line: str, fields: set[str]) -> None:
    status, events = events_of(line)
    assert status == 2
    assert [event["type"] for event in events] == ["error"]
    assert events[0]["code"] == "invalid_input"
    assert set(events[0]["fields"]) == fields


def test_a_workload_that_does_not_fit_is_told_in_words() -> None:
    status, events = events_of(json.dumps(REQUEST | {"memory_limit_bytes": 2**29}) + "\n")
    assert status == 1
    assert events[-1]["code"] == "does_not_fit"
    assert "does not fit" in events[-1]["message"]


def test_a_failure_nobody_expected_is_told_and_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(request: AnalysisRequest, emit: Any) -> Event:
        emit(Log("so far so good"))
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(analyze_module, "analyze", fail)
    status, events = events_of(json.dumps(REQUEST) + "\n")
    assert status == 1
    assert [event["type"] for event in events] == ["log", "error"]
    assert events[-1]["message"] == "the engine failed: ZeroDivisionError: by zero"
    assert "Traceback" in capsys.readouterr().err


def engine() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "engine", "run"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )


def test_a_process_that_is_never_asked_ends_quietly() -> None:
    output, errors = engine().communicate(timeout=60)
    assert (output, errors) == ("", "")


def test_a_process_nobody_waits_for_any_more_ends_itself() -> None:
    with engine() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(REQUEST | {"model": "gpt2"}) + "\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdin.close()
        assert process.wait(timeout=10) == 1
        assert '"result"' not in process.stdout.read()
