"""Why the recommended batch is recommended, drawn into the chart of speed against batch size."""

from __future__ import annotations

from dataclasses import dataclass

from analyses.charts.parts import PlotlyDict
from analyses.formatting import whole
from analyses.stored_result import trial_at
from engine.answer.recommendation import ENOUGH_SPEED
from engine.result import AnalysisResult, Source, Trial

_ENOUGH = f"{ENOUGH_SPEED * 100:.0f} %"


@dataclass(frozen=True)
class Knee:
    """The recommended batch and the speed that is enough.

    Attributes:
        batch_size: The recommended one.
        samples_per_second: What it reaches.
        enough: Samples per second: a little less than the best that is allowed.
        source: Where the best speed comes from.
        is_limited: Whether memory, where it is predicted, or the global batch allows less than a
            batch that fits would reach.
    """

    batch_size: int
    samples_per_second: float
    enough: float
    source: Source
    is_limited: bool

    @property
    def is_enough(self) -> bool:
        """Whether no batch that fits is much faster."""
        return not self.is_limited and self.samples_per_second >= self.enough

    def lines(self, y_axis: str) -> list[PlotlyDict]:
        """The level that is enough, and down from the recommended batch."""
        level = {"xref": "paper", "x0": 0, "x1": 1, "y0": self.enough, "y1": self.enough}
        drop = {
            "x0": self.batch_size,
            "x1": self.batch_size,
            "y0": 0,
            "y1": self.samples_per_second,
        }
        return [
            {"type": "line", "yref": y_axis, "line": _GREEN | {"dash": dash}} | place
            for place, dash in ((level, "dash"), (drop, "dot"))
        ]

    def labels(self, y_axis: str, end: int) -> list[PlotlyDict]:
        """What stands at both, out of each other's way; ``end`` is the axis's largest batch."""
        is_left = self.batch_size <= end / 2
        level = {
            "text": f"{_ENOUGH} of the best{' allowed' if self.is_limited else ''} ({self.source})",
            "xref": "paper",
            "x": 1 if is_left else 0,
            "xanchor": "right" if is_left else "left",
            "y": self.enough,
            "yanchor": "top",
        }
        foot = {
            "text": f"{'knee: ' if self.is_enough else ''}batch {whole(self.batch_size)}",
            "x": self.batch_size,
            "xanchor": "left" if is_left else "right",
            "xshift": 4 if is_left else -4,
            "y": 0,
            "yanchor": "bottom",
        }
        font = {"color": "var(--good-text)", "size": 11}
        return [
            {"yref": y_axis, "showarrow": False, "font": font} | place for place in (level, foot)
        ]

    def in_words(self) -> str:
        """The same for those who cannot see it."""
        size = whole(self.batch_size)
        if self.is_enough:
            return f"Batch {size} is the smallest that reaches {_ENOUGH} of the best speed."
        return f"Batch {size} is recommended, and a larger one would be faster."


_GREEN = {"color": "var(--good)", "width": 1}


def knee_of(result: AnalysisResult) -> Knee | None:
    """The knee of an answer; ``None`` where speeds are not known."""
    chosen = trial_at(result, result.recommended_batch_size)
    if chosen is None or chosen.samples_per_second is None:
        return None
    best = _fastest(result, result.largest_batch_size) or chosen
    allowed = _fastest(result, max(_largest_allowed(result), chosen.batch_size)) or chosen
    return Knee(
        batch_size=chosen.batch_size,
        samples_per_second=chosen.samples_per_second,
        enough=ENOUGH_SPEED * _speed(allowed),
        source=allowed.source,
        is_limited=_speed(allowed) < ENOUGH_SPEED * _speed(best),
    )


def _largest_allowed(result: AnalysisResult) -> int:
    """The largest batch that the engine would recommend, were it fast enough."""
    safe = result.safe_batch_size
    allowed = result.largest_batch_size if safe is None else safe
    if result.global_batch is None:
        return allowed
    gpus = result.workload.world_size if result.workload else 1
    return min(allowed, result.global_batch.size // gpus)


def _fastest(result: AnalysisResult, largest: int) -> Trial | None:
    known = [
        trial
        for trial in (*result.trials, *result.curve)
        if trial.fits and _speed(trial) and trial.batch_size <= largest
    ]
    return max(known, key=_speed, default=None)


def _speed(trial: Trial) -> float:
    return trial.samples_per_second or 0.0
