"""The operators and kernels of one real step, as PyTorch's profiler sees them.

Profiling slows a step down, so nothing is timed here beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.profiler import profile

from ..interface.trial import Source, Trial
from ..script.process.running import ProgramSteps
from .environment import device_kind
from .protocol import TrialOrder
from .steps import WARM_UP_STEPS, steps_of


def profile_step(order: TrialOrder) -> Trial:
    """Run real steps, and write a trace of the last one that Chrome and Perfetto open.

    Of a group it is the first GPU's.

    Args:
        order: A trial that fits; its ``file`` takes the trace.
    """
    steps = steps_of(order)
    steps.build(device_kind())
    for move in (steps.begin, *[steps.step] * WARM_UP_STEPS):
        move()
    with profile(record_shapes=True) as profiler:
        steps.step()
    _write(profiler, order)
    return _trial(order)


class ProfileWatch:
    """Writes the trace of one step of a program, after its first ones.

    Args:
        order: For a trial of a program that fits; its ``file`` takes the trace.
    """

    recorded = False

    def __init__(self, order: TrialOrder) -> None:
        self._order = order
        self._profiler = profile(record_shapes=True)
        self._is_done = False

    @contextmanager
    def around(self, steps: ProgramSteps) -> Iterator[None]:
        yield

    def step_ended(self, number: int) -> bool:
        if number == WARM_UP_STEPS:
            self._profiler.start()
        elif number > WARM_UP_STEPS:
            self._profiler.stop()
            _write(self._profiler, self._order)
            self._is_done = True
        return self._is_done

    def trial(self) -> Trial | None:
        return _trial(self._order) if self._is_done else None

    def out_of_memory(self, error: BaseException, where: str) -> Trial | None:
        return None


def _write(profiler: profile, order: TrialOrder) -> None:
    if order.rank == 0:
        profiler.export_chrome_trace(order.file)


def _trial(order: TrialOrder) -> Trial:
    return Trial(order.batch_size, fits=True, source=Source.MEASURED)
