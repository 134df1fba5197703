"""The engine's decision in each sweep, and its worth there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.regret.sweeps import Point, Sweep
from engine.answer.recommendation import recommend_batch
from engine.interface.trial import Source
from engine.prediction.limits import gain, on_a_slow_host
from engine.prediction.timing.past_errors import percentile

ENOUGH = 0.98
"""The share of the best throughput of a sweep that the recommended batch should reach."""
SLOWER = 0.98
"""A recommended batch below this share of the throughput before is slower."""
AIM = 0.95
"""The share of sweeps in which :data:`ENOUGH` should be reached."""


@dataclass(frozen=True)
class Case:
    """One decision in one sweep.

    Attributes:
        current: The batch size used before; ``None`` to start with.
        recommended: The engine's choice among the batch sizes of the sweep.
        share: Measured throughput of the recommended batch over the best of the sweep.
        gained: The same over that of the current batch; ``None`` to start with.
    """

    current: int | None
    recommended: int
    share: float
    gained: float | None

    @property
    def changes(self) -> bool:
        return self.current is not None and self.recommended != self.current


@dataclass(frozen=True)
class Judged:
    """A sweep with every decision in it.

    Attributes:
        to_start: Without a current batch.
        each: Decisions from each of its batches as the current one, smallest first.
    """

    sweep: Sweep
    to_start: Case
    each: tuple[Case, ...]


@dataclass(frozen=True)
class Shares:
    """Shares of the best throughput that the recommended batch reaches, one for each sweep."""

    median: float
    percentile_5: float
    enough: int

    @classmethod
    def of(cls, shares: Sequence[float]) -> Shares:
        enough = sum(share >= ENOUGH for share in shares)
        return cls(median(shares), percentile(shares, 0.05), enough)


@dataclass(frozen=True)
class Group:
    """Sweeps together.

    Attributes:
        sweeps: Number of sweeps.
        kept: Share with the smallest batch of the sweep, were it kept.
        smallest: Share from that batch on, as recommended.
        to_start: Share as recommended without a current batch.
        decisions: Number of decisions, from each batch of each sweep.
        changes: Number of them that recommend another batch.
        worst: The least gain of a change: measured throughput over that before; ``None`` without
            changes.
        slower: Number of changes that are slower by more than 2%.
        missed: Number of decisions to keep that would have gained 5% or more.
    """

    name: str
    sweeps: int
    kept: Shares
    smallest: Shares
    to_start: Shares
    decisions: int
    changes: int
    worst: float | None
    slower: int
    missed: int


def judge(sweep: Sweep) -> Judged:
    """Decide without a current batch, and from each batch of the sweep."""
    return Judged(
        sweep,
        _decide(sweep, None),
        tuple(_decide(sweep, point.batch_size) for point in sweep.points),
    )


def _decide(sweep: Sweep, current: int | None) -> Case:
    """The engine's decision by predicted speeds; every batch of the sweep surely fits."""
    at: dict[int, Point] = {point.batch_size: point for point in sweep.points}
    sizes = list(at)

    def speed(size: int) -> float:
        return at[size].predicted

    chosen = recommend_batch(
        sizes,
        on_a_slow_host(speed, lambda one: at[one].step),
        current=current,
        largest=sizes[-1],
        safe=sizes[-1],
        gain_at=lambda size: gain(current or size, size, speed, lambda one: at[one].step),
        source=Source.PREDICTED,
    ).batch_size
    measured = at[chosen].measured
    return Case(
        current,
        chosen,
        measured / max(point.measured for point in sweep.points),
        None if current is None else measured / at[current].measured,
    )


def groups(judged: Sequence[Judged]) -> list[Group]:
    """All sweeps, then by source, and by what holds up the smallest batch."""
    return list(_groups(judged))


def _groups(judged: Sequence[Judged]) -> Iterator[Group]:
    yield group("all", judged)
    for source in dict.fromkeys(one.sweep.source for one in judged):
        yield group(source, [one for one in judged if one.sweep.source == source])
    bounds: dict[str, Callable[[Sweep], bool]] = {
        "host-bound at the smallest batch": lambda sweep: sweep.host_bound,
        "GPU-bound at the smallest batch": lambda sweep: not sweep.host_bound,
    }
    for name, belongs in bounds.items():
        if some := [one for one in judged if belongs(one.sweep)]:
            yield group(name, some)


def group(name: str, judged: Sequence[Judged]) -> Group:
    cases = [case for one in judged for case in one.each]
    changes = [case for case in cases if case.changes]
    gains = [case.gained for case in changes if case.gained is not None]
    return Group(
        name=name,
        sweeps=len(judged),
        kept=Shares.of([_share_of_smallest(one) for one in judged]),
        smallest=Shares.of([one.each[0].share for one in judged]),
        to_start=Shares.of([one.to_start.share for one in judged]),
        decisions=len(cases),
        changes=len(changes),
        worst=min(gains, default=None),
        slower=sum(gained < SLOWER for gained in gains),
        missed=sum(_misses(one) for one in judged),
    )


def _share_of_smallest(judged: Judged) -> float:
    points = judged.sweep.points
    return points[0].measured / max(point.measured for point in points)


def _misses(judged: Judged) -> int:
    """The number of decisions that keep a batch although a larger one was measured 5% faster."""
    return sum(
        not case.changes and _best_above(judged.sweep.points, case) >= _MISSED
        for case in judged.each
    )


_MISSED = 1.05


def _best_above(points: Iterable[Point], case: Case) -> float:
    """Throughput of the fastest larger batch over that of the current one; 0 without any."""
    at = {point.batch_size: point.measured for point in points}
    current = case.current or 0
    larger = [speed for size, speed in at.items() if size > current]
    return max(larger, default=0.0) / at[current]
