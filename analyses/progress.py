"""How far an analysis has come, and how much of that a browser has been shown."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.utils import timezone

from analyses.models import Analysis
from analyses.presentation import state_of

_WRITTEN = re.compile(r"([a-z]+)-(\d{1,18})-(\d{1,18})-([01])", re.ASCII)


@dataclass(frozen=True)
class Progress:
    """What the changing part of a page depends on; as text, what the browser asks again with.

    Attributes:
        status: The analysis's; empty where nothing has been shown.
        trial: The number of its last trial; 0 without one.
        line: The number of the last line of its log; 0 without one.
        is_late: Whether the page says that it waits for long.
    """

    status: str = ""
    trial: int = 0
    line: int = 0
    is_late: bool = False

    def __str__(self) -> str:
        return f"{self.status}-{self.trial}-{self.line}-{int(self.is_late)}"

    @classmethod
    def parse(cls, text: str) -> Progress:
        """Read what ``str`` has written; anything else is as if nothing had been shown."""
        found = _WRITTEN.fullmatch(text)
        if not found:
            return cls()
        status, trial, line, is_late = found.groups()
        return cls(status, int(trial), int(line), is_late == "1")


NOTHING = Progress()


def progress_of(analysis: Analysis) -> Progress:
    """How far an analysis is now."""
    return Progress(
        status=analysis.status,
        trial=analysis.trials.order_by("-id").values_list("id", flat=True).first() or 0,
        line=analysis.log_lines.order_by("-id").values_list("id", flat=True).first() or 0,
        is_late=state_of(analysis, timezone.now()).hint != "",
    )
