"""A trial on an Apple GPU. Metal keeps no peak counters, so they are read after every operation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..interface.trial import Source, Trial
from ..script.process.running import ProgramSteps
from .protocol import DeviceFacts, TrialOrder
from .steps import (
    WARM_UP_STEPS,
    enough,
    steps_of,
    time_steps,
    times_of,
    with_times,
)


class PeakSampler(TorchDispatchMode):
    """Reads MPS's counters after every operation and keeps the highest readings."""

    def __init__(self) -> None:
        super().__init__()
        self.allocated_bytes = 0
        self.reserved_bytes = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        self.allocated_bytes = max(self.allocated_bytes, torch.mps.current_allocated_memory())
        self.reserved_bytes = max(self.reserved_bytes, torch.mps.driver_allocated_memory())
        return output


def facts() -> DeviceFacts:
    """The GPU, with the share of the machine's memory that Metal recommends for it."""
    return DeviceFacts("mps", "Apple GPU", torch.mps.recommended_max_memory(), 0, 0.0)


def run_trial(order: TrialOrder) -> Trial:
    """Run real steps; running out of GPU memory anywhere in them is a result.

    Args:
        order: The trial to run.
    """
    _limit(order)
    steps = steps_of(order)
    sampler = PeakSampler()
    try:
        steps.build("mps")
        with sampler:
            steps.begin()
            for _ in range(WARM_UP_STEPS):
                steps.step()
        times = time_steps(lambda: _timed(steps.step))
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        where = steps.out_of_memory(error)
        return replace(_trial(order, sampler), fits=False, failure=where)
    return with_times(_trial(order, sampler), times, order.samples_per_step)


class ProgramWatch:
    """Reads MPS's counters while the first steps of a program run, and times those after them.

    Args:
        order: For the trial of a program.
    """

    recorded = False

    def __init__(self, order: TrialOrder) -> None:
        self._order = order
        self._sampler = PeakSampler()
        self._sampling = ExitStack()
        self._seconds: list[float] = []
        self._begin = 0.0

    @contextmanager
    def around(self, steps: ProgramSteps) -> Iterator[None]:
        _limit(self._order)
        with self._sampling:
            self._sampling.enter_context(self._sampler)
            yield

    def step_ended(self, number: int) -> bool:
        torch.mps.synchronize()
        if number > WARM_UP_STEPS:
            self._seconds.append(time.perf_counter() - self._begin)
        elif number == WARM_UP_STEPS:
            self._sampling.close()
        self._begin = time.perf_counter()
        return enough(self._seconds)

    def trial(self) -> Trial | None:
        if not self._seconds:
            return None
        trial = _trial(self._order, self._sampler)
        return with_times(trial, times_of(self._seconds), self._order.samples_per_step)

    def out_of_memory(self, error: BaseException, where: str) -> Trial | None:
        if not (isinstance(error, RuntimeError) and "out of memory" in str(error)):
            return None
        failure = f"out of memory{where}"
        return replace(_trial(self._order, self._sampler), fits=False, failure=failure)


def _limit(order: TrialOrder) -> None:
    """Limit the allocator; beyond the recommended memory Metal swaps, and steps take forever."""
    recommended = torch.mps.recommended_max_memory()
    limit = min(order.memory_limit_bytes or recommended, recommended)
    torch.mps.set_per_process_memory_fraction(limit / recommended)


def _timed(step: Callable[[], None]) -> float:
    torch.mps.synchronize()
    begin = time.perf_counter()
    step()
    torch.mps.synchronize()
    return time.perf_counter() - begin


def _trial(order: TrialOrder, sampler: PeakSampler) -> Trial:
    return Trial(
        batch_size=order.batch_size,
        fits=True,
        source=Source.MEASURED,
        peak_allocated_bytes=sampler.allocated_bytes,
        peak_reserved_bytes=sampler.reserved_bytes,
        device_used_bytes=sampler.reserved_bytes,
    )
