"""The process of one trial: an order on standard input, the trial on its standard output.

Whatever else is printed goes to standard error; what went wrong is the last line there. It ends
when its standard input does, so that no trial outlives who asked for it.
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
from typing import TypeVar

import torch

from engine.errors import EngineError
from engine.lifeline import end_with
from engine.measurement import cpu, cuda, mps
from engine.measurement.environment import measured_on
from engine.measurement.first_run import FirstRun, first_run
from engine.measurement.protocol import DeviceFacts, RecordedStep, TrialOrder
from engine.own.factory import Factory, OwnCodeFailed
from engine.result import MeasuredOn, Trial

_Answer = TypeVar("_Answer", Trial, RecordedStep, FirstRun, MeasuredOn)


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
    answer: DeviceFacts | Trial | RecordedStep | FirstRun | MeasuredOn
    try:
        match sys.argv[1:]:
            case ["facts"]:
                answer = device.facts()
            case ["recording"]:
                answer = _run(cpu.record, TrialOrder.from_json(order))
            case ["first-run"]:
                answer = _run(first_run, TrialOrder.from_json(order))
            case ["environment"]:
                answer = _run(measured_on, TrialOrder.from_json(order))
            case _:
                answer = _run(device.run_trial, TrialOrder.from_json(order))
    except EngineError as error:
        sys.exit(" ".join(str(error).split()))
    with answers:
        answers.write(json.dumps(asdict(answer)) + "\n")


def _run(work: Callable[[TrialOrder], _Answer], order: TrialOrder) -> _Answer:
    """Do as ordered, an error of the person's own code told with the line of theirs it came from.

    Args:
        work: Runs a trial, or records a step.
        order: For it.
    """
    try:
        return work(order)
    except (Exception, SystemExit) as error:
        if isinstance(error, EngineError) or not isinstance(order.workload, Factory):
            raise
        raise OwnCodeFailed(f"{order.workload.name} failed{order.workload.told(error)}") from error


def _device() -> ModuleType:
    if torch.cuda.is_available():
        return cuda
    if torch.backends.mps.is_available():
        return mps
    return cpu


if __name__ == "__main__":
    main()
