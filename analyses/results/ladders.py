"""Ladders as they are stored: with a plan's query, or with a script that was pushed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from analyses.models import Analysis, PushedLadder
from engine.answer.ladder import Rung, in_order
from engine.core.border import read_json
from engine.core.errors import InvalidInput


def read_ladder(stored: Iterable[Any]) -> list[Rung]:
    """The rungs in their order; empty if another version stored them."""
    try:
        rungs = [read_json(Rung, rung) for rung in stored]
    except InvalidInput:
        return []
    return in_order(rungs) if rungs else []


def pushed_ladder(analysis: Analysis) -> list[Rung]:
    """The ladder that was pushed with a script, which nobody plans here; empty without one."""
    pushed: PushedLadder | None = getattr(analysis, "pushed_ladder", None)
    return read_ladder(pushed.rungs) if pushed else []
