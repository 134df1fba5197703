"""The process of one trial: an order on standard input, the trial on its standard output.

Whatever else is printed goes to standard error; what went wrong is the last line there. It ends
when its standard input does, so that no trial outlives who asked for it.
``python -m engine.measurement.child facts`` describes the device instead, and ``recording`` tells
where memory goes along a step; ``first-run`` times the first step and those after it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from types import ModuleType
from typing import TypeVar

import torch

from engine.errors import EngineError, MeasurementFailed
from engine.lifeline import end_with
from engine.measurement import cpu, cuda, mps
from engine.measurement.first_run import FirstRun, first_run
from engine.measurement.protocol import RecordedStep, TrialOrder
from engine.own.factory import Factory, OwnCodeFailed
from engine.result import Trial

_Answer = TypeVar("_Answer", Trial, RecordedStep, FirstRun)


def main() -> None:
    """Run what the command line and standard input ask for."""
    # A person's own code, and the libraries under it, may print at any time, at their end too, and
    # exit() closes standard input, which would wait for ever for the thread that reads it.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    orders = os.fdopen(os.dup(sys.stdin.fileno()))
    sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    device = _device()
    order = orders.readline()
    end_with(orders)
    try:
        match sys.argv[1:]:
            case ["facts"]:
                answer = device.facts()
            case ["recording"]:
                answer = _run(cpu.record, TrialOrder.from_json(order))
            case ["first-run"]:
                answer = _run(first_run, TrialOrder.from_json(order))
            case _:
                answer = _run(device.run_trial, TrialOrder.from_json(order))
    except EngineError as error:
        sys.exit(" ".join(str(error).split()))
    with answers:
        answers.write(json.dumps(asdict(answer)) + "\n")


def _run(work: Callable[[TrialOrder], _Answer], order: TrialOrder) -> _Answer:
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
    if torch.cuda.is_available():
        return cuda
    if torch.backends.mps.is_available():
        return mps
    return cpu


if __name__ == "__main__":
    main()
