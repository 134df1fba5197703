"""Starts fresh processes for every trial, so that none inherits anything from another.

There is one process per GPU. The processes of several GPUs work together, and their trials are
merged into one.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput, MeasurementFailed
from ..interface.result import MeasuredOn
from ..interface.trial import Source, Trial
from .protocol import GAVE_UP, DeviceFacts, RecordedStep, TrialOrder, order_line
from .trial_process import Ended, libraries

CHILD = [sys.executable, "-m", __package__]

DEADLINE_SECONDS = 300.0
"""A trial that takes longer is considered hung, and stopped."""
GRACE_SECONDS = 5.0
"""Once one has failed, the others get this long to report why before they are killed."""


def local_device() -> DeviceFacts:
    """The device of this machine: CUDA, else MPS, else the CPU.

    A separate process finds out, so that the caller never holds a CUDA context.

    Raises:
        MeasurementFailed: If the device does not answer.
    """
    return DeviceFacts(**_ask("facts", [""])[0])


def measure(order: TrialOrder) -> Trial:
    """Run one trial on the local device, or on several that share the work.

    Raises:
        MeasurementFailed: If it failed for a reason other than memory.
    """
    try:
        answers = _ask_for("trial", order)
    except _Killed:
        return Trial(
            batch_size=order.batch_size,
            fits=False,
            source=Source.MEASURED,
            failure="the operating system killed the trial; most likely host memory ran out",
        )
    return _trial_of(answers)


def record(order: TrialOrder) -> RecordedStep:
    """Record every tensor of one step where an order fits, on the first GPU if there are several.

    Raises:
        MeasurementFailed: If the step failed.
    """
    return RecordedStep.parse(_ask_for("recording", order)[0])


def snapshot(order: TrialOrder, file: Path) -> Trial:
    """Run a trial that times nothing, and write the allocator's snapshot of it into a file.

    Of several GPUs it is that of the first. A trial that runs out of memory has one too.

    Args:
        order: The trial to run, on CUDA.
        file: Takes what ``torch.cuda.memory._snapshot`` gives, pickled.

    Raises:
        MeasurementFailed: If it failed for a reason other than memory.
    """
    return _trial_of(_ask_for("snapshot", replace(order, file=os.fspath(file.resolve()))))


def profile(order: TrialOrder, file: Path) -> Trial:
    """Run a trial that times nothing, and write a trace of one of its steps into a file.

    Of several GPUs it is that of the first.

    Args:
        order: The trial to run, which fits.
        file: Takes the operators and kernels, as PyTorch's profiler writes them for Chrome.

    Raises:
        MeasurementFailed: If it failed.
    """
    return _trial_of(_ask_for("profile", replace(order, file=os.fspath(file.resolve()))))


def measured_on(order: TrialOrder) -> MeasuredOn:
    """Environment of a trial like this one, which fits.

    Raises:
        MeasurementFailed: If it cannot be built.
    """
    return MeasuredOn(**_ask_for("environment", order)[0])


def measure_first_run(order: TrialOrder, compiled: Path) -> dict[str, Any]:
    """Time a first step and those after it: the fields of ``compilation.FirstRun``.

    Args:
        order: The trial to run.
        compiled: The compiler's cache folder; an empty one makes it compile everything.

    Raises:
        InvalidInput: If several GPUs share the work.
        OutOfTime: If it took longer than :data:`DEADLINE_SECONDS`.
        MeasurementFailed: If a step failed, including for lack of memory.
    """
    if order.world_size > 1:
        raise InvalidInput(
            {"parallelism": "a first step is timed on one GPU; leave parallelism out"}
        )
    environment = _environment(order.allocator) | {"TORCHINDUCTOR_CACHE_DIR": str(compiled)}
    return _ask("first-run", [order.to_json()], environment)[0]


class _Killed(MeasurementFailed):
    """The process was killed, but not by us."""


def _ask_for(what: str, order: TrialOrder) -> dict[int, dict[str, Any]]:
    """Ask one process per GPU of the order; see :func:`_ask`."""
    if order.world_size == 1:
        return _ask(what, [order.to_json()], _environment(order.allocator))
    with tempfile.TemporaryDirectory() as folder:
        met = str(Path(folder, "met"))
        orders = [
            replace(order, rank=rank, meeting_file=met).to_json()
            for rank in range(order.world_size)
        ]
        return _ask(what, orders, _environment(order.allocator))


def _ask(
    what: str, orders: list[str], environment: dict[str, str] | None = None
) -> dict[int, dict[str, Any]]:
    """The answers of processes that work together.

    Raises:
        OutOfTime: If they took longer than :data:`DEADLINE_SECONDS`.

    Returns:
        By their number; only those that gave up, if any did.
    """
    try:
        lines = [order_line(what, order) for order in orders]
        ended = run_together(CHILD, lines, environment or os.environ, DEADLINE_SECONDS)
    except OutOfTime as error:
        raise OutOfTime(
            f"the {what} did not end within {DEADLINE_SECONDS:.0f} s and was stopped"
        ) from error
    # The others may have failed only because one gave up, so its answer takes precedence.
    answered = {number: end for number, end in ended.items() if end.status == GAVE_UP}
    if not answered:
        for end in ended.values():
            _check(what, end)
        answered = ended
    return {number: json.loads(end.answer) for number, end in sorted(answered.items())}


def _check(what: str, end: Ended) -> None:
    if end.status == -signal.SIGKILL:
        raise _Killed(f"the operating system killed the {what}")
    if end.status != 0:
        raise MeasurementFailed(f"the {what} failed: {end.last_words or 'without a message'}")


def _environment(allocator: str) -> dict[str, str]:
    """This process's environment, with the allocator's options if there are any.

    The second name is for torch before 2.9.
    """
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF") if allocator else ()
    return os.environ | dict.fromkeys(names, allocator)


def _trial_of(answers: Mapping[int, Mapping[str, Any]]) -> Trial:
    trials = {
        rank: Trial(**{**answer, "source": Source(answer["source"])})
        for rank, answer in answers.items()
    }
    return merged(trials)


def merged(trials: Mapping[int, Trial]) -> Trial:
    """The trial of a group: it fits if all fit, and its memory is the largest of theirs.

    Times need no merging: the GPUs of a group agree on the slowest one's after each step.

    Args:
        trials: At least one, by the GPU's number in the group. If a GPU gave up, its trial may be
            the only one.
    """
    failed = next((rank for rank, trial in trials.items() if not trial.fits), None)
    if failed is not None:
        trial = trials[failed]
        which = f"GPU {failed}: " if failed or len(trials) > 1 else ""
        return replace(trial, failure=f"{which}{trial.failure}")
    neediest = max(trials.values(), key=lambda trial: trial.peak_allocated_bytes or 0)
    return replace(
        neediest,
        peak_reserved_bytes=_largest(trial.peak_reserved_bytes for trial in trials.values()),
        device_used_bytes=_largest(trial.device_used_bytes for trial in trials.values()),
        alloc_retries=_largest(trial.alloc_retries for trial in trials.values()),
    )


def _largest(sizes: Iterable[int | None]) -> int | None:
    return max((size for size in sizes if size is not None), default=None)


class OutOfTime(MeasurementFailed):
    """Not all processes ended before the deadline."""


def run_together(
    command: Sequence[str],
    orders: Sequence[str],
    environment: Mapping[str, str],
    deadline_seconds: float,
) -> dict[int, Ended]:
    """Give each order, one line, to its own process, and wait for all of them.

    The processes of a group wait for each other, so the death of one would leave the others waiting
    forever: they are killed.

    Args:
        command: The command that each process runs.
        orders: Their first lines of input.
        environment: Their environment.
        deadline_seconds: Time that all of them together may take.

    Returns:
        Processes that ended by themselves, by number, in the order of ending.

    Raises:
        OutOfTime: If the deadline passed.
    """
    ends: queue.SimpleQueue[tuple[int, Ended]] = queue.SimpleQueue()
    ended: dict[int, Ended] = {}
    until = time.monotonic() + deadline_seconds
    with ExitStack() as stack:
        for number, order in enumerate(orders):
            process = libraries.start(command, environment)
            stack.callback(process.end)
            process.carry_out(order, partial(_put, ends, number))
        while len(ended) < len(orders):
            try:
                number, end = ends.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                if any(end.status for end in ended.values()):
                    break
                raise OutOfTime(f"it did not end within {deadline_seconds:.0f} s") from None
            ended[number] = end
            if end.status:
                until = min(until, time.monotonic() + GRACE_SECONDS)
    return ended


def _put(ends: queue.SimpleQueue[tuple[int, Ended]], number: int, end: Ended) -> None:
    ends.put((number, end))
