"""The device, precision and number of processes that Accelerate found, kept per process.

It refuses another precision for as long as the process lives, and keeps that it was alone.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

from ...versions.patches import emptied


@contextmanager
def fresh_accelerate() -> Iterator[None]:
    """Let Accelerate find everything out anew, for as long as the context lasts."""
    with ExitStack() as stack:
        if find_spec("accelerate") is not None:
            for owner in _states_of(importlib.import_module("accelerate.state")):
                stack.enter_context(
                    emptied(
                        owner._shared_state,
                        why="it keeps device and precision, and refuses another precision",
                    )
                )
        yield


def forget_accelerate() -> None:
    """The same for good: for a program that runs in a fork, as in a process of its own.

    Training that was set up before the fork keeps it: a Trainer's Accelerator reads it still.
    """
    if (state := sys.modules.get("accelerate.state")) is not None:
        for owner in _states_of(state):
            owner._shared_state.clear()


def _states_of(state: Any) -> tuple[Any, ...]:
    return state.PartialState, state.AcceleratorState, state.GradientState
