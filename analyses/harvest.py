"""What an engine has said and nobody has stored yet, kept within bounds."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from analyses.engine_events import Failure, parse
from analyses.engine_process import Line
from engine.events import Log
from engine.result import AnalysisResult, Trial

logger = logging.getLogger(__name__)

LONGEST_LOG_LINE = 4096
MOST_LOG_LINES = 5000
MOST_TRIALS = 5000


@dataclass
class Harvest:
    """Sorts the lines of an engine; ``trials`` and ``lines`` are not stored yet."""

    trials: list[Trial] = field(default_factory=list)
    lines: list[Log] = field(default_factory=list)
    outcome: AnalysisResult | Failure | None = None
    line_count: int = 0
    trial_count: int = 0

    def take(self, line: Line) -> None:
        """Sort in one line of output; what comes after the outcome is not looked at."""
        if self.outcome is not None:
            return
        event = parse(line.text) if line.stream == "stdout" else None
        match event:
            case Trial():
                self._try(event)
            case AnalysisResult() | Failure():
                self.outcome = event
            case Log():
                self._say(event)
            case None:
                self._say(Log(line.text))

    def clear(self) -> None:
        """Forget what has been stored now."""
        self.trials, self.lines = [], []

    def __bool__(self) -> bool:
        """Whether there is something to store."""
        return bool(self.trials or self.lines)

    def _try(self, trial: Trial) -> None:
        self.trial_count += 1
        if self.trial_count <= MOST_TRIALS:
            self.trials.append(trial)
        elif self.trial_count == MOST_TRIALS + 1:
            self._say(Log(f"No more than {MOST_TRIALS:,} trials are kept.", "warning"))

    def _say(self, line: Log) -> None:
        if not line.message.strip():
            return
        self.line_count += 1
        if self.line_count > MOST_LOG_LINES:
            return
        if self.line_count == MOST_LOG_LINES:
            line = Log(f"The log ends here: {MOST_LOG_LINES:,} lines are kept.", "warning")
        message = line.message
        if len(message) > LONGEST_LOG_LINE:
            message = message[: LONGEST_LOG_LINE - 1] + "…"
        logger.info("the engine: %s", message)
        self.lines.append(Log(message, line.level))
