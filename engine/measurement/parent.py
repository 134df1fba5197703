"""Starts fresh processes for every trial, so that none inherits what another left behind.

One process for a trial of one GPU, one for each GPU where several share the work.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.errors import InvalidInput, MeasurementFailed
from engine.measurement.group import merged
from engine.measurement.processes import Ended, OutOfTime, run_together
from engine.measurement.protocol import GAVE_UP, DeviceFacts, RecordedStep, TrialOrder
from engine.result import MeasuredOn, Source, Trial

CHILD = [sys.executable, "-m", "engine.measurement.child"]

DEADLINE_SECONDS = 300.0
"""A trial that takes longer hangs; it is ended."""


def local_device() -> DeviceFacts:
    """What device this machine has: CUDA, else MPS, else the CPU.

    It is asked in a process of its own, so that the caller never holds a CUDA context.

    Raises:
        MeasurementFailed: If the device does not answer.
    """
    return DeviceFacts(**_ask("facts", [""])[0])


def measure(order: TrialOrder) -> Trial:
    """Run one trial on the local device, or on as many as share the work.

    Raises:
        MeasurementFailed: If it ended for another reason than memory.
    """
    try:
        answers = _ask_for("trial", order)
    except _Killed:
        return Trial(
            batch_size=order.batch_size,
            fits=False,
            source=Source.MEASURED,
            failure="the operating system ended the trial, most likely for want of host memory",
        )
    return merged(
        {
            rank: Trial(**answer | {"source": Source(answer["source"])})
            for rank, answer in answers.items()
        }
    )


def record(order: TrialOrder) -> RecordedStep:
    """Record every tensor of a step of an order that fits, of the first GPU if there are several.

    Raises:
        MeasurementFailed: If the step failed.
    """
    return RecordedStep.parse(_ask_for("recording", order)[0])


def measured_on(order: TrialOrder) -> MeasuredOn:
    """What trials such as this one, which fits, run on.

    Raises:
        MeasurementFailed: If it cannot be built.
    """
    return MeasuredOn(**_ask_for("environment", order)[0])


def measure_first_run(order: TrialOrder, compiled: Path) -> dict[str, Any]:
    """Time a first step and those after it: the fields of ``first_run.FirstRun``.

    Args:
        order: What to run.
        compiled: The folder in which the compiler keeps what it has compiled; an empty one makes it
            compile everything.

    Raises:
        InvalidInput: If several GPUs share the work.
        OutOfTime: If it took longer than :data:`DEADLINE_SECONDS`.
        MeasurementFailed: If a step failed, for want of memory also.
    """
    if order.world_size > 1:
        raise InvalidInput(
            {"parallelism": "a first step is timed on one GPU; leave parallelism out"}
        )
    environment = _environment(order.allocator) | {"TORCHINDUCTOR_CACHE_DIR": str(compiled)}
    return _ask("first-run", [order.to_json()], environment)[0]


class _Killed(MeasurementFailed):
    """The process got a SIGKILL that this one did not send."""


def _ask_for(what: str, order: TrialOrder) -> dict[int, dict[str, Any]]:
    """Ask one process for each GPU of the order; see :func:`_ask`."""
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
        By their number; of those that gave up alone where one did.
    """
    try:
        ended = run_together([*CHILD, what], orders, environment or os.environ, DEADLINE_SECONDS)
    except OutOfTime as error:
        raise OutOfTime(
            f"the {what} did not end within {DEADLINE_SECONDS:.0f} s and was stopped"
        ) from error
    # The others may have failed only because one gave up, so that one's answer goes before.
    answered = {number: end for number, end in ended.items() if end.status == GAVE_UP}
    if not answered:
        for end in ended.values():
            _check(what, end)
        answered = ended
    return {number: json.loads(end.answer) for number, end in sorted(answered.items())}


def _check(what: str, end: Ended) -> None:
    if end.status == -signal.SIGKILL:
        raise _Killed(f"the operating system ended the {what}")
    if end.status != 0:
        raise MeasurementFailed(f"the {what} failed: {end.last_words or 'without a word'}")


def _environment(allocator: str) -> dict[str, str]:
    """This process's environment, with the allocator's options if there are any.

    The second name is that of torch before 2.9.
    """
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF") if allocator else ()
    return os.environ | dict.fromkeys(names, allocator)
