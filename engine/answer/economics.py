"""What a faster batch size is worth: GPU-hours and money in a year.

Only speed is worth money. Memory left unused (headroom) costs nothing and is never counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.request import Assumptions
from engine.result import Savings, Source

PREDICTED_NOISE = 0.02
"""A predicted speedup within so much of 1 is no gain (house rule)."""


@dataclass(frozen=True)
class Speedup:
    """Speed at the recommended batch over speed at the current one, with its interval.

    Attributes:
        ratio: Of samples per second; never of the batch sizes.
        low, high: Between which the true ratio is taken to lie.
    """

    ratio: float
    low: float
    high: float

    @property
    def is_gain(self) -> bool:
        """Whether it is more than noise: the one rule, wherever the interval comes from."""
        return self.low > 1


def speedup(
    current_samples_per_second: float,
    recommended_samples_per_second: float,
    noise: float = PREDICTED_NOISE,
) -> Speedup:
    """The speedup of two speeds, each known once.

    Args:
        current_samples_per_second: Speed at the current batch.
        recommended_samples_per_second: Speed at the recommended batch.
        noise: Half the width of the interval, as a share: by so much the ratio may be too high or
            too low.

    Raises:
        ValueError: If a speed is not a positive number.
    """
    for speed in (current_samples_per_second, recommended_samples_per_second):
        if not (math.isfinite(speed) and speed > 0):
            raise ValueError(f"a speed must be a positive number of samples per second: {speed}")
    ratio = recommended_samples_per_second / current_samples_per_second
    return Speedup(ratio, ratio / (1 + noise), ratio * (1 + noise))


def usd_per_million_samples(price_per_hour_usd: float, samples_per_second: float) -> float:
    """What a million samples cost at a speed.

    Args:
        price_per_hour_usd: Of all GPUs that share the work, together.
        samples_per_second: On all of them.

    Raises:
        ValueError: If the speed is not a positive number.
    """
    if not (math.isfinite(samples_per_second) and samples_per_second > 0):
        raise ValueError(f"a speed must be a positive number: {samples_per_second}")
    return price_per_hour_usd / 3600 * 1e6 / samples_per_second


def savings(
    assumptions: Assumptions, price_per_hour_usd: float, gained: Speedup, source: Source
) -> Savings:
    """What a year at the recommended batch saves against a year at the current one.

    A run takes ``hours_per_run`` GPU-hours today and ``hours_per_run / s`` at speedup ``s``::

        gpu_hours_per_year = runs_per_year * hours_per_run * (1 - 1 / s)
        usd_per_year       = gpu_hours_per_year * price_per_hour_usd

    Without a gain (see :attr:`Speedup.is_gain`) both are zero and a run costs what it costs today.

    Args:
        assumptions: Hours and runs.
        price_per_hour_usd: The price that holds: the one assumed, or the catalogue's.
        gained: What the recommended batch gains.
        source: Where the speedup comes from.
    """
    saved_share = 1 - 1 / gained.ratio if gained.is_gain else 0.0
    gpu_hours = assumptions.runs_per_year * assumptions.hours_per_run * saved_share
    usd_per_run = assumptions.hours_per_run * price_per_hour_usd
    return Savings(
        source=source,
        gpu_hours_per_year=gpu_hours,
        usd_per_year=gpu_hours * price_per_hour_usd,
        current_usd_per_run=usd_per_run,
        recommended_usd_per_run=usd_per_run * (1 - saved_share),
        hours_per_run=assumptions.hours_per_run,
        runs_per_year=assumptions.runs_per_year,
        price_per_hour_usd=price_per_hour_usd,
    )
