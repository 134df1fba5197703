"""A process of the benchmark that needs PyTorch: ``python -m engine.benchmarks.gpu.child WHAT``.

Its order is a line of JSON on standard input, its answer the last line of standard output. It ends
when its standard input does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from typing import Any

from engine.benchmarks.gpu.fixed_costs import fixed_costs, read_cuda
from engine.benchmarks.gpu.foresight import foresee
from engine.benchmarks.gpu.questions import Asked, Foreseen
from engine.benchmarks.gpu.results import Device, Search
from engine.benchmarks.gpu.searching import search
from engine.benchmarks.limited_training import small_workload
from engine.errors import EngineError, tell_unexpected
from engine.lifeline import end_with
from engine.measurement import cpu, cuda
from engine.measurement.environment import device_kind, measured_on
from engine.measurement.protocol import TrialOrder
from engine.tracing.tracer import warm_up
from engine.workload import Workload

_WORK_BEFORE_FACTS = 3
# The engine asks for the facts when context and cuBLAS have taken their share, and nothing else.


def main() -> None:
    """Do what the command line and standard input ask for."""
    line = sys.stdin.readline()
    end_with(sys.stdin)
    try:
        answer = _WORK[sys.argv[1]](json.loads(line))
    except EngineError as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        sys.exit(1)
    except Exception as error:
        tell_unexpected(error)
        sys.exit(1)
    sys.stdout.write("\n" + json.dumps(asdict(answer)) + "\n")


def _device(order: dict[str, Any]) -> Device:
    quick = bool(order["quick"])
    ran_on = TrialOrder(small_workload(), 1)
    if device_kind() != "cuda":
        return Device(cpu.facts(), measured_on(ran_on), quick=quick)
    costs = fixed_costs("cuda", read_cuda)
    before = tuple(islice(costs, _WORK_BEFORE_FACTS))
    facts = cuda.facts()
    return Device(facts, fixed_costs=before + tuple(costs), ran_on=measured_on(ran_on), quick=quick)


def _foresee(order: dict[str, Any]) -> Foreseen:
    return foresee(Asked.parse(order))


def _search(order: dict[str, Any]) -> Search:
    warm_up()
    workload = Workload.parse(order.pop("fields"))
    return search(Search(**order, version=None), workload)


_WORK: dict[str, Callable[[dict[str, Any]], Device | Foreseen | Search]] = {
    "device": _device,
    "foresee": _foresee,
    "search": _search,
}

if __name__ == "__main__":
    main()
