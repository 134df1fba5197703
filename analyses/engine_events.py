"""Reads what the engine writes: the other end of :mod:`engine.events`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from analyses.stored_result import read_result, read_trial
from engine.errors import InvalidInput
from engine.events import Answer, Log
from engine.result import AnalysisResult, Trial


@dataclass(frozen=True)
class Failure:
    """The engine's reason for giving no answer; ``fields`` has a message for each wrong one."""

    code: str
    message: str
    fields: Mapping[str, str] = field(default_factory=dict)


Event = Log | Trial | AnalysisResult | Answer | Failure


def parse(line: str) -> Event | None:
    """The event on one line of the engine's output.

    Returns:
        ``None`` where the line is no event: a library has printed something.
    """
    try:
        return _event(json.loads(line, parse_constant=_refuse))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidInput):
        return None


def _event(body: dict[str, Any]) -> Event | None:
    match body["type"]:
        case "log":
            level = "warning" if body["level"] == "warning" else "info"
            return Log(storable(str(body["message"])), level)
        case "trial":
            return read_trial(body["trial"])
        case "result":
            return read_result(body["result"])
        case "answer":
            return Answer(_object(body["answer"]))
        case "error":
            wrong = _object(body.get("fields", {})).items()
            fields = {storable(str(name)): storable(str(text)) for name, text in wrong}
            return Failure(str(body["code"])[:40], storable(str(body["message"])), fields)
    return None


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.40} is no object")
    return value


def storable(text: str) -> str:
    """The text without what a database refuses: NUL, and halves of surrogate pairs."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON, and a database would refuse it")
