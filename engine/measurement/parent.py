"""Starts a fresh process for every trial, so that none inherits what another left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from typing import Any

from engine.errors import MeasurementFailed
from engine.measurement.protocol import DeviceFacts, RecordedStep, TrialOrder
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
    return DeviceFacts(**_ask("facts", ""))


def measure(order: TrialOrder) -> Trial:
    """Run one trial on the local device.

    Raises:
        MeasurementFailed: If it ended for another reason than memory.
    """
    try:
        answer = _ask("trial", order.to_json(), order.allocator)
    except _Killed:
        return Trial(
            batch_size=order.batch_size,
            fits=False,
            source=Source.MEASURED,
            failure="the operating system ended the trial, most likely for want of host memory",
        )
    return Trial(**answer | {"source": Source(answer["source"])})


def record(order: TrialOrder) -> RecordedStep:
    """Record every tensor of a step of an order that fits; the CPU alone can do that.

    Raises:
        MeasurementFailed: If the step failed.
    """
    return RecordedStep.parse(_ask("recording", order.to_json()))


def measured_on(order: TrialOrder) -> MeasuredOn:
    """What trials such as this one, which fits, run on.

    Raises:
        MeasurementFailed: If it cannot be built.
    """
    return MeasuredOn(**_ask("environment", order.to_json(), order.allocator))


def measure_first_run(order: TrialOrder) -> dict[str, Any]:
    """Time a first step and those after it: the fields of ``first_run.FirstRun``.

    Raises:
        MeasurementFailed: If a step failed, for want of memory also.
    """
    return _ask("first-run", order.to_json(), order.allocator)


class _Killed(MeasurementFailed):
    """The process got a SIGKILL that this one did not send."""


def _ask(what: str, order: str, allocator: str = "") -> dict[str, Any]:
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [*CHILD, what],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=_environment(allocator),
        ) as process,
    ):
        out_of_time = threading.Event()
        deadline = threading.Timer(DEADLINE_SECONDS, _stop, (process, out_of_time))
        deadline.start()
        try:
            output = _exchange(process, order)
        finally:
            deadline.cancel()
            process.kill()
        errors.seek(0)
        said = [line for line in errors.read().splitlines() if line.strip()]
    if out_of_time.is_set():
        raise MeasurementFailed(
            f"the {what} did not end within {DEADLINE_SECONDS:.0f} s and was stopped"
        )
    if process.returncode == -signal.SIGKILL:
        raise _Killed(f"the operating system ended the {what}")
    if process.returncode != 0:
        raise MeasurementFailed(f"the {what} failed: {said[-1] if said else 'without a word'}")
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])
    return answer


def _environment(allocator: str) -> dict[str, str]:
    """This process's environment, with the allocator's options if there are any.

    The second name is that of torch before 2.9.
    """
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF") if allocator else ()
    return os.environ | dict.fromkeys(names, allocator)


def _exchange(process: subprocess.Popen[str], order: str) -> str:
    """Give the order, keep the child's input open while it works, and return what it printed."""
    if process.stdin is None or process.stdout is None:
        raise ValueError("the process was started without pipes")
    with suppress(BrokenPipeError):  # it died at once; its exit status and errors say why
        process.stdin.write(order + "\n")
        process.stdin.flush()
    output = process.stdout.read()
    process.wait()
    return output


def _stop(process: subprocess.Popen[str], out_of_time: threading.Event) -> None:
    out_of_time.set()
    process.kill()
