"""Step times of a training run, taken without waiting for any step."""

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
"""Number of step times kept, as a random sample of all steps. In 19 of 20 cases its median lies
between the true 48.5th and 51.5th percentiles (1.96 · 0.5 / √4096)."""

_MIN_SECONDS = 1e-9


@dataclass(frozen=True)
class Times:
    """A summary of the kept steps; ``None`` where there are too few.

    Attributes:
        step_seconds: Median.
        low, high: Quartiles in seconds; they need two steps.
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
        # A separate generator, so that the training run's random numbers do not change.
        self._random = random.Random(0).random  # noqa: S311  # no secret

    def add(self, seconds: float, samples: int) -> None:
        """Add the time in seconds and the number of samples of a step."""
        self.seen += 1
        if len(self._kept) < self._capacity:
            self._kept.append((seconds, samples))
        elif (place := int(self._random() * self.seen)) < self._capacity:
            self._kept[place] = (seconds, samples)

    def summary(self) -> Times:
        if not self._kept:
            return Times()
        seconds = [max(kept[0], _MIN_SECONDS) for kept in self._kept]
        speed = statistics.median(n / s for s, (_, n) in zip(seconds, self._kept, strict=True))
        if len(seconds) == 1:
            return Times(seconds[0], samples_per_second=speed)
        low, median, high = statistics.quantiles(seconds, n=4, method="inclusive")
        return Times(median, low, high, speed)


class Clock(Protocol):
    """Feeds :class:`StepTimes` with the time of each step."""

    def start(self) -> None:
        """Start the first step."""

    def step(self, samples: int, *, timed: bool) -> None:
        """End a step and start the next; ``timed`` says whether its time counts."""

    def end(self) -> None:
        """Add every finished step that has not been added yet."""


class HostClock:
    """The host's clock, for devices on which a step is over when its call returns."""

    def __init__(self, times: StepTimes) -> None:
        self._times = times
        self._last = 0.0

    def start(self) -> None:
        self._last = perf_counter()

    def step(self, samples: int, *, timed: bool) -> None:
        now = perf_counter()
        if timed:
            self._times.add(now - self._last, samples)
        self._last = now

    def end(self) -> None:
        """Nothing is left to add."""


class EventClock:
    """The GPU's clock: an event at the end of each step, read once the GPU has passed it.

    The host runs ahead of the GPU, by several steps where nothing waits for a value. Its time
    between two calls says little about a single step: if the loss is read every tenth step, nine
    steps look fast and the tenth takes it all. Events are queued behind the work of their step, so
    the time between two of them is right however far ahead the host is, and includes the GPU's
    waiting for data. Nothing waits for an event; they are polled.

    Args:
        times: Receives the step times.
        new_event: Creates a timing event.
        mark: Queues an event on the training stream.
        synchronize: Waits for the device; called only at the start and the end.
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
        self._synchronize()
        self._last = self._marked()

    def step(self, samples: int, *, timed: bool) -> None:
        self._pending.append((self._marked(), samples, timed))
        while self._pending and self._pending[0][0].query():
            self._take()

    def end(self) -> None:
        """Wait for the device and read the remaining events."""
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
