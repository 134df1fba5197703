"""The process of one trial: an order on standard input, the trial on the last line of its output.

It ends when its standard input does, so that no trial outlives who asked for it.
``python -m engine.measurement.child facts`` describes the device instead.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from types import ModuleType

import torch

from engine.lifeline import end_with
from engine.measurement import cpu, cuda, mps
from engine.measurement.protocol import TrialOrder


def main() -> None:
    """Run what the command line and standard input ask for."""
    device = _device()
    order = sys.stdin.readline()
    end_with(sys.stdin)
    if sys.argv[1:] == ["facts"]:
        answer = device.facts()
    else:
        answer = device.run_trial(TrialOrder.from_json(order))
    sys.stdout.write("\n" + json.dumps(asdict(answer)) + "\n")


def _device() -> ModuleType:
    if torch.cuda.is_available():
        return cuda
    if torch.backends.mps.is_available():
        return mps
    return cpu


if __name__ == "__main__":
    main()
