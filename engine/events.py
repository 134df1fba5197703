"""The events of a running analysis, as the engine writes them and the worker reads them.

An event is one JSON object a line; its ``type`` says which:

* ``{"type": "log", "level": "info" | "warning", "message": …}``
* ``{"type": "stage", "name": "build" | "trace" | "search" | "advice", "fraction": 0 to 1 or null,
  "tried": count or null, "known": count or null}``
* ``{"type": "trial", "trial": {fields of Trial}}``
* ``{"type": "rung", "rung": {fields of Rung}}``: of a plan's ladder, as they are found
* ``{"type": "result", "result": {fields of AnalysisResult, or of TextResult}}``: the last event of
  an analysis
* ``{"type": "answer", "answer": {…}}``: the last event of a query, see :class:`Answer`
* ``{"type": "error", "code": …, "message": …, "fields": {…}}``: the last event of a failure
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType

from .answer.ladder import Rung
from .core.errors import EngineError, InvalidInput
from .interface.result import AnalysisResult
from .interface.texts import TextResult
from .interface.trial import Trial


@dataclass(frozen=True)
class Log:
    """A line for a person to read; ``level`` is ``info`` or ``warning``."""

    message: str
    level: str = "info"


@dataclass(frozen=True)
class Stage:
    """Stage that an analysis enters.

    Attributes:
        name: ``build`` (the model), ``trace`` (its step), ``search`` (for the answer) or ``advice``
            (what else helps).
        fraction: Share of this stage that is done, from 0 to 1; ``None`` where that is not known.
        tried: In advice, the number of combinations of moves tried.
        known: The number of combinations known so far; what helps may call for more.
    """

    name: str
    fraction: float | None = None
    tried: int | None = None
    known: int | None = None

    def __str__(self) -> str:
        if self.tried is not None and self.known is not None:
            return f"{self.name}, {self.tried} of {self.known} combinations of moves tried"
        if self.fraction is None:
            return self.name
        return f"{self.name}, {100 * self.fraction:.0f}% done"

    @classmethod
    def read(cls, text: str) -> Stage:
        """Read what ``str`` has written of a stage other than advice."""
        name, _, done = text.partition(", ")
        percent = done.removesuffix("% done")
        return cls(name, int(percent) / 100 if percent.isdecimal() else None)


def seconds_left(
    seen: Sequence[tuple[Stage, float]],
    now: float,
    usual: Mapping[str, float] = MappingProxyType({}),
) -> float | None:
    """Time that the last stage still takes; ``None`` without a base for it.

    Args:
        seen: The stages so far, each with its time in seconds on the clock of ``now``.
        now: The time that this is as of.
        usual: Seconds that a stage has taken before, by its name.
    """
    if not seen:
        return None
    last, at = seen[-1]
    begun = next(time for stage, time in seen if stage.name == last.name)
    if last.fraction:
        left = (at - begun) * (1 - last.fraction) / last.fraction - (now - at)
    elif last.name in usual:
        left = usual[last.name] - (now - begun)
    else:
        return None
    return left if left > 0 else None


def about(seconds: float) -> str:
    """A time that is left, as roughly as it is known."""
    if seconds > _SECONDS_TOLD:
        return f"about {seconds / 60:.0f} min left"
    return f"about {max(1, math.ceil(seconds / 5)) * 5} s left"


_SECONDS_TOLD = 90


@dataclass(frozen=True)
class Answer:
    """The answer to a query, as plain JSON values.

    Attributes:
        body: The fields of ``engine.run.Predicted``, of ``engine.answer.plan.Plan``, or of
            ``engine.gpus.checked.SelfCheck``.
    """

    body: Mapping[str, object]


Event = Log | Stage | Trial | Rung | AnalysisResult | TextResult | Answer | EngineError

Emit = Callable[[Event], None]
"""Receives events as they come."""


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
        case AnalysisResult() | TextResult():
            body = {"type": "result", "result": event.to_dict()}
        case Answer():
            body = {"type": "answer", "answer": event.body}
        case EngineError():
            fields = event.fields if isinstance(event, InvalidInput) else {}
            body = {"type": "error", "code": event.code, "message": str(event), "fields": fields}
    return json.dumps(body)
