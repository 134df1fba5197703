"""Predicted vs. measured: errors, verdicts and limits computed from results."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.gpu.results import Results, Row, Search
from benchmarks.gpu.workloads import BY_NAME, Half
from engine.prediction.timing.intervals import Counted

ALL = "all"
GROUPS = (Half.CALIBRATION, Half.HELD_OUT, ALL)

MEMORY = (Counted.PEAK_ALLOCATED, Counted.PEAK_RESERVED, Counted.DEVICE_USED)


@dataclass(frozen=True)
class Comparison:
    """One number of a trial that fits, measured and predicted, in bytes or seconds."""

    row: Row
    counted: Counted
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1: negative if the prediction was too low."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Errors:
    """Absolute errors of a group of comparisons, as shares.

    Attributes:
        count: Number of comparisons.
        median, percentile_95, worst: ``None`` if there are none.
        too_low: Number of predictions below the measurement.
    """

    count: int
    median: float | None
    percentile_95: float | None
    worst: float | None
    too_low: int


@dataclass(frozen=True)
class Verdicts:
    """Counts of batches that fit, predicted vs. measured.

    Attributes:
        promised: Batches predicted to fit.
        false_safe: Number of those that do not fit.
        sure: Batches predicted to fit even at the high end of the interval.
        false_sure: Number of those that do not fit.
        refused: Batches predicted not to fit.
        false_refuse: Number of those that fit.
    """

    promised: int
    false_safe: int
    sure: int
    false_sure: int
    refused: int
    false_refuse: int

    @property
    def false_safe_rate(self) -> float | None:
        return self.false_safe / self.promised if self.promised else None

    @property
    def false_sure_rate(self) -> float | None:
        return self.false_sure / self.sure if self.sure else None

    @property
    def false_refuse_rate(self) -> float | None:
        return self.false_refuse / self.refused if self.refused else None


@dataclass(frozen=True)
class Limit:
    """The largest batch of a workload at a capacity.

    Attributes:
        certified: The largest that fits while the next one does not; 0 if none fits.
        predicted: The largest predicted to fit; ``None`` if not predicted.
    """

    workload: str
    limit_bytes: int | None
    certified: int
    predicted: int | None

    @property
    def error(self) -> float | None:
        """Predicted over certified, minus 1; ``None`` if either is missing or zero."""
        if self.predicted is None or self.certified == 0:
            return None
        return self.predicted / self.certified - 1


def half_of(workload: str) -> str:
    known = BY_NAME.get(workload)
    return known.half if known else ""


def within(group: str, workload: str) -> bool:
    return group in (ALL, half_of(workload))


def comparisons(rows: Iterable[Row], counted: Counted) -> list[Comparison]:
    found = []
    for row in rows:
        if row.predicted is None or not (row.measured.fits and row.predicted.fits):
            continue
        measured = getattr(row.measured, counted)
        predicted = getattr(row.predicted, counted)
        if measured and predicted:
            found.append(Comparison(row, counted, measured, predicted))
    return found


def errors(shares: Iterable[float]) -> Errors:
    """Summarise signed errors; the percentile is the nearest rank."""
    signed = list(shares)
    absolute = sorted(abs(share) for share in signed)
    return Errors(
        count=len(absolute),
        median=statistics.median(absolute) if absolute else None,
        percentile_95=absolute[math.ceil(0.95 * len(absolute)) - 1] if absolute else None,
        worst=absolute[-1] if absolute else None,
        too_low=sum(share < 0 for share in signed),
    )


def verdicts(rows: Iterable[Row], total_bytes: int) -> Verdicts:
    """Count wrong predictions of fitting, either way.

    Args:
        rows: Trials; those without a prediction do not count.
        total_bytes: The memory of the device, if no capacity was emulated.
    """
    promised = [r for r in rows if r.predicted is not None and r.predicted.fits]
    refused = [r for r in rows if r.predicted is not None and not r.predicted.fits]
    sure = [row for row in promised if _sure(row, total_bytes)]
    return Verdicts(
        promised=len(promised),
        false_safe=sum(not row.measured.fits for row in promised),
        sure=len(sure),
        false_sure=sum(not row.measured.fits for row in sure),
        refused=len(refused),
        false_refuse=sum(row.measured.fits for row in refused),
    )


def _sure(row: Row, total_bytes: int) -> bool:
    high = row.predicted.device_used_high_bytes if row.predicted else None
    return high is not None and high <= (row.limit_bytes or total_bytes)


def limits(results: Results) -> list[Limit]:
    tried = dict.fromkeys((row.workload, row.limit_bytes) for row in results.rows)
    found = []
    for name, limit in sorted(tried, key=lambda pair: (pair[0], pair[1] or math.inf)):
        certified = results.largest(name, limit)
        if certified is not None:
            predicted = results.largest_predicted(name, limit)
            found.append(Limit(name, limit, certified, predicted))
    return found


def truth(results: Results, search: Search) -> int | None:
    """The certified largest batch for what a tool searched; ``None`` if there is none."""
    return results.largest(search.workload, search.limit_bytes)


def in_group(group: str, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if within(group, row.workload)]
