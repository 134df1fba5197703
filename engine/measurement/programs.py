"""Trials of a program: it runs by itself in this process, which ends once enough steps have ended.

What a device has to do for that is its ``Watch``; the trial's process has nothing else to do, so
the program may leave it in any state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import NoReturn, Protocol

from ..core.errors import EngineError
from ..interface.trial import Trial
from ..script.data.loaders import Loaders
from ..script.factory import ScriptFailed
from ..script.process.metrics import go_without_metrics
from ..script.process.running import ProgramSteps
from ..script.process.sandbox import keep_quiet
from ..script.process.unlike_steps import STEPS
from ..script.program import Program
from ..tracing.recorder import MemoryRecorder
from ..tracing.trace import Trace
from .protocol import RecordedStep, TrialOrder
from .steps import recorded_step

End = Callable[[], NoReturn]
"""Hands over what was found, and ends the process."""


class Watch(Protocol):
    """Watches the steps of a program on one kind of device."""

    recorded: bool
    """Whether a recorder sees its tensors, so that its batches have to arrive in its sight."""

    def around(self, steps: ProgramSteps) -> AbstractContextManager[object]:
        """Context of the whole run."""

    def step_ended(self, number: int) -> bool:
        """Take a step's figures; whether no more are needed."""

    def trial(self) -> Trial | None:
        """The trial; ``None`` before there have been enough steps for one."""

    def out_of_memory(self, error: BaseException, where: str) -> Trial | None:
        """The trial that ran out of memory; ``None`` if the error is another."""


def run_program(order: TrialOrder, watch: Watch, done: Callable[[Trial], NoReturn]) -> NoReturn:
    """Run the program of an order until its trial is there.

    Args:
        order: Its workload is a program.
        watch: The device's.
        done: Takes the trial and ends the process.

    Raises:
        ScriptFailed: If it fails, or ends too early.
    """
    program = _program(order)

    def step_ended(number: int) -> End | None:
        trial = watch.trial() if watch.step_ended(number) else None
        return None if trial is None else partial(done, trial)

    try:
        _run(order, step_ended, watch.around, watch.recorded)
    except ScriptFailed:
        if trial := watch.trial():
            done(trial)
        raise
    except EngineError:
        raise
    except (Exception, SystemExit) as error:
        if trial := watch.out_of_memory(error, program.where(error)):
            done(trial)
        raise ScriptFailed(f"{program.name} failed{program.describe(error)}") from error


def record_program(
    order: TrialOrder,
    recorder_of: Callable[[TrialOrder, ProgramSteps], tuple[MemoryRecorder, Callable[[], Trace]]],
    done: Callable[[RecordedStep], NoReturn],
) -> NoReturn:
    """Run the program of an order, and report where memory goes over a step.

    Args:
        order: Its workload is a program.
        recorder_of: Makes the device's recorder of steps, and what gives its trace.
        done: Takes the step and ends the process.
    """
    ended: list[Callable[[int], End | None]] = []

    @contextmanager
    def around(steps: ProgramSteps) -> Iterator[None]:
        recorder, trace = recorder_of(order, steps)

        def step_ended(number: int) -> End | None:
            recorder.end_step()
            if number == STEPS:
                return partial(done, recorded_step(trace()))
            recorder.begin_step()
            return None

        ended.append(step_ended)
        with recorder.recording():
            yield

    _run(order, lambda number: ended[0](number), around, recorded=True)


def run_to_first_step(order: TrialOrder, then: Callable[[], NoReturn]) -> NoReturn:
    """Run the program of an order until its first step has ended, with everything set up."""
    _run(order, lambda _number: then, lambda _steps: nullcontext(), recorded=False)


def _run(
    order: TrialOrder,
    step_ended: Callable[[int], End | None],
    around: Callable[[ProgramSteps], AbstractContextManager[object]],
    recorded: bool,
) -> NoReturn:
    program = _program(order)
    kept = keep_quiet()
    go_without_metrics()
    loaders = Loaders(program.loaders, order.batch_size)

    def ended() -> None:
        kept.training_begins()
        if (end := step_ended(steps.ended)) is not None:
            kept.remove()
            end()

    steps = ProgramSteps(program, order.batch_size, ended)
    # Operators are watched only where a recorder slows them down anyway: others are timed.
    watched = steps.by_hand.on_real_tensors() if recorded else nullcontext()
    try:
        with loaders.followed(at_home=recorded), watched, around(steps):
            steps.run()
    finally:
        kept.remove()


def _program(order: TrialOrder) -> Program:
    if not isinstance(order.workload, Program):
        raise TypeError("not an order for a program")
    return order.workload
