"""The one-line changes of a plan, in short: its ladder has whole results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.answer.economics import Speedup
from engine.answer.ladder import Effort, Learning
from engine.answer.worth import is_worth_it
from engine.interface.result import Source


def one_line_changes(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rungs of a plan that change one line, train the same, and are worth a change.

    Args:
        answer: The body of a plan's ``engine.events.Answer``.

    Returns:
        The moves of each, and the low end of its speedup's interval.
    """
    return [
        {"moves": rung["moves"], "speedup_low": rung["speedup_low"]}
        for rung in answer.get("ladder") or ()
        if rung["moves"]
        and not rung["gpu"]
        and rung["effort"] == Effort.ONE_LINE
        and rung["learning"] != Learning.TRAINED
        and _is_worth_it(rung)
    ]


def _is_worth_it(rung: Mapping[str, Any]) -> bool:
    gained = [rung[name] for name in ("speedup", "speedup_low", "speedup_high")]
    return None not in gained and is_worth_it(Speedup(*gained), Source.PREDICTED)
