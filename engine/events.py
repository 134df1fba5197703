"""The events of a running analysis, as the engine writes them and the worker reads them.

An event is one JSON object a line; its ``type`` says which:

* ``{"type": "log", "level": "info" | "warning", "message": …}``
* ``{"type": "stage", "name": "build" | "trace" | "search", "fraction": 0 to 1 or null}``
* ``{"type": "trial", "trial": {fields of Trial}}``
* ``{"type": "rung", "rung": {fields of Rung}}``: of a plan's ladder, as they are found
* ``{"type": "result", "result": {fields of AnalysisResult}}``: the last event of an analysis
* ``{"type": "answer", "answer": {…}}``: the last event of a query, see :class:`Answer`
* ``{"type": "error", "code": …, "message": …, "fields": {…}}``: the last event of a failure
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from .answer.ladder import Rung
from .errors import EngineError, InvalidInput
from .result import AnalysisResult, Trial


@dataclass(frozen=True)
class Log:
    """A line for a person to read; ``level`` is ``info`` or ``warning``."""

    message: str
    level: str = "info"


@dataclass(frozen=True)
class Stage:
    """What an analysis is doing from now on.

    Attributes:
        name: ``build`` (the model), ``trace`` (its step) or ``search`` (for the answer).
        fraction: Of this stage that is done, from 0 to 1; ``None`` where that is not known.
    """

    name: str
    fraction: float | None = None

    def __str__(self) -> str:
        if self.fraction is None:
            return self.name
        return f"{self.name}, {100 * self.fraction:.0f}% done"


@dataclass(frozen=True)
class Answer:
    """The answer to a query, as plain JSON values.

    Attributes:
        body: The fields of ``engine.run.Predicted``, or of ``engine.answer.plan.Plan``.
    """

    body: Mapping[str, object]


Event = Log | Stage | Trial | Rung | AnalysisResult | Answer | EngineError


def to_json_line(event: Event) -> str:
    match event:
        case Log():
            body: dict[str, object] = {"type": "log"} | asdict(event)
        case Stage():
            body = {"type": "stage"} | asdict(event)
        case Trial():
            body = {"type": "trial", "trial": asdict(event)}
        case Rung():
            body = {"type": "rung", "rung": event.to_dict()}
        case AnalysisResult():
            body = {"type": "result", "result": event.to_dict()}
        case Answer():
            body = {"type": "answer", "answer": event.body}
        case EngineError():
            fields = event.fields if isinstance(event, InvalidInput) else {}
            body = {"type": "error", "code": event.code, "message": str(event), "fields": fields}
    return json.dumps(body)
