"""The search for the largest batch that fits.

It is pure: it sees batch sizes only through a ``probe``, which may predict or measure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..interface.request import MAX_BATCH_SIZE
from ..interface.trial import Probe, Trial

_FOLLOWED = 5
# The guess, and memory figures that are wrong (or not linear), choose this many probes at most.
# Then bisection takes over, which keeps the worst case logarithmic.


@dataclass(frozen=True)
class SearchOutcome:
    """The limit, and the trials that show it.

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

    @property
    def in_order(self) -> list[Trial]:
        """The trials by batch size, each once."""
        found = {trial.batch_size: trial for trial in self.trials}
        return [found[batch_size] for batch_size in sorted(found)]


@dataclass
class _Bracket:
    """The open interval that holds the limit, in units of the batch multiple.

    ``low`` fits (0 trivially) and ``high`` does not. A ``high`` of ``bound + 1`` is never tried.
    """

    low: int
    high: int
    bound: int

    def narrow(self, units: int, fits: bool) -> None:
        if fits:
            self.low = units
        else:
            self.high = units

    def holds(self, units: int) -> bool:
        return self.low < units < self.high

    def clamp(self, units: int) -> int:
        return min(max(units, self.low + 1), self.high - 1)

    def step_from(self, upwards: bool, step: int) -> int:
        """The untried size ``step`` above the low end or below the high, at most half across."""
        if self.high <= self.bound:
            step = min(step, (self.high - self.low) // 2)
        return self.clamp(self.low + step if upwards else self.high - step)


def find_largest(
    probe: Probe,
    *,
    batch_multiple: int = 1,
    guess: int | None = None,
    expect: Callable[[Sequence[Trial]], int] | None = None,
    limit_bytes: int | None = None,
    known: Sequence[Trial] = (),
    largest: int = MAX_BATCH_SIZE,
) -> SearchOutcome:
    """Find the largest batch size that fits, with as few probes as possible.

    The guess is tried first, then its neighbour on the other side of the limit, so a good guess is
    certified with two probes. Where it misses, the memory figures of the trials give a secant step
    to the limit. Without figures, or after a few such steps, the search moves away from the last
    trial in doubling steps, then bisects. A wrong guess or memory figure costs probes, never the
    right answer.

    With ``expect`` there is a new guess before each probe. Where the trials contradict it, the
    search steps away from the end of the open range that it lies beyond, by one and then doubling,
    since packing moves the limit by a few samples in ways that no guess sees.

    Fitting is assumed to be monotone. The search tries only sizes above every one that fitted and
    below every one that did not, so its own probes cannot contradict that: whatever the probe
    returns, ``largest_batch_size`` fitted and ``next_batch_size`` did not. Where *known* trials
    contradict it, the smallest failure counts and fits above it are ignored.

    Args:
        probe: Tries one batch size.
        batch_multiple: Only multiples of it are tried.
        guess: The expected limit, if there is one; rounded down to a multiple.
        expect: The expected limit in the light of all trials so far, instead of a guess and
            secants; rounded down to a multiple.
        limit_bytes: Limit of the caching allocator, which ``peak_reserved_bytes`` (or
            ``peak_allocated_bytes`` where there is no such allocator) must not exceed. Without it
            no secant step is made. (``device_used_bytes`` includes the context, so it is not
            comparable.)
        known: Trials made before (such as that of the current batch size), not to be repeated.
            Of those that are no multiples only the memory figures are used.
        largest: Upper bound of the batch sizes tried.

    Raises:
        ValueError: If no multiple lies within the bound, or the probe returns another size's trial.
    """
    if not 1 <= batch_multiple <= largest:
        raise ValueError(f"no multiple of {batch_multiple} lies from 1 to {largest}")
    bracket = _bracket(known, batch_multiple, largest // batch_multiple)
    trials = list(known)
    followed = 0
    # With a guess the limit is probably close; without one not even its scale is known.
    step = 1 if guess is not None or expect is not None else max(1, bracket.low)
    first = guess // batch_multiple if guess is not None else 2 * bracket.low

    while bracket.high - bracket.low > 1:
        tried = len(trials) - len(known)
        expected = None
        if expect is not None and followed < _FOLLOWED:
            expected = min(expect(trials) // batch_multiple, bracket.bound)
        elif tried == 0:
            expected = bracket.clamp(first)
        elif tried >= 2 and limit_bytes is not None and followed < _FOLLOWED:
            secant = _secant(_memory_points(trials, limit_bytes), limit_bytes)
            expected = None if secant is None else bracket.clamp(secant // batch_multiple)
        if expected is not None and bracket.holds(expected):
            units = expected
            followed += 1
        else:
            upwards = trials[-1].fits if expected is None else expected <= bracket.low
            units = bracket.step_from(upwards, step)
            step *= 2
        trial = probe(units * batch_multiple)
        if trial.batch_size != units * batch_multiple:
            raise ValueError(f"tried {units * batch_multiple}, got {trial.batch_size}")
        trials.append(trial)
        bracket.narrow(units, trial.fits)

    return SearchOutcome(
        largest_batch_size=bracket.low * batch_multiple,
        next_batch_size=bracket.high * batch_multiple,
        next_batch_size_fails=bracket.high <= bracket.bound,
        trials=trials,
    )


def _bracket(known: Sequence[Trial], batch_multiple: int, bound: int) -> _Bracket:
    """The interval that known trials leave; the smallest failure outweighs any fit above it."""
    usable = {
        trial.batch_size // batch_multiple: trial.fits
        for trial in known
        if trial.batch_size % batch_multiple == 0 and trial.batch_size // batch_multiple <= bound
    }
    high = min((units for units, fits in usable.items() if not fits), default=bound + 1)
    low = max((units for units, fits in usable.items() if fits and units < high), default=0)
    return _Bracket(low, high, bound)


def line_to(
    limit_bytes: int, used: Callable[[Trial], int | None]
) -> Callable[[Sequence[Trial]], int]:
    """Expect the largest batch where a straight line through the trials' memory meets the limit.

    One trial gives the line through it and no memory at batch 0, which ends below the limit, since
    weights take memory at any batch.

    Args:
        limit_bytes: The most that a batch that fits uses.
        used: Bytes that a trial uses, also of one that does not fit; ``None`` where not known.

    Returns:
        The ``expect`` argument of :func:`find_largest`. Where no line rises, it expects the last
        trial, from which the search then moves away; before the first one, nothing.
    """

    def expect(trials: Sequence[Trial]) -> int:
        figures = {trial.batch_size: used(trial) for trial in trials}
        fits = {trial.batch_size: trial.fits for trial in trials}
        points = _telling(figures, fits, limit_bytes)
        if len(points) == 1:
            ((size, taken),) = points.items()
            return size * limit_bytes // taken if taken > 0 else size
        crossing = _secant(points, limit_bytes)
        last = trials[-1].batch_size if trials else 0
        return last if crossing is None else crossing

    return expect


def _secant(points: Mapping[int, int], limit_bytes: int) -> int | None:
    """The batch size at which a straight line through two points meets the limit.

    The line starts at the point whose memory is nearest to the limit and takes its slope from the
    one farthest from that, since neighbours differ by little more than rounding.

    Args:
        points: Bytes by batch size.
        limit_bytes: The limit.

    Returns:
        The batch size, rounded down, not bounded; ``None`` where no line rises.
    """
    if len(points) < 2:
        return None
    near, near_bytes = min(points.items(), key=lambda point: abs(limit_bytes - point[1]))
    far, far_bytes = max(points.items(), key=lambda point: abs(near - point[0]))
    rise, run = far_bytes - near_bytes, far - near
    if rise * run <= 0:
        return None
    return near + (limit_bytes - near_bytes) * run // rise


def _memory_points(trials: Sequence[Trial], limit_bytes: int) -> Mapping[int, int]:
    """Peak memory by batch size: reserved if two trials have it, else allocated; never mixed."""
    reserved = {trial.batch_size: trial.peak_reserved_bytes for trial in trials}
    allocated = {trial.batch_size: trial.peak_allocated_bytes for trial in trials}
    fits = {trial.batch_size: trial.fits for trial in trials}
    for figures in (reserved, allocated):
        points = _telling(figures, fits, limit_bytes)
        if len(points) >= 2:
            return points
    return {}


def _telling(
    figures: Mapping[int, int | None], fits: Mapping[int, bool], limit_bytes: int
) -> Mapping[int, int]:
    """The bytes by batch size that say what was needed.

    A failed trial with a figure below the limit does not, so it is left out.
    """
    return {
        size: figure
        for size, figure in figures.items()
        if figure is not None and (fits[size] or figure > limit_bytes)
    }
