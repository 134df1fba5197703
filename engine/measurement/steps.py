"""How many steps a trial runs, what is made of their times, and how a lack of memory is told."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.measurement.protocol import RecordedStep
from engine.prediction.timeline import largest_tensors, timeline
from engine.result import Trial
from engine.tracing.trace import Trace

WARM_UP_STEPS = 2
"""Not timed: the first builds the optimizer's state, the second is the first with it."""
TIMED_STEPS = 5
ENOUGH_SECONDS = 10.0
"""A slow device stops early, with one timed step at least, so that three have run in all."""
MODEL = "model"
"""The phase before there is anything to step: moving the model to the device."""


@dataclass(frozen=True)
class StepTimes:
    """Times of the steps of one trial, in seconds.

    Attributes:
        median: Of all of them.
        low, high: The quartiles; ``None`` where a single step was timed.
    """

    median: float
    low: float | None
    high: float | None


def time_steps(
    timed_step: Callable[[], float], agree: Callable[[float], float] = lambda seconds: seconds
) -> StepTimes:
    """The times of up to :data:`TIMED_STEPS` steps.

    Args:
        timed_step: Runs one step and returns its seconds.
        agree: Of these, gives what all GPUs that share the step take it for.
    """
    seconds: list[float] = []
    while len(seconds) < TIMED_STEPS and (not seconds or sum(seconds) < ENOUGH_SECONDS):
        seconds.append(agree(timed_step()))
    if len(seconds) == 1:
        return StepTimes(seconds[0], None, None)
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return StepTimes(median, low, high)


def with_times(trial: Trial, times: StepTimes, samples_per_step: int) -> Trial:
    """A trial that fits, with how long its steps took."""
    return replace(
        trial,
        step_seconds=times.median,
        samples_per_second=samples_per_step / times.median,
        step_seconds_low=times.low,
        step_seconds_high=times.high,
    )


def recorded_step(trace: Trace) -> RecordedStep:
    """Where memory went along the last step of a trace."""
    return RecordedStep(timeline(trace), largest_tensors(trace), trace.peak_by_category()[1])


def out_of_memory_in(phase: str) -> str:
    """Where memory ran out, in words."""
    places = {
        MODEL: "moving the model to the device",
        "inputs": "moving the batch to the device",
        "forward": "the forward pass",
        "backward": "the backward pass",
        "optimizer": "the optimizer step",
    }
    return f"out of memory in {places.get(phase, places[MODEL])}"
