"""How long the steps of a training take, without waiting for any of them."""

from __future__ import annotations

import random
import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

KEPT_STEPS = 4096
"""So many steps' times are kept of a training of any length: a random sample of all of them. Its
median lies, 19 times of 20, between the true 48.5th and 51.5th percentile (1.96 · 0.5 / √4096)."""

_SHORTEST = 1e-9


@dataclass(frozen=True)
class Times:
    """What the kept steps say; ``None`` where there are too few.

    Attributes:
        step_seconds: Median.
        low, high: Quartiles, in seconds; from two steps on.
        samples_per_second: Median.
    """

    step_seconds: float | None = None
    low: float | None = None
    high: float | None = None
    samples_per_second: float | None = None


class StepTimes:
    """Times of steps in bounded memory, by reservoir sampling (algorithm R of Vitter, 1985)."""

    def __init__(self, capacity: int = KEPT_STEPS) -> None:
        self.seen = 0
        self._capacity = capacity
        self._kept: list[tuple[float, int]] = []
        # A generator of its own: a training's random numbers stay what they are without us.
        self._random = random.Random(0).random  # noqa: S311  # no secret

    def add(self, seconds: float, samples: int) -> None:
        """Add the time of a step and the samples it had."""
        self.seen += 1
        if len(self._kept) < self._capacity:
            self._kept.append((seconds, samples))
        elif (place := int(self._random() * self.seen)) < self._capacity:
            self._kept[place] = (seconds, samples)

    def summary(self) -> Times:
        """Median and quartiles of what was kept."""
        if not self._kept:
            return Times()
        seconds = [max(kept[0], _SHORTEST) for kept in self._kept]
        speed = statistics.median(n / s for s, (_, n) in zip(seconds, self._kept, strict=True))
        if len(seconds) == 1:
            return Times(seconds[0], samples_per_second=speed)
        low, median, high = statistics.quantiles(seconds, n=4, method="inclusive")
        return Times(median, low, high, speed)


class Clock(Protocol):
    """Tells :class:`StepTimes` how long each step took."""

    def start(self) -> None:
        """Begin the first step."""

    def step(self, samples: int, *, timed: bool) -> None:
        """End a step and begin the next; ``timed`` says whether its time counts."""

    def end(self) -> None:
        """Tell of every step that has ended and was not told of yet."""


class HostClock:
    """The host's time, for devices on which a step is over when its call returns."""

    def __init__(self, times: StepTimes) -> None:
        self._times = times
        self._last = 0.0

    def start(self) -> None:
        """Begin the first step."""
        self._last = perf_counter()

    def step(self, samples: int, *, timed: bool) -> None:
        """End a step and begin the next."""
        now = perf_counter()
        if timed:
            self._times.add(now - self._last, samples)
        self._last = now

    def end(self) -> None:
        """Nothing is left to be told."""


class EventClock:
    """The GPU's own time, by an event at the end of each step that is read once it has passed.

    A host runs ahead of its GPU, by several steps where nothing waits for a value, so the host's
    time between two calls says little about a single step: where a loss is read every tenth step,
    nine look fast and the tenth bears all. Events stand in the GPU's queue behind the work of their
    step, so the time between two of them is right however far the host is ahead, and includes what
    the GPU waits for data. Reading is never waited for: events are asked whether they have passed.

    Args:
        times: Is told.
        new_event: Makes an event that takes the time.
        mark: Puts an event into the queue of the training's stream.
        synchronize: Waits for the device; done at the start and the end only.
    """

    def __init__(
        self,
        times: StepTimes,
        new_event: Callable[[], Any],
        mark: Callable[[Any], None],
        synchronize: Callable[[], None],
    ) -> None:
        self._times = times
        self._new_event = new_event
        self._mark = mark
        self._synchronize = synchronize
        self._last: Any = None
        self._pending: deque[tuple[Any, int, bool]] = deque()
        self._spare: list[Any] = []

    def start(self) -> None:
        """Begin the first step."""
        self._synchronize()
        self._last = self._marked()

    def step(self, samples: int, *, timed: bool) -> None:
        """End a step and begin the next."""
        self._pending.append((self._marked(), samples, timed))
        while self._pending and self._pending[0][0].query():
            self._take()

    def end(self) -> None:
        """Wait for the device and read what is left."""
        self._synchronize()
        while self._pending:
            self._take()

    def _marked(self) -> Any:
        event = self._spare.pop() if self._spare else self._new_event()
        self._mark(event)
        return event

    def _take(self) -> None:
        event, samples, timed = self._pending.popleft()
        if timed:
            self._times.add(self._last.elapsed_time(event) / 1000, samples)
        self._spare.append(self._last)
        self._last = event


def clock_for(device: torch.device, times: StepTimes) -> Clock:
    """The clock of a device."""
    import torch

    if device.type == "cuda":
        return EventClock(
            times,
            lambda: torch.cuda.Event(enable_timing=True),
            lambda event: event.record(torch.cuda.current_stream(device)),
            lambda: torch.cuda.synchronize(device),
        )
    if device.type == "mps":
        return EventClock(
            times,
            lambda: torch.mps.Event(enable_timing=True),
            lambda event: event.record(),
            torch.mps.synchronize,
        )
    return HostClock(times)
