"""Speedups with their intervals, and the GPU-hours, money and energy that they save in a year.

Only speed saves money. Unused memory (headroom) costs nothing and is never counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from ..interface.assumptions import Assumptions
from ..interface.result import Comparison, Energy, Savings
from ..interface.trial import Source
from .energy import Power

FILLED_NOISE = 0.03
"""Relative error of the ratio of two predicted speeds where both batches fill the GPU."""
UNFILLED_NOISE = 0.07
"""The same where one of them leaves it waiting for launches, or half empty, for a ratio of 1."""
UNFILLED_GROWTH = 0.22
"""The share of a larger ratio, as a logarithm, that it may be off besides. All three are held
against published sweeps and ours by ``python -m benchmarks.step_time``."""

MOVES_NOISE = 0.35
"""The same of two workloads on one GPU: of 154 published pairs in two precisions on one GPU, by
constants fitted without that model, 143 are within it (``benchmarks/data``)."""
GPUS_NOISE = 0.25
"""The same of one workload on two GPUs: of 928 published pairs, by constants fitted without that
model, 91% are within it (``python -m benchmarks.step_time``)."""

MIN_GAIN = 1.05
"""A speedup that cannot be larger is no gain: published steps move as much between releases."""


class Verdict(StrEnum):
    """Conclusion from the interval of a speedup."""

    GAIN = "gain"
    PROBABLE = "probable gain"
    NO_GAIN = "no gain"


@dataclass(frozen=True)
class Speedup:
    """Speed at the recommended batch over speed at the current one, with its interval.

    Attributes:
        ratio: Ratio of samples per second; never of the batch sizes.
        low, high: The interval that is assumed to hold the true ratio.
    """

    ratio: float
    low: float
    high: float

    @property
    def is_gain(self) -> bool:
        """Whether it is more than noise, wherever the interval comes from."""
        return self.low > 1

    @property
    def verdict(self) -> Verdict:
        """A gain if all of the interval is one, none if nothing in it is, else a probable one."""
        if self.is_gain:
            return Verdict.GAIN
        if self.ratio <= 1 or self.high <= MIN_GAIN:
            return Verdict.NO_GAIN
        return Verdict.PROBABLE


def speedup(
    current_samples_per_second: float,
    recommended_samples_per_second: float,
    span: tuple[float, float] | None = None,
) -> Speedup:
    """The speedup of two speeds, each known once.

    Args:
        current_samples_per_second: Speed at the current batch.
        recommended_samples_per_second: Speed at the recommended batch.
        span: The ends of the interval, as shares of the ratio; by default within
            :data:`FILLED_NOISE`.

    Raises:
        ValueError: If a speed is not a positive number.
    """
    for speed in (current_samples_per_second, recommended_samples_per_second):
        if not (math.isfinite(speed) and speed > 0):
            raise ValueError(f"a speed must be a positive number of samples per second: {speed}")
    ratio = recommended_samples_per_second / current_samples_per_second
    low, high = span or within(FILLED_NOISE)
    return Speedup(ratio, ratio * low, ratio * high)


def unfilled_noise(ratio: float) -> float:
    """Relative error of a ratio of two predicted speeds where not both batches fill the GPU."""
    return (1 + UNFILLED_NOISE) * float(max(ratio, 1 / ratio) ** UNFILLED_GROWTH) - 1


def within(noise: float) -> tuple[float, float]:
    """The ends of an interval that is as far off to both sides, as shares of its middle."""
    return 1 / (1 + noise), 1 + noise


def compare(current: Sequence[float], recommended: Sequence[float]) -> Comparison:
    """The comparison of two batches, each measured once in every round.

    Args:
        current: Samples per second at the current batch, by round.
        recommended: The same at the recommended batch.

    Raises:
        ValueError: If there are no rounds, or one lacks a side.
    """
    if not current or len(current) != len(recommended):
        raise ValueError("a comparison needs at least one whole round")
    return Comparison(list(current), list(recommended), coverage(len(current)))


def speedup_in_turn(comparison: Comparison) -> Speedup:
    """The ratio of the median speeds, with the lowest and the highest ratio of a round.

    The two trials of a round run back to back, so whatever drifts more slowly (clock, heat,
    neighbours) affects both and drops out of their ratio. The ratio of the medians always lies
    between the two ends.
    """
    ratios = [
        fast / slow
        for slow, fast in zip(
            comparison.current_samples_per_second,
            comparison.recommended_samples_per_second,
            strict=True,
        )
    ]
    ratio = median(comparison.recommended_samples_per_second) / median(
        comparison.current_samples_per_second
    )
    return Speedup(ratio, min(ratios), max(ratios))


def coverage(rounds: int) -> float:
    """The probability that the true median ratio lies between the lowest and the highest seen.

    It lies outside only if all rounds fall on the same side of it, which is as likely as n equal
    coin tosses: 1 - 2·(1/2)^n for any distribution of the ratios (the sign test's interval; David
    and Nagaraja, Order Statistics, 3rd edition, section 7.1).
    """
    return float(1 - 2.0 ** (1 - rounds))


def usd_per_million_samples(price_per_hour_usd: float, samples_per_second: float) -> float:
    """Cost of a million samples at a speed.

    Args:
        price_per_hour_usd: Price of all GPUs that share the work, together.
        samples_per_second: Speed on all of them.

    Raises:
        ValueError: If the speed is not a positive number.
    """
    if not (math.isfinite(samples_per_second) and samples_per_second > 0):
        raise ValueError(f"a speed must be a positive number: {samples_per_second}")
    return price_per_hour_usd / 3600 * 1e6 / samples_per_second


def savings(
    assumptions: Assumptions,
    price_per_hour_usd: float,
    gained: Speedup,
    source: Source,
    power: Power | None = None,
    *,
    taken: bool,
) -> Savings:
    """Savings of a year at the recommended batch, compared with the current one.

    A run takes ``hours_per_run`` GPU-hours today and ``hours_per_run / s`` at speedup ``s``::

        gpu_hours_per_year = runs_per_year * hours_per_run * (1 - 1 / s)
        usd_per_year       = gpu_hours_per_year * price_per_hour_usd

    Where the decision is to keep the current batch, both are zero and a run costs what it costs
    today.

    Args:
        assumptions: Hours and runs.
        price_per_hour_usd: Price of one GPU.
        gained: The recommended batch's speedup.
        source: Source of the speedup.
        power: Power of one GPU at both batches, if known.
        taken: Whether the decision is to change, for this speedup
            (:func:`~engine.answer.worth.is_worth_it`).
    """
    saved_share = 1 - 1 / gained.ratio if taken else 0.0
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
        energy=_energy(assumptions, power, gained, taken) if power else None,
    )


def _energy(assumptions: Assumptions, power: Power, gained: Speedup, taken: bool) -> Energy:
    """The energy of a run now and then, and what a year saves of it.

    With ``h`` GPU-hours a run, ``n`` runs a year, speedup ``s`` and mean power ``p`` and ``q`` in
    watts at the current and the recommended batch::

        kwh_per_run  = h * p / 1000 now, h / s * q / 1000 then
        kwh_per_year = n * (now - then)

    In its interval the power, the ratio ``q / p`` and the speedup are all at their worst, or all
    at their best.
    """
    now = assumptions.hours_per_run * power.current / 1000
    then = low = high = now
    if taken:
        then = assumptions.hours_per_run / gained.ratio * power.recommended / 1000
        rises_least, rises_most = power.ratio_range
        high = then * rises_most * gained.ratio / gained.low
        low = then * rises_least * gained.ratio / gained.high
    least, most = power.range
    saved, saved_at_least, saved_at_most = (
        assumptions.runs_per_year * (now - later) for later in (then, high, low)
    )
    return Energy(
        power_limit_watts=power.limit,
        current_watts=power.current,
        recommended_watts=power.recommended,
        current_kwh_per_run=now,
        recommended_kwh_per_run=then,
        kwh_per_year=saved,
        kwh_per_year_low=min(least * saved_at_least, most * saved_at_least),
        kwh_per_year_high=most * saved_at_most,
        kg_co2e_per_year=saved * assumptions.grid_co2e_grams_per_kwh / 1000,
        grid_co2e_grams_per_kwh=assumptions.grid_co2e_grams_per_kwh,
    )
