"""Asks the benchmark's own processes: what the device is, what is predicted, a tool's search."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from engine.benchmarks.gpu.questions import Asked, Foreseen
from engine.benchmarks.gpu.results import Device, Search, device_of, search_of, trial_of
from engine.errors import MeasurementFailed
from engine.measurement.processes import run_together

_CHILD = [sys.executable, "-m", "engine.benchmarks.gpu.child"]


def ask_device(environment: Mapping[str, str], deadline_seconds: float, quick: bool) -> Device:
    """Where this is.

    Raises:
        MeasurementFailed: If the device does not answer.
    """
    return device_of(_ask("device", {"quick": quick}, environment, deadline_seconds))


def ask_foresee(asked: Asked, environment: Mapping[str, str], deadline_seconds: float) -> Foreseen:
    """What is predicted.

    Raises:
        MeasurementFailed: If it could not be.
    """
    answer = _ask("foresee", asdict(asked), environment, deadline_seconds)
    return Foreseen(answer["largest"], [trial_of(trial) for trial in answer["trials"]])


def ask_search(
    row: Search, fields: Mapping[str, Any], environment: Mapping[str, str], deadline_seconds: float
) -> Search:
    """A tool's search.

    Args:
        row: Says which, of what, at what capacity.
        fields: Of the workload.
        environment: Of the process.
        deadline_seconds: How long it may take.

    Raises:
        OutOfTime: If it took longer.
        MeasurementFailed: If it failed.
    """
    order = {
        "tool": row.tool,
        "workload": row.workload,
        "limit_bytes": row.limit_bytes,
        "fields": dict(fields),
    }
    return search_of(_ask("search", order, environment, deadline_seconds))


def _ask(
    what: str, order: object, environment: Mapping[str, str], deadline_seconds: float
) -> dict[str, Any]:
    end = run_together(
        [*_CHILD, what], [json.dumps(order)], environment, max(deadline_seconds, 0.0)
    )[0]
    if end.status != 0:
        raise MeasurementFailed(f"the {what} failed: {end.last_words or 'without a word'}")
    answer: dict[str, Any] = json.loads(end.answer)
    return answer
