"""The process of one kind of measurement: an order on standard input, the answer on its output.

Started as ``python -m engine.selfcheck.child KIND``. Like :mod:`engine.measurement.child`, it ends
when its standard input does, and the last line of its standard error says what failed. What each
kind needs is imported for it alone: transformers takes seconds to load.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from ..core.errors import EngineError, report_unexpected
from ..core.process import end_with

Found = Mapping[str, Any]


def main() -> None:
    # Libraries may print at any time; what they print is not the answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    order = json.loads(sys.stdin.readline())
    end_with(sys.stdin)
    status = 1
    try:
        found = _WORK[sys.argv[1]](order)
        with answers:
            answers.write(json.dumps(found) + "\n")
        status = 0
    except EngineError as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
    except Exception as error:
        report_unexpected(error)
    sys.stderr.flush()
    os._exit(status)  # exit() would wait for the thread that reads standard input


def _device(_order: Found) -> Found:
    """The device, and on CUDA its fixed costs."""
    import torch

    from ..measurement import cpu, mps
    from ..measurement.environment import device_kind
    from .first_uses import facts_and_costs

    kind = device_kind()
    if kind == "cuda":
        facts, costs = facts_and_costs()
    else:
        facts, costs = (mps if kind == "mps" else cpu).facts(), ()
    device = {
        "kind": kind,
        "name": facts.name,
        "total_bytes": facts.total_bytes,
        "compute_capability": facts.compute_capability,
        "cuda": torch.version.cuda or "",
    }
    return {"device": device, "fixed_costs": [asdict(cost) for cost in costs]}


def _launches(order: Found) -> Found:
    from .speeds import launch_seconds

    return {"seconds": launch_seconds(order["kind"])}


def _rates(order: Found) -> Found:
    from .speeds import rates

    return asdict(rates(order["kind"]))


def _predictions(order: Found) -> Found:
    """The predictions of the workloads, with the launch time that a step of tiny kernels took."""
    from ..gpus.checked import read_self_check
    from ..prediction.timing.speed_model import step_predictor
    from .predicting import Asked, launch_seconds_of, predict

    check = read_self_check(order["check"])
    launching = None
    if order["launch_bound"] is not None:
        asked = Asked(**order["launch_bound"])
        launching = launch_seconds_of(check, asked, order["step_seconds"])
    check = replace(check, step_launch_seconds=launching)
    found = {name: asdict(predict(check, Asked(**one))) for name, one in order["asked"].items()}
    return {
        "step_launch_seconds": launching,
        "step_predictor": step_predictor(),
        "predicted": found,
    }


_WORK: dict[str, Callable[[Found], Found]] = {
    "device": _device,
    "launches": _launches,
    "rates": _rates,
    "predictions": _predictions,
}

if __name__ == "__main__":
    main()
