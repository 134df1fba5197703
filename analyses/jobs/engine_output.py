"""Parses an engine's output into events, and keeps a bounded amount until it is stored."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from analyses.bodies import storable
from analyses.jobs.engine_process import Line
from analyses.models import LogLine
from analyses.results.stored import read_result, read_trial
from engine.answer.ladder import Rung
from engine.core.border import read_json
from engine.core.errors import InvalidInput
from engine.events import Answer, Log, Stage
from engine.interface.result import AnalysisResult
from engine.interface.texts import TextResult
from engine.interface.trial import Trial

logger = logging.getLogger(__name__)

MAX_LOG_LINE_LENGTH = 4096
MAX_LOG_LINES = 5000
MAX_TRIALS = 5000
MAX_RUNGS = 100


KILLED = "killed"
"""The failure of an engine that something outside has killed; it is tried once more."""


@dataclass(frozen=True)
class Failure:
    """The engine's reason for a failure; ``fields`` has a message per invalid field."""

    code: str
    message: str
    fields: Mapping[str, str] = field(default_factory=dict)


Event = Log | Stage | Trial | Rung | AnalysisResult | TextResult | Answer | Failure


def parse(line: str) -> Event | None:
    """Parse one line of the engine's output.

    Returns:
        ``None`` if the line is not an event, but printed by a library.
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
        case "stage":
            return read_json(Stage, {field.name: body.get(field.name) for field in fields(Stage)})
        case "trial":
            return read_trial(body["trial"])
        case "rung":
            return read_json(Rung, body["rung"])
        case "result":
            return read_result(body["result"])
        case "answer":
            return Answer(_object(body["answer"]))
        case "error":
            wrong = _object(body.get("fields", {})).items()
            said = {storable(str(name)): storable(str(text)) for name, text in wrong}
            return Failure(str(body["code"])[:40], storable(str(body["message"])), said)
    return None


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.40} is not an object")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON, and a database would refuse it")


@dataclass
class EngineOutput:
    """Sorts an engine's events; ``trials`` and ``lines`` are not stored yet."""

    trials: list[Trial] = field(default_factory=list)
    lines: list[Log] = field(default_factory=list)
    outcome: AnalysisResult | TextResult | Failure | None = None
    line_count: int = 0
    trial_count: int = 0

    def take(self, line: Line) -> None:
        """Add one line of output; lines after the outcome are ignored."""
        if self.outcome is not None:
            return
        event = parse(line.text) if line.stream == "stdout" else None
        match event:
            case Trial():
                self._try(event)
            case AnalysisResult() | TextResult() | Failure():
                self.outcome = event
            case Log():
                self._say(event)
            case Stage():
                self._say(Log(storable(str(event)), LogLine.STAGE))
            case None:
                self._say(Log(line.text))

    def clear(self) -> None:
        """Drop the events that are now stored."""
        self.trials, self.lines = [], []

    def __bool__(self) -> bool:
        """Whether there is anything to store."""
        return bool(self.trials or self.lines)

    def _try(self, trial: Trial) -> None:
        self.trial_count += 1
        if self.trial_count <= MAX_TRIALS:
            self.trials.append(trial)
        elif self.trial_count == MAX_TRIALS + 1:
            self._say(Log(f"No more than {MAX_TRIALS:,} trials are kept.", "warning"))

    def _say(self, line: Log) -> None:
        if not line.message.strip():
            return
        self.line_count += 1
        if self.line_count > MAX_LOG_LINES:
            return
        if self.line_count == MAX_LOG_LINES:
            line = Log(f"The log ends here: {MAX_LOG_LINES:,} lines are kept.", "warning")
        message = line.message
        if len(message) > MAX_LOG_LINE_LENGTH:
            message = message[: MAX_LOG_LINE_LENGTH - 1] + "…"
        logger.info("the engine: %s", message)
        self.lines.append(Log(message, line.level))


@dataclass
class QueryOutput:
    """Keeps the latest progress of a query, the rungs found so far, and its answer."""

    rungs: list[Rung] = field(default_factory=list)
    outcome: Answer | Failure | None = None
    _stage: str = ""
    _message: str = ""
    _is_new: bool = False

    @property
    def progress(self) -> str:
        """The current stage, if there is one, and the last message."""
        return ". ".join(filter(None, (self._stage.capitalize(), self._message)))

    def take(self, line: Line) -> None:
        """Add one line of output; lines after the outcome are ignored."""
        if self.outcome is not None or line.stream != "stdout":
            return
        event = parse(line.text)
        match event:
            case Answer() | Failure():
                self.outcome = event
            case Log():
                self._message, self._is_new = event.message[:MAX_LOG_LINE_LENGTH], True
            case Stage():
                self._stage, self._is_new = storable(str(event))[:MAX_LOG_LINE_LENGTH], True
            case Rung():
                self.rungs, self._is_new = [*self.rungs, event][:MAX_RUNGS], True

    def clear(self) -> None:
        """Note that progress and rungs have been stored."""
        self._is_new = False

    def __bool__(self) -> bool:
        """Whether there is anything to store."""
        return self._is_new
