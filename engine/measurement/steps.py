"""How many steps a trial runs, what is made of their times, and how a lack of memory is told."""

from __future__ import annotations

import statistics
from collections.abc import Callable

WARM_UP_STEPS = 2
"""Not timed: the first builds the optimizer's state, the second is the first with it."""
TIMED_STEPS = 5
ENOUGH_SECONDS = 10.0
"""A slow device stops early, with one timed step at least, so that three have run in all."""
MODEL = "model"
"""The phase before there is anything to step: moving the model to the device."""


def median_seconds(timed_step: Callable[[], float]) -> float:
    """The median time of up to :data:`TIMED_STEPS` steps.

    Args:
        timed_step: Runs one step and returns its seconds.
    """
    seconds: list[float] = []
    while len(seconds) < TIMED_STEPS and (not seconds or sum(seconds) < ENOUGH_SECONDS):
        seconds.append(timed_step())
    return statistics.median(seconds)


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
