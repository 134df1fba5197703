"""The largest, the safe and the recommended batch of a workload on one GPU, predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import attrgetter

from ..answer.economics import Speedup, speedup
from ..answer.recommendation import Recommendation, micro_batches, recommend_batch
from ..answer.search import SearchOutcome, find_largest, line_to
from ..interface.trial import Probe, Source, Trial
from .prediction import Prediction
from .timing.step_time import ratio_span
from .timing.work import StepTime

_FIRST = 16
"""Multiples of the batch multiple at which to begin where there is no current batch."""


@dataclass(frozen=True)
class Limits:
    """The largest, the safe and the recommended batch on one GPU.

    Attributes:
        outcome: The search for the largest.
        batch_multiple: Only multiples of it counted.
        safe_batch_size: The largest that fits even at the high end of its prediction; 0 if none
            does.
        choice: The recommendation; ``None`` if nothing fits.
    """

    outcome: SearchOutcome
    batch_multiple: int = 1
    safe_batch_size: int = 0
    choice: Recommendation | None = None


def find_limits(
    prediction: Prediction,
    *,
    probe: Callable[[int], Trial] | None = None,
    known: Sequence[Trial] = (),
) -> Limits:
    """Find the largest, the safe and the recommended batch of a model or a script on a GPU.

    Where no multiple of the batch multiple fits, every size that can be run counts.

    Args:
        prediction: Predictions for it there.
        probe: Makes the trials that are shown to the user.
        known: Trials made before; without any, the search begins at the current batch.
    """
    request, predict = prediction.request, prediction.fit
    multiple = request.batch_multiple
    search = partial(predict_largest, predict, probe or predict)
    usable = prediction.usable_bytes
    if not known and request.current_batch_size is not None:
        known = [predict(request.current_batch_size)]
    outcome = search(multiple, usable, known)
    if outcome.largest_batch_size == 0 and multiple > request.least_multiple:
        multiple = request.least_multiple
        request = replace(request, batch_multiple=multiple)
        outcome = search(multiple, usable, known)
    largest = outcome.largest_batch_size
    if largest == 0:
        return Limits(outcome, multiple)
    first = known[0].batch_size if known else _FIRST * multiple
    careful = partial(predict, careful=True)
    safe = largest_safe(
        predict, largest, prediction.gpu.total_bytes, multiple, careful, first=first
    )
    step_time = prediction.step_time

    def choose(speed: Callable[[int], float]) -> Recommendation:
        return recommend_batch(
            micro_batches(request, largest),
            on_a_slow_host(speed, step_time),
            current=request.current_batch_size,
            largest=largest,
            safe=safe,
            gain_at=lambda size: gain(request.known_batch_size, size, speed, step_time),
            source=Source.PREDICTED,
            has_global_batch=request.global_batch_size is not None,
        )

    choice = choose(cache(prediction.speed))
    # A batch below the safe one may not fit, where the allocator packs it badly.
    if not (predict(choice.batch_size).fits and predict(choice.fastest).fits):
        choice = choose(lambda size: prediction.speed(size) if predict(size).fits else 0.0)
    return Limits(outcome, multiple, safe, choice)


def starting_batch_size(prediction: Prediction) -> int:
    """The recommended batch where there is no current one; the smallest if nothing fits."""
    limits = find_limits(prediction)
    return limits.choice.batch_size if limits.choice else limits.batch_multiple


def on_a_slow_host(
    speed: Callable[[int], float], step_time: Callable[[int], StepTime]
) -> Callable[[int], float]:
    """Speeds with the slowest host that is assumed, to choose a batch by.

    A batch that is nearly as fast as any there is so with every other host too, while one that
    just fills the GPU of a fast host leaves that of a slow one waiting.
    """

    def slow(batch_size: int) -> float:
        step = step_time(batch_size)
        return speed(batch_size) * step.seconds / step.slowest

    return slow


def gain(
    current: int,
    other: int,
    speed: Callable[[int], float],
    step_time: Callable[[int], StepTime],
) -> Speedup:
    """The predicted speedup of another batch over the current one, with its interval.

    Args:
        current: The batch used today.
        other: The one it is compared with.
        speed: Samples per second at a batch size. Where one of them has none, as it does not fit,
            there is no gain.
        step_time: The time of a step of a batch size, in its parts.
    """
    before, after = speed(current), speed(other)
    if not (before and after):
        return Speedup(0.0, 0.0, 0.0)
    return speedup(before, after, ratio_span(step_time(current), step_time(other), after / before))


def predict_largest(
    predict: Probe,
    probe: Probe,
    batch_multiple: int,
    limit_bytes: int,
    known: Sequence[Trial] = (),
) -> SearchOutcome:
    """Find the largest batch that is predicted to fit, and show the limit by few trials.

    Where the allocator packs a batch badly, it does not fit while a larger one does. "Up to" the
    larger one would be wrong, so the batch below a limit has to fit too.

    Near the limit the caching allocator returns unused memory, so that reserved memory no longer
    shows how far the limit is, and the search may take more than ten trials of milliseconds each.
    Only those on both sides of the limit matter to a reader, so only they go through the probe.

    Args:
        predict: The trial of a batch size.
        probe: The same for the trials of the outcome.
        batch_multiple: Only multiples of it are tried.
        limit_bytes: Limit of the caching allocator.
        known: Trials made before; one that fits is no larger than the limit.
    """
    search = partial(find_largest, batch_multiple=batch_multiple)
    line = line_to(limit_bytes, attrgetter("peak_reserved_bytes"))
    kept = max((trial.batch_size for trial in known if trial.fits), default=0)
    tried = known or [predict(_FIRST * batch_multiple)]
    while True:
        largest = search(predict, expect=line, known=tried).largest_batch_size
        below = largest - batch_multiple
        if below <= kept or predict(below).fits:
            return search(probe, guess=largest, limit_bytes=limit_bytes, known=known)
        tried = [*known, predict(below)]


def largest_safe(
    predict: Probe,
    largest: int,
    total_bytes: int,
    batch_multiple: int,
    careful: Probe | None = None,
    first: int | None = None,
) -> int:
    """The largest batch whose memory fits even at the high end of its prediction; 0 if none does.

    Args:
        predict: The trial of a batch size.
        largest: The largest that is predicted to fit, a multiple.
        total_bytes: Memory of the GPU.
        batch_multiple: Only multiples of it count.
        careful: The same with an interval that is never narrower, where that takes longer: only
            what is safe without it is looked at again.
        first: A batch size far from the largest, whose memory says how much a sample takes.
    """

    def surely(probe: Probe, batch_size: int) -> Trial:
        trial = probe(batch_size)
        high = trial.device_used_high_bytes
        return replace(trial, fits=trial.fits and high is not None and high <= total_bytes)

    tried, safe = [surely(predict, largest)], largest
    if not tried[0].fits:
        known = tried if first is None else [surely(predict, first), *tried]
        found = find_largest(
            partial(surely, predict),
            batch_multiple=batch_multiple,
            expect=line_to(total_bytes, attrgetter("device_used_high_bytes")),
            known=known,
            largest=largest,
        )
        tried, safe = found.trials, found.largest_batch_size
    if careful is None or not safe:
        return safe
    return find_largest(
        partial(surely, careful),
        batch_multiple=batch_multiple,
        guess=safe,
        known=[trial for trial in tried if not trial.fits],
        largest=largest,
    ).largest_batch_size
