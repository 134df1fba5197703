"""The stages of an analysis that runs: how far each is, and how long the present one takes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median

from django.utils import timezone

from analyses.models import Analysis, LogLine, Status
from engine.events import Stage, about, seconds_left

STAGES = ("build", "trace", "search")
ADVICE = "advice"

_EARLIER = 5
"""Analyses of the same model that say how long a stage usually takes."""


@dataclass(frozen=True)
class ShownStage:
    """A stage as the page shows it.

    Attributes:
        state: ``done``, ``now`` or ``next``.
        done: The part of it that is done; empty where that is not known.
        left: The seconds that it still takes; ``None`` without a base for it.
    """

    name: str
    state: str
    done: str = ""
    left: float | None = None

    @property
    def time_left(self) -> str:
        return "" if self.left is None else about(self.left)


def stages_of(analysis: Analysis, has_ladder: bool) -> list[ShownStage]:
    """The stages of an analysis that has not ended; none before the first one is known.

    Args:
        analysis: It may still wait.
        has_ladder: Whether advice follows.
    """
    lines = analysis.log_lines.filter(level=LogLine.STAGE).order_by("id")
    seen = [
        (Stage.read(message), created_at.timestamp())
        for message, created_at in lines.values_list("message", "created_at")
    ]
    if not seen:
        return []
    now = seen[-1][0]
    usual = {} if now.fraction else _usual(analysis)
    left = seconds_left(seen, timezone.now().timestamp(), usual)
    at = STAGES.index(now.name) if now.name in STAGES else 0
    following = [*STAGES[at + 1 :], *([ADVICE] if has_ladder else [])]
    done = "" if now.fraction is None else f"{100 * now.fraction:.0f}% done"
    return [
        *(ShownStage(name, "done") for name in STAGES[:at]),
        ShownStage(now.name, "now", done, left),
        *(ShownStage(name, "next") for name in following),
    ]


def _usual(analysis: Analysis) -> dict[str, float]:
    """The usual seconds of each stage: the median of the last comparable analyses.

    Alike are those of the same model and goal that are measured, or predicted, as this one is.
    """
    alike = Analysis.objects.filter(
        model=analysis.model,
        goal=analysis.goal,
        status=Status.SUCCEEDED,
        measured_gpu=analysis.measured_gpu,
    )
    lines = LogLine.objects.filter(
        level=LogLine.STAGE, analysis__in=alike.order_by("-id").values("pk")[:_EARLIER]
    ).order_by("analysis_id", "id")
    rows = list(lines.values_list("analysis_id", "message", "created_at", "analysis__finished_at"))
    taken: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for (pk, message, begun, ended), following in zip_longest(rows, rows[1:]):
        until = following[2] if following and following[0] == pk else ended
        if until is not None:
            taken[Stage.read(message).name][pk] += (until - begun).total_seconds()
    return {name: median(seconds.values()) for name, seconds in taken.items()}
