"""The certainty of a speedup, and the end of its interval that its savings count by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.answer.economics import Speedup
from engine.interface.trial import Source

OUTLIER = 2.0
"""More than twice as fast by another batch alone: possible where launches or memory traffic held
the GPU up, and just what a prediction knows least about."""

WIDE = 1.1
"""An interval is wide if its high end is more than 1.1 times its low end. That of two predicted
batches that fill the GPU is not (1.06); that of a batch that leaves it waiting for launches is
(1.32), and so is that of a change of precision, optimizer or GPU (1.6 and more)."""


def counts_at_low_end(source: str, gained: Speedup) -> bool:
    """Whether savings count at the low end of the speedup's interval.

    They do for an outlier whose gain is mostly an assumption: nobody measured it, it is above
    :data:`OUTLIER`, and its interval is wide.
    """
    is_wide = gained.high > WIDE * gained.low
    return source != Source.MEASURED and gained.ratio > OUTLIER and is_wide


@dataclass(frozen=True)
class Counted:
    """Factors by which savings at the speedup itself are multiplied.

    Attributes:
        value: For what counts.
        low: For the low end of the interval.
        high: For its high end.
        per_gpu_hour, per_gpu_hour_low, per_gpu_hour_high: GPU-hours that one GPU-hour at the
            recommended batch saves, alike.
    """

    value: float
    low: float
    high: float
    per_gpu_hour: float
    per_gpu_hour_low: float
    per_gpu_hour_high: float
    at_low_end: bool


NOTHING = Counted(1.0, 1.0, 1.0, 0.0, 0.0, 0.0, at_low_end=False)
"""Without a gain."""


def counted(source: str, result: Mapping[str, Any] | None) -> Counted:
    """The counted part of the savings of a stored result.

    A run that takes ``h`` GPU-hours at the current batch takes ``h / s`` at speedup ``s``. So it
    saves ``h * (1 - 1 / s)``, which is ``s - 1`` for each GPU-hour that it takes::

        value        = (1 - 1 / c) / (1 - 1 / s)
        per_gpu_hour = c - 1

    where ``c`` is the speedup that counts: ``s``, or the low end of its interval.

    Args:
        source: The source of the speedup.
        result: The stored fields of an ``AnalysisResult``; older ones have no interval.
    """
    gained = _speedup_in(result or {})
    if gained is None or not gained.is_gain or gained.ratio <= 1:
        return NOTHING
    at_low_end = counts_at_low_end(source, gained)
    counting = gained.low if at_low_end else gained.ratio
    share = 1 - 1 / gained.ratio
    return Counted(
        value=(1 - 1 / counting) / share,
        low=(1 - 1 / gained.low) / share,
        high=(1 - 1 / gained.high) / share,
        per_gpu_hour=counting - 1,
        per_gpu_hour_low=gained.low - 1,
        per_gpu_hour_high=gained.high - 1,
        at_low_end=at_low_end,
    )


def _speedup_in(result: Mapping[str, Any]) -> Speedup | None:
    ratio = result.get("speedup")
    if ratio is None:
        return None
    low, high = result.get("speedup_low"), result.get("speedup_high")
    return Speedup(ratio, ratio if low is None else low, ratio if high is None else high)
