"""Step times of a training run: correct in bounded memory, and without waiting for the GPU."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.recording.clocks import EventClock, HostClock, StepTimes, Times


@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=200))
def test_up_to_the_capacity_median_and_quartiles_are_exact(seconds: list[float]) -> None:
    times = StepTimes(capacity=200)
    for one in seconds:
        times.add(one, 8)
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive")
    found = times.summary()
    assert (found.low, found.step_seconds, found.high) == (low, median, high)


def test_a_run_of_any_length_is_sampled_fairly_in_bounded_memory() -> None:
    times = StepTimes(capacity=512)
    for step in range(50_000):
        times.add(1 + step, 1)
    assert times.seen == 50_000
    assert len(times._kept) == 512
    # With only the first or last steps, the median would lie at one end.
    assert times.summary().step_seconds == pytest.approx(25_000, rel=0.15)


def test_one_step_has_no_quartiles_and_no_step_has_no_times() -> None:
    times = StepTimes()
    assert times.summary() == Times()
    times.add(0.5, 8)
    assert times.summary() == Times(0.5, None, None, 16.0)


def test_the_speed_is_that_of_each_steps_own_samples() -> None:
    times = StepTimes()
    for seconds, samples in ((1.0, 10), (2.0, 40), (3.0, 30)):
        times.add(seconds, samples)
    assert times.summary().samples_per_second == 10.0


def test_a_step_too_short_for_the_clock_does_not_divide_by_zero() -> None:
    times = StepTimes()
    times.add(0.0, 1)
    assert times.summary().samples_per_second == pytest.approx(1e9)


def test_the_hosts_clock_leaves_out_excluded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.0, 11.0, 13.0])
    monkeypatch.setattr("engine.recording.clocks.perf_counter", lambda: next(now))
    times = StepTimes()
    clock = HostClock(times)
    clock.start()
    for timed in (True, False, True):
        clock.step(4, timed=timed)
    clock.end()
    assert times.seen == 2
    assert times.summary().step_seconds == 1.5


@dataclass
class _Gpu:
    """A GPU that works through its queue and counts the waits for it."""

    seconds_per_step: float
    queued: float = 0.0
    done: float = 0.0
    waits: int = 0
    made: list[_Event] = field(default_factory=list)

    def work(self) -> None:
        self.queued += self.seconds_per_step

    def event(self) -> _Event:
        self.made.append(_Event(self))
        return self.made[-1]

    def synchronize(self) -> None:
        self.waits += 1
        self.done = self.queued


@dataclass
class _Event:
    gpu: _Gpu
    at: float = -1.0

    def record(self) -> None:
        self.at = self.gpu.queued

    def query(self) -> bool:
        return self.at <= self.gpu.done

    def elapsed_time(self, other: _Event) -> float:
        assert self.query()
        assert other.query()
        return 1000 * (other.at - self.at)


def _clock(gpu: _Gpu, times: StepTimes) -> EventClock:
    return EventClock(times, gpu.event, lambda event: event.record(), gpu.synchronize)


def test_a_host_ahead_of_its_gpu_does_not_make_steps_look_fast() -> None:
    gpu, times = _Gpu(seconds_per_step=0.25), StepTimes()
    clock = _clock(gpu, times)
    clock.start()
    for _ in range(100):  # all queued before the GPU does anything
        gpu.work()
        clock.step(8, timed=True)
    assert times.seen == 0
    clock.end()
    assert times.seen == 100
    assert times.summary() == Times(0.25, 0.25, 0.25, 32.0)


def test_the_gpu_is_only_waited_for_at_the_start_and_the_end() -> None:
    gpu, times = _Gpu(seconds_per_step=0.25), StepTimes()
    clock = _clock(gpu, times)
    clock.start()
    for step in range(1000):
        gpu.work()
        gpu.done = gpu.queued - 0.5  # two steps behind
        clock.step(8, timed=step % 10 != 0)
    assert times.seen > 800  # recorded while training runs
    assert len(gpu.made) < 10  # events are reused
    clock.end()
    assert gpu.waits == 2
    assert times.seen == 900
