"""The protocol between the engine and the program that starts it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from unittest.mock import patch

import pytest

from engine import analysis as analyze_module
from engine.core import process
from engine.events import Event, Log
from engine.gpus import GPUS
from engine.interface.first_request import FIRST_REQUEST
from engine.interface.request import AnalysisRequest
from engine.prediction.plans import model_ladder
from engine.prediction.plans.moves import moves_for
from engine.run import run
from engine.traces.trace_files import FOLDER_VARIABLE

pytestmark = pytest.mark.usefixtures("small_models", "kept_traces")

REQUEST = {"model": "bert", "gpu": "a10", "current_batch_size": 8, "sequence_length": 16}


class Waiting(SimpleQueue[str | None]):
    """The waiting requests; the parent's pipe closes when one more than these is read.

    Not earlier, as that would end the process: here, the one that runs these tests.
    """

    def __init__(self, pipe: int, count: int) -> None:
        super().__init__()
        self._pipe, self._left = pipe, count

    def get(self, block: bool = True, timeout: float | None = None) -> str | None:
        self._left -= 1
        if self._left == -1:
            os.close(self._pipe)
        return super().get(block, timeout)


def events_of(*lines: str, keep_traces: bool = False) -> list[dict[str, Any]]:
    """The events for some lines from a parent that keeps its pipe open until the last."""
    reading, writing = os.pipe()
    os.write(writing, "".join(lines).encode())
    output = io.StringIO()
    with (
        os.fdopen(reading, encoding="utf-8") as source,
        patch.object(process, "SimpleQueue", lambda: Waiting(writing, len(lines))),
    ):
        assert run(source, output, keep_traces=keep_traces) == 0
    return [json.loads(event) for event in output.getvalue().splitlines()]


def asking(request: dict[str, Any], **more: Any) -> str:
    return json.dumps({"request": request} | more) + "\n"


@pytest.mark.longer
def test_an_analysis_ends_with_its_result() -> None:
    events = events_of(asking(REQUEST))
    assert {event["type"] for event in events[:-1]} == {"log", "stage", "trial"}
    assert events[-1]["type"] == "result"
    result = events[-1]["result"]
    trials = [event["trial"] for event in events if event["type"] == "trial"]
    assert result["trials"] == trials
    assert result["workload"]["model"] == "bert"
    assert result["current_batch_size"] == 8


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (asking({"model": "bert"}), {"gpu"}),
        (
            asking({"model": "bert", "gpu": "x", "current_batch_size": 0}),
            {"gpu", "current_batch_size"},
        ),
        (asking(REQUEST, trials=[{"batch": 1}]), {"trials"}),
        (json.dumps(REQUEST) + "\n", {"request"}),
        (asking(REQUEST, ask="dance"), {"ask"}),
        (asking(REQUEST, ask=["predict"]), {"ask"}),
        (asking(REQUEST | {"gpu": "local"}, ask="predict"), {"gpu"}),
        ("not json\n", {"request"}),
        ("[1, 2]\n", {"request"}),
        ("\n", {"request"}),
    ],
)
def test_invalid_input_is_reported_by_field(line: str, fields: set[str]) -> None:
    events = events_of(line)
    assert [event["type"] for event in events] == ["error"]
    assert events[0]["code"] == "invalid_input"
    assert set(events[0]["fields"]) == fields


def test_a_workload_that_does_not_fit_is_reported_with_a_reason() -> None:
    events = events_of(asking(REQUEST | {"memory_limit_bytes": 2**28 + 2**21}))
    assert events[-1]["code"] == "does_not_fit"
    assert "does not fit" in events[-1]["message"]


def test_an_unexpected_failure_is_reported_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(request: AnalysisRequest, emit: Any, *known: Any) -> Event:
        emit(Log("so far so good"))
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(analyze_module, "analyze", fail)
    events = events_of(asking(REQUEST))
    assert [event["type"] for event in events] == ["log", "error"]
    assert events[-1]["message"] == "the engine failed: ZeroDivisionError: by zero"
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.longer
def test_the_engine_handles_one_request_after_another() -> None:
    other = REQUEST | {"current_batch_size": 0}
    events = events_of(asking(REQUEST), asking(other), asking(REQUEST))
    ends = [event["type"] for event in events if event["type"] in ("result", "error")]
    assert ends == ["result", "error", "result"]


@pytest.mark.longer
def test_known_trials_are_not_repeated() -> None:
    first = events_of(asking(REQUEST))
    trials = [event["trial"] for event in first if event["type"] == "trial"]
    again = events_of(asking(REQUEST, trials=trials))

    assert not [event for event in again if event["type"] == "trial"]
    assert again[-1]["result"]["trials"] == first[-1]["result"]["trials"]


@pytest.mark.parametrize("keep_traces", [False, True])
def test_a_prediction_equals_the_trial_of_an_analysis(keep_traces: bool) -> None:
    analysis, answer = (
        events_of(asking(REQUEST, ask=ask), keep_traces=keep_traces)[-1]
        for ask in ("analyze", "predict")
    )
    assert answer["type"] == "answer"
    assert answer["answer"]["trial"] == analysis["result"]["trials"][0]
    assert answer["answer"]["gpu"] == analysis["result"]["gpu"]
    told = analysis["result"]["caveats"]
    assert answer["answer"]["caveats"][0] == told[0]  # nothing was run
    assert "Assumes nothing else is using the GPU" in " ".join(answer["answer"]["caveats"])


def test_other_batch_sizes_and_gpus_reuse_the_traces() -> None:
    asked = [REQUEST, REQUEST | {"current_batch_size": 90}, REQUEST | {"gpu": "a100-80gb"}]
    lines = [asking(request, ask="predict") for request in asked]
    events = events_of(*lines, keep_traces=True)
    said = [event["message"] for event in events if event["type"] == "log"]
    answers = [event["answer"]["trial"] for event in events if event["type"] == "answer"]

    assert len([message for message in said if message.startswith("Traced")]) == 1, events
    assert [trial["batch_size"] for trial in answers] == [8, 90, 8]
    assert answers[0]["device_used_bytes"] < answers[1]["device_used_bytes"]


@pytest.mark.slow
def test_a_plan_has_every_gpu_and_reports_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_ladder, "moves_for", lambda *given: moves_for(*given)[:1])
    events = events_of(asking(REQUEST, ask="plan"))

    assert events[-1]["type"] == "answer"
    plan = events[-1]["answer"]
    assert {option["gpu"] for option in plan["options"]} == set(GPUS)
    found = [event["rung"] for event in events if event["type"] == "rung"]
    assert [rung["fields"] for rung in found[:2]] == [{}, {"precision": "tf32"}]
    assert plan["ladder"][0] == found[0]
    assert "Trying tf32" in [event.get("message") for event in events]


def engine() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "engine", "run"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )


@pytest.mark.longer
@pytest.mark.parametrize("is_busy", [False, True])
def test_an_engine_without_an_order_answers_what_the_form_offers_first(
    is_busy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr("engine.run.has_line", lambda _pipe: is_busy)
    events = events_of(asking(FIRST_REQUEST.to_dict()))
    assert events[-1]["type"] == "result"  # only of the order
    assert [event["type"] for event in events].count("result") == 1
    was_traced = any("traced before" in event.get("message", "") for event in events)
    assert was_traced is not is_busy


@pytest.mark.slow
def test_a_process_without_requests_ends_quietly() -> None:
    output, errors = engine().communicate(timeout=300)
    assert (output, errors) == ("", "")


@pytest.mark.slow
def test_a_process_whose_parent_is_gone_ends_itself() -> None:
    with engine() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(asking(REQUEST | {"model": "gpt2"}))
        process.stdin.flush()
        process.stdout.readline()
        process.stdin.close()
        assert process.wait(timeout=120) == 1
        assert '"result"' not in process.stdout.read()
