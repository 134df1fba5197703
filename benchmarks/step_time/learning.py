"""The worth of measured steps on a GPU: predictions of published rows, corrected by other rows.

Each row is predicted by constants that were fitted without its GPU, as for a user's own GPU, and
then corrected as the engine does it (:mod:`engine.prediction.timing.correction`). timm's rows of
one GPU are left out: there are too many to stand for what a lab measures.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from benchmarks.step_time.predictions import Predicted
from engine.interface.workload import Workload
from engine.prediction.timing.correction import Experience
from engine.prediction.timing.intervals import Counted, Residual
from engine.prediction.timing.past_errors import percentile
from engine.prediction.timing.speed_model import step_predictor
from engine.prediction.timing.step_time import HOST_DECIDES

_THIS = Workload("bert")
"""Stands for the workload of the row to predict, whichever it is."""
_Rows = Sequence[Predicted]


@dataclass(frozen=True)
class Learned:
    """Errors of predictions, as shares of the measured value, once steps were measured.

    Attributes:
        known: The steps measured on the GPU.
        rows: Number of predictions.
        median, percentile_90: The absolute error of corrected predictions.
        before, before_percentile_90: The same without the correction.
    """

    known: str
    rows: int
    median: float
    percentile_90: float
    before: float
    before_percentile_90: float


@dataclass(frozen=True)
class Spread:
    """The standard deviation of the logarithm of measured over predicted time, by a cause."""

    cause: str
    groups: int
    deviation: float


def learned(found: Iterable[Predicted]) -> list[Learned]:
    """Errors corrected by other workloads on the GPU, then also by rows of the same workload."""
    by_others, by_all = [], []
    for rows in _by(_kept(found), lambda row: row.gpu).values():
        for row in rows:
            others = [other for other in rows if _workload(other) != _workload(row)]
            same = [one for one in rows if _workload(one) == _workload(row) and one is not row]
            if others:
                by_others.append(_corrected(row, [], others))
            if same:
                by_all.append(_corrected(row, same, others))
    known = {"other workloads": by_others, "the workload at another batch, and others": by_all}
    return [_learned(name, errors) for name, errors in known.items() if len(errors) > 1]


def spreads(found: Iterable[Predicted]) -> list[Spread]:
    """Spreads of GPUs, workloads on a GPU and rows of a workload, by the method of moments."""
    gpus = [
        [list(map(_log_ratio, rows)) for rows in _by(of_gpu, _workload).values()]
        for of_gpu in _by(_kept(found), lambda row: row.gpu).values()
    ]
    workloads = [ratios for of_gpu in gpus for ratios in of_gpu if len(ratios) > 1]
    means = [[fmean(ratios) for ratios in of_gpu] for of_gpu in gpus if len(of_gpu) > 1]
    if not (workloads and means):
        return []
    between = _within(means)
    # The mean of a GPU's workloads scatters by their own spread, too.
    of_gpus = fmean(fmean(mean) ** 2 - between**2 / len(mean) for mean in means)
    return [
        Spread("the GPU", len(means), math.sqrt(max(of_gpus, 0.0))),
        Spread("the workload on a GPU", sum(map(len, means)), between),
        Spread("the batch of a workload", len(workloads), _within(workloads)),
    ]


def _within(groups: Sequence[Sequence[float]]) -> float:
    """The pooled standard deviation around the means of groups."""
    squares = sum((value - fmean(group)) ** 2 for group in groups for value in group)
    return math.sqrt(squares / sum(len(group) - 1 for group in groups))


def _corrected(row: Predicted, same: _Rows, others: _Rows) -> tuple[float, float]:
    """The error of a prediction before and after its correction."""
    measured = [_residual(one, _THIS.model) for one in same]
    measured += [_residual(other, str(_workload(other))) for other in others]
    factor = Experience(measured).of(_THIS, row.gpu).factor(row.batch)
    ratio = row.unseen_gpu / row.measured
    return abs(ratio - 1), abs(factor * ratio - 1)


def _residual(row: Predicted, model: str) -> Residual:
    return Residual(
        gpu=row.gpu,
        workload={"model": model},
        batch_size=row.batch,
        counted=Counted.STEP_SECONDS,
        measured=row.measured,
        predicted=row.unseen_gpu,
        source=row.source,
        predictor=step_predictor(),
    )


def _learned(known: str, errors: Sequence[tuple[float, float]]) -> Learned:
    before, after = zip(*errors, strict=True)
    now, once = percentile(after, 0.9), percentile(before, 0.9)
    return Learned(known, len(errors), median(after), now, median(before), once)


def _kept(found: Iterable[Predicted]) -> list[Predicted]:
    """Without steps that depend on their host, of which the engine learns nothing either."""
    return [
        row
        for row in found
        if row.fitted
        and not row.source.startswith("timm")
        and row.slowest <= HOST_DECIDES * row.fastest
    ]


def _workload(row: Predicted) -> tuple[str, str, int, str, bool]:
    """Sources count apart: each ran its own software, which moved the same row by up to 18%."""
    return row.source, row.trace, row.size, row.precision, row.channels_last


def _log_ratio(row: Predicted) -> float:
    return math.log(row.measured / row.unseen_gpu)


def _by(
    rows: Iterable[Predicted], key: Callable[[Predicted], Hashable]
) -> dict[Hashable, list[Predicted]]:
    groups: dict[Hashable, list[Predicted]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups
