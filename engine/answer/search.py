"""The search for the largest batch that fits, and for the smallest that is fast enough.

All of it is pure: the search sees batch sizes only through a ``probe``, which may predict or
measure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from engine.request import LARGEST_BATCH_SIZE
from engine.result import Trial

_SECANT_PROBES = 4
# Memory figures that lie (or are no straight line) may choose so many probes, not more; then plain
# bisection takes over, which keeps the worst case logarithmic.


@dataclass(frozen=True)
class SearchOutcome:
    """Where the limit is, and the trials that show it.

    Attributes:
        largest_batch_size: The largest that fits; 0 if not even the first multiple does.
        next_batch_size: The next one up, by the batch multiple.
        next_batch_size_fails: Whether that one was tried and does not fit; false only where the
            search ended at its upper bound.
        trials: The known trials, then every trial made, in order.
    """

    largest_batch_size: int
    next_batch_size: int
    next_batch_size_fails: bool
    trials: list[Trial]


@dataclass
class _Bracket:
    """The open interval that holds the limit, in units of the batch multiple.

    ``low`` fits (0 does so trivially), ``high`` does not; where ``high`` is ``bound + 1`` it was
    not tried, and never will be.
    """

    low: int
    high: int
    bound: int

    def narrow(self, units: int, fits: bool) -> None:
        if fits:
            self.low = units
        else:
            self.high = units

    def clamp(self, units: int) -> int:
        return min(max(units, self.low + 1), self.high - 1)

    def step_from(self, last_fits: bool, step: int) -> int:
        """The untried size ``step`` away from the end moved last, at most half way across."""
        if self.high <= self.bound:
            step = min(step, (self.high - self.low) // 2)
        return self.clamp(self.low + step if last_fits else self.high - step)


def find_largest(
    probe: Callable[[int], Trial],
    *,
    batch_multiple: int = 1,
    guess: int | None = None,
    limit_bytes: int | None = None,
    known: Sequence[Trial] = (),
    largest: int = LARGEST_BATCH_SIZE,
) -> SearchOutcome:
    """Find the largest batch size that fits, with as few probes as possible.

    The guess is tried first, then its neighbour on the other side of the limit: a good guess is
    certified with two probes. Where it misses, the memory figures of the trials give a secant step
    straight to the limit; without figures, or after a few such steps, the search moves away
    from the last trial in doubling steps, then bisects. A guess or a memory figure, however
    wrong, costs probes and never the answer.

    Fitting is taken to be monotone. The search tries only sizes above every one that fitted and
    below every one that did not, so its own probes cannot contradict that; whatever the probe
    answers, ``largest_batch_size`` fitted and ``next_batch_size`` did not. Where *known* trials
    contradict it, the smallest failure counts and fits above it are ignored.

    Args:
        probe: Tries one batch size.
        batch_multiple: Only multiples of it are tried.
        guess: Where the limit is expected, if anywhere; rounded down to a multiple.
        limit_bytes: What the caching allocator can have: the line that ``peak_reserved_bytes`` (or
            ``peak_allocated_bytes`` where there is no such allocator) must stay under. Without
            it no secant step is made. (``device_used_bytes`` counts the context too, so it is
            not comparable with this line.)
        known: Trials made before (such as that of the current batch size), not to be repeated.
            Those off the multiples serve with their memory figures only.
        largest: Upper bound of the batch sizes tried.

    Raises:
        ValueError: If no multiple lies within the bound, or the probe answers about another size.
    """
    if not 1 <= batch_multiple <= largest:
        raise ValueError(f"no multiple of {batch_multiple} lies from 1 to {largest}")
    bracket = _bracket(known, batch_multiple, largest // batch_multiple)
    trials = list(known)
    secant_probes = 0
    # With a guess the limit is expected close by; without one nothing is known of the scale.
    step = 1 if guess is not None else max(1, bracket.low)
    first = guess // batch_multiple if guess is not None else 2 * bracket.low

    while bracket.high - bracket.low > 1:
        tried = len(trials) - len(known)
        secant = None
        if tried >= 2 and limit_bytes is not None and secant_probes < _SECANT_PROBES:
            secant = _secant(trials, limit_bytes)
        if tried == 0:
            units = bracket.clamp(first)
        elif secant is not None:
            units = bracket.clamp(secant // batch_multiple)
            secant_probes += 1
        else:
            units = bracket.step_from(trials[-1].fits, step)
            step *= 2
        trial = probe(units * batch_multiple)
        if trial.batch_size != units * batch_multiple:
            raise ValueError(f"asked for {units * batch_multiple}, got {trial.batch_size}")
        trials.append(trial)
        bracket.narrow(units, trial.fits)

    return SearchOutcome(
        largest_batch_size=bracket.low * batch_multiple,
        next_batch_size=bracket.high * batch_multiple,
        next_batch_size_fails=bracket.high <= bracket.bound,
        trials=trials,
    )


def _bracket(known: Sequence[Trial], batch_multiple: int, bound: int) -> _Bracket:
    """What the known trials leave open; the smallest failure outweighs any fit above it."""
    usable = {
        trial.batch_size // batch_multiple: trial.fits
        for trial in known
        if trial.batch_size % batch_multiple == 0 and trial.batch_size // batch_multiple <= bound
    }
    high = min((units for units, fits in usable.items() if not fits), default=bound + 1)
    low = max((units for units, fits in usable.items() if fits and units < high), default=0)
    return _Bracket(low, high, bound)


def _secant(trials: Sequence[Trial], limit_bytes: int) -> int | None:
    """The batch size at which a straight line through two trials meets the limit.

    The line starts at the trial whose memory is nearest to the limit and takes its slope from the
    trial farthest from that one, since neighbours differ by little more than rounding.

    Returns:
        The batch size, rounded down, not bounded; ``None`` where no line rises.
    """
    points = _memory_points(trials, limit_bytes)
    if len(points) < 2:
        return None
    near, near_bytes = min(points.items(), key=lambda point: abs(limit_bytes - point[1]))
    far, far_bytes = max(points.items(), key=lambda point: abs(near - point[0]))
    rise, run = far_bytes - near_bytes, far - near
    if rise * run <= 0:
        return None
    return near + (limit_bytes - near_bytes) * run // rise


def _memory_points(trials: Sequence[Trial], limit_bytes: int) -> dict[int, int]:
    """Peak memory by batch size: reserved where two trials have it, else allocated; never mixed.

    A trial that failed below the limit does not tell what it would have needed, so it is left out.
    """
    reserved = {trial.batch_size: trial.peak_reserved_bytes for trial in trials}
    allocated = {trial.batch_size: trial.peak_allocated_bytes for trial in trials}
    fits = {trial.batch_size: trial.fits for trial in trials}
    for figures in (reserved, allocated):
        points = {
            size: figure
            for size, figure in figures.items()
            if figure is not None and (fits[size] or figure > limit_bytes)
        }
        if len(points) >= 2:
            return points
    return {}


def recommend(
    samples_per_second: Iterable[tuple[int, float]],
    largest: int,
    batch_multiple: int = 1,
    tolerance: float = 0.05,
) -> int:
    """The recommended batch: the smallest one whose speed is within ``tolerance`` of the best.

    Args:
        samples_per_second: Batch sizes with their speed, in any order: the timed trials, or a
            model of the step time evaluated at every multiple.
        largest: The largest batch that fits; sizes above it are left out.
        batch_multiple: Only multiples of it are recommended.
        tolerance: The share of the best speed one is willing to give up.

    Raises:
        ValueError: If no size that can be recommended was given.
    """
    usable = [
        (batch_size, speed)
        for batch_size, speed in samples_per_second
        if 0 < batch_size <= largest and batch_size % batch_multiple == 0
    ]
    if not usable:
        raise ValueError(f"no timed multiple of {batch_multiple} up to {largest}")
    enough = (1 - tolerance) * max(speed for _, speed in usable)
    return min(batch_size for batch_size, speed in usable if speed >= enough)


def fit_step_time(points: Iterable[tuple[int, float]]) -> tuple[float, float]:
    """Fit the step time t(b) = alpha + beta * b by least squares, with alpha, beta >= 0.

    Args:
        points: Batch sizes with the seconds of one step.

    Returns:
        ``alpha`` in seconds per step and ``beta`` in seconds per sample.

    Raises:
        ValueError: If there are fewer than two batch sizes, or a time is not positive.
    """
    timed = list(points)
    if len({batch_size for batch_size, _ in timed}) < 2:
        raise ValueError("times of two different batch sizes at least are needed")
    if not all(seconds > 0 for _, seconds in timed):
        raise ValueError("a step takes more than 0 seconds")
    mean_size = math.fsum(size for size, _ in timed) / len(timed)
    mean_seconds = math.fsum(seconds for _, seconds in timed) / len(timed)
    beta = math.fsum((b - mean_size) * (t - mean_seconds) for b, t in timed) / math.fsum(
        (b - mean_size) ** 2 for b, _ in timed
    )
    alpha = mean_seconds - beta * mean_size
    if beta < 0:
        return mean_seconds, 0.0
    if alpha < 0:
        return 0.0, math.fsum(b * t for b, t in timed) / math.fsum(b * b for b, _ in timed)
    return alpha, beta


def knee(alpha: float, beta: float, share: float = 0.95) -> float:
    """The batch size that reaches ``share`` of the best speed, for t(b) = alpha + beta * b.

    The speed b / t(b) rises towards 1 / beta and is ``share`` of that at
    b = share / (1 - share) * alpha / beta.

    Returns:
        The batch size, not rounded; infinite where ``beta`` is 0 (a step costs the same at any
        size).
    """
    if not 0 < share < 1:
        raise ValueError(f"the share lies between 0 and 1: {share}")
    return share / (1 - share) * alpha / beta if beta > 0 else math.inf
