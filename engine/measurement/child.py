"""The process of one trial: an order on standard input, the trial on standard output.

Anything else that is printed goes to standard error, whose last line is the error if there was one.
The process ends when its standard input does, so no trial outlives the process that ordered it.
Where several GPUs share the work, each has one of these processes.

The order's first word says what is wanted: ``trial``; ``facts`` of the device, without an order;
``recording`` for where memory goes over a step; ``snapshot`` for the allocator's own snapshot;
``profile`` for the profiler's trace;
``first-run`` for the time of the first step and those after it; ``environment`` for what all of
that runs on. Until it arrives, the process does nothing with the device.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from types import ModuleType
from typing import NoReturn

from ..core.errors import EngineError, MeasurementFailed, report_unexpected
from ..core.process import end_with
from ..interface.result import MeasuredOn
from ..interface.trial import Trial
from ..interface.workload import Workload
from ..parallel.group import join_group
from ..script.factory import Factory, ScriptFailed
from ..script.program import Program
from . import cpu, cuda, mps, programs
from .compilation import FirstRun, first_run
from .environment import device_kind, here, measured_on
from .profiling import ProfileWatch, profile_step
from .protocol import GAVE_UP, DeviceFacts, RecordedStep, TrialOrder

ChildResult = Trial | RecordedStep | FirstRun | MeasuredOn


def main() -> None:
    # A script and its libraries may print at any time, even while they exit. And exit() closes
    # standard input, which would wait forever for the thread that reads it.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    orders = os.fdopen(os.dup(sys.stdin.fileno()))
    sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    what, _, line = orders.readline().strip().partition(" ")
    if not what:
        sys.exit(0)  # whoever started it has nothing to ask
    end_with(orders)
    device = _device()
    order = TrialOrder.from_json(line) if line else None

    def send(answer: ChildResult | DeviceFacts) -> int:
        """Hand the answer over; returns the exit status."""
        with answers:
            answers.write(json.dumps(asdict(answer)) + "\n")
        return GAVE_UP if isinstance(answer, Trial) and not answer.fits else 0

    def done(answer: ChildResult) -> NoReturn:
        """Hand the answer over in the middle of a program, and end this process at once."""
        os._exit(send(answer))

    status = 1
    try:
        if order is None:
            status = send(device.facts())
        elif isinstance(order.workload, Program):
            _run_program(what, order, device, done)
        else:
            status = send(_work(what, order, device))
    except EngineError as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
    except Exception as error:
        report_unexpected(error)
    if order is None or order.world_size == 1:
        sys.exit(status)
    # At its end PyTorch would wait for group members that are still in the middle of a step.
    sys.stderr.flush()
    os._exit(status)


def _run_program(
    what: str,
    order: TrialOrder,
    device: ModuleType,
    done: Callable[[ChildResult], NoReturn],
) -> NoReturn:
    """Carry out an order for a program, which runs by itself."""
    match what:
        case "recording":
            programs.record_program(order, device.program_recorder, done)
        case "snapshot":
            programs.run_program(order, device.SnapshotWatch(order), done)
        case "profile":
            programs.run_program(order, ProfileWatch(order), done)
        case "environment":
            programs.run_to_first_step(order, lambda: done(here()))
    programs.run_program(order, device.ProgramWatch(order), done)


def _work(what: str, order: TrialOrder, device: ModuleType) -> ChildResult:
    """Carry out an order, as one of a group if it is for several GPUs."""
    if order.world_size > 1:
        join_group(device_kind(), order.rank, order.world_size, order.meeting_file)
    match what:
        case "recording":
            return _run(device.record, order)
        case "snapshot":
            return _run(device.snapshot, order)
        case "profile":
            return _run(profile_step, order)
        case "first-run":
            return _run(first_run, order)
        case "environment":
            return _run(measured_on, order)
    return _run(device.run_trial, order)


def _run(work: Callable[[TrialOrder], ChildResult], order: TrialOrder) -> ChildResult:
    """Carry out an order, and attribute errors of the compiler or the script to them.

    Args:
        work: Runs a trial, or records a step.
        order: For it.
    """
    try:
        return work(order)
    except (Exception, SystemExit) as error:
        if isinstance(error, EngineError):
            raise
        if isinstance(order.workload, Factory):
            message = f"{order.workload.name} failed{order.workload.describe(error)}"
            raise ScriptFailed(message) from error
        compiled = isinstance(order.workload, Workload) and order.workload.compile
        if compiled and _is_compiler_error(error):
            raise MeasurementFailed(f"torch.compile failed: {_summary(error)}") from error
        raise


def _is_compiler_error(error: BaseException) -> bool:
    modules = {kind.__module__ for kind in type(error).__mro__}
    return any(module.startswith(("torch._dynamo", "torch._inductor")) for module in modules)


def _summary(error: BaseException) -> str:
    """The first paragraph of a compiler error, with advice where we have some.

    What follows that paragraph is for compiler developers.
    """
    summary = " ".join(str(error).strip().partition("\n\n")[0].split())
    if "No working C++ compiler" in summary:
        summary += "; install g++ (on macOS clang++), or set the variable CXX to a compiler"
    return summary


def _device() -> ModuleType:
    return {"cuda": cuda, "mps": mps, "cpu": cpu}[device_kind()]
