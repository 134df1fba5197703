"""What a faster batch size is worth: GPU-hours and money in a year.

Only speed is worth money. Memory left unused (headroom) costs nothing and is never counted.
"""

from __future__ import annotations

import math

from engine.request import Assumptions
from engine.result import Savings, Source

PREDICTED_NOISE = 0.02
"""A predicted speedup within so much of 1 is no gain (house rule)."""


def speedup(current_samples_per_second: float, recommended_samples_per_second: float) -> float:
    """Speed at the recommended batch over speed at the current one.

    Both in samples per second; never the ratio of the batch sizes.

    Raises:
        ValueError: If a speed is not a positive number.
    """
    for speed in (current_samples_per_second, recommended_samples_per_second):
        if not (math.isfinite(speed) and speed > 0):
            raise ValueError(f"a speed must be a positive number of samples per second: {speed}")
    return recommended_samples_per_second / current_samples_per_second


def is_gain(speedup: float, noise: float = PREDICTED_NOISE) -> bool:
    """Whether a speedup is more than noise.

    Args:
        speedup: As :func:`speedup` gives it.
        noise: Half the width of its interval, as a share: that of the measurement, or
            :data:`PREDICTED_NOISE`.
    """
    return speedup > 1 + noise


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
    assumptions: Assumptions,
    price_per_hour_usd: float,
    current_samples_per_second: float,
    recommended_samples_per_second: float,
    source: Source,
    noise: float = PREDICTED_NOISE,
) -> Savings:
    """What a year at the recommended batch saves against a year at the current one.

    A run takes ``hours_per_run`` GPU-hours today and ``hours_per_run / s`` at speedup ``s``::

        gpu_hours_per_year = runs_per_year * hours_per_run * (1 - 1 / s)
        usd_per_year       = gpu_hours_per_year * price_per_hour_usd

    Without a gain (see :func:`is_gain`) both are zero and a run costs what it costs today.

    Args:
        assumptions: Hours and runs.
        price_per_hour_usd: The price that holds: the one assumed, or the catalogue's.
        current_samples_per_second: Speed at the current batch.
        recommended_samples_per_second: Speed at the recommended batch.
        source: Where the two speeds come from.
        noise: Half the width of the speedup's interval, as a share.

    Raises:
        ValueError: If a speed is not a positive number.
    """
    ratio = speedup(current_samples_per_second, recommended_samples_per_second)
    saved_share = 1 - 1 / ratio if is_gain(ratio, noise) else 0.0
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
