"""The errors of our predictions, where this lab has measured the same itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User

from analyses.models import TrainingRun
from analyses.permissions import may_see_lab
from analyses.training_runs.prediction_errors import (
    Compared,
    measured_trials,
    peaks_of,
    step_times_of,
    training_runs_of,
)
from engine.prediction.timing.past_errors import Errors, PredictedQuantity, groups_like

COUNTED_TRIALS, COUNTED_RUNS = 100, 50
"""Numbers of most recent measured trials and training runs that count."""

_CURVES = 20
"""Number of the last measured analyses whose trials' peaks are compared."""


@dataclass(frozen=True)
class Accuracy:
    """The lab's own measurements of one kind.

    Attributes:
        own: ``None`` if there are none.
        published: Accuracy on measurements that others have published, for comparison.
    """

    of: PredictedQuantity
    compared: Sequence[Compared]
    own: Errors | None
    published: Errors | None


def accuracy_of(user: User) -> list[Accuracy]:
    """Accuracy of memory and step times, as far as this user may see it; at most four queries."""
    found: list[Compared] = []
    if may_see_lab(user):
        trials = measured_trials()[:COUNTED_TRIALS]
        found += peaks_of(trials, _CURVES)
        found += step_times_of(trials)
        found += training_runs_of(TrainingRun.objects.all(), COUNTED_RUNS)
    return [_accuracy(of, [one for one in found if one.of is of]) for of in PredictedQuantity]


def _accuracy(of: PredictedQuantity, compared: Sequence[Compared]) -> Accuracy:
    published = next(iter(groups_like(of, "", "")), None)
    return Accuracy(
        of,
        compared,
        Errors.of(one.error for one in compared),
        published.errors if published else None,
    )
