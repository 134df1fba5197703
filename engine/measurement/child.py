"""The process of one trial: an order on standard input, the trial on its standard output.

Whatever else is printed goes to standard error; what went wrong is the last line there. It ends
when its standard input does, so that no trial outlives who asked for it. Of several GPUs, each has
one of these processes.
``python -m engine.measurement.child facts`` describes the device instead, and ``recording`` tells
where memory goes along a step; ``first-run`` times the first step and those after it;
``environment`` tells what all of that runs on.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from types import ModuleType

from engine.errors import EngineError, MeasurementFailed, tell_unexpected
from engine.lifeline import end_with
from engine.measurement import cpu, cuda, mps
from engine.measurement.environment import device_kind, measured_on
from engine.measurement.first_run import FirstRun, first_run
from engine.measurement.protocol import GAVE_UP, RecordedStep, TrialOrder
from engine.own.factory import Factory, OwnCodeFailed
from engine.parallel.members import join_group
from engine.result import MeasuredOn, Trial

Answer = Trial | RecordedStep | FirstRun | MeasuredOn


def main() -> None:
    """Run what the command line and standard input ask for."""
    # A person's own code, and the libraries under it, may print at any time, at their end too, and
    # exit() closes standard input, which would wait for ever for the thread that reads it.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    orders = os.fdopen(os.dup(sys.stdin.fileno()))
    sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    device = _device()
    line = orders.readline()
    end_with(orders)
    what = sys.argv[1]
    order = None if what == "facts" else TrialOrder.from_json(line)
    status = 1
    try:
        answer = device.facts() if order is None else _work(what, order, device)
        with answers:
            answers.write(json.dumps(asdict(answer)) + "\n")
        status = GAVE_UP if isinstance(answer, Trial) and not answer.fits else 0
    except EngineError as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
    except Exception as error:
        tell_unexpected(error)
    if order is None or order.world_size == 1:
        sys.exit(status)
    # PyTorch would wait at the end of a group for members that are still in the middle of a step.
    sys.stderr.flush()
    os._exit(status)


def _work(what: str, order: TrialOrder, device: ModuleType) -> Answer:
    """Do what an order is for, as one of a group if it is for several GPUs."""
    if order.world_size > 1:
        join_group(device_kind(), order.rank, order.world_size, order.meeting_file)
    match what:
        case "recording":
            return _run(device.record, order)
        case "first-run":
            return _run(first_run, order)
        case "environment":
            return _run(measured_on, order)
    return _run(device.run_trial, order)


def _run(work: Callable[[TrialOrder], Answer], order: TrialOrder) -> Answer:
    """Do as ordered; an error of the compiler's, or of a person's own code, is told as theirs.

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
            said = f"{order.workload.name} failed{order.workload.told(error)}"
            raise OwnCodeFailed(said) from error
        if order.workload.compile and _is_the_compilers(error):
            raise MeasurementFailed(f"torch.compile failed: {_in_short(error)}") from error
        raise


def _is_the_compilers(error: BaseException) -> bool:
    modules = {kind.__module__ for kind in type(error).__mro__}
    return any(module.startswith(("torch._dynamo", "torch._inductor")) for module in modules)


def _in_short(error: BaseException) -> str:
    """What the compiler says went wrong, and what to do where that is known.

    Its first paragraph; what follows is for those who work on the compiler.
    """
    said = " ".join(str(error).strip().partition("\n\n")[0].split())
    if "No working C++ compiler" in said:
        said += "; install g++ (on macOS clang++), or name one by the variable CXX"
    return said


def _device() -> ModuleType:
    return {"cuda": cuda, "mps": mps, "cpu": cpu}[device_kind()]


if __name__ == "__main__":
    main()
