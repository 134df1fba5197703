"""One warm step under ``torch.profiler``: ``python -m benchmarks.gpu.profiler``.

The order of a trial is a line of JSON on standard input, the answer the last line of standard
output: the microseconds on the GPU by operator and shapes of its inputs, with those of copies
(``rows``: name, shapes, count, microseconds), and the seconds until the host had launched the step
and until the GPU had done it, without the profiler.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from engine.core.process import end_with
from engine.measurement.protocol import TrialOrder
from engine.measurement.steps import steps_of

_WARM_UP, _TIMED = 3, 5


def main() -> None:
    """Answer one order."""
    orders = sys.stdin
    order = TrialOrder.from_json(orders.readline())
    end_with(orders)
    steps = steps_of(order)
    steps.build("cuda")
    steps.begin()
    for _ in range(_WARM_UP):
        steps.step()
    torch.cuda.synchronize()
    timed = [_timed(steps.step) for _ in range(_TIMED)]
    both = (ProfilerActivity.CPU, ProfilerActivity.CUDA)
    with profile(activities=both, record_shapes=True) as seen:
        steps.step()
        torch.cuda.synchronize()
    medians = {
        "host_seconds": statistics.median(host for host, _ in timed),
        "wall_seconds": statistics.median(wall for _, wall in timed),
    }
    sys.stdout.write(json.dumps(_found(seen) | medians) + "\n")


def _timed(step: Callable[[], None]) -> tuple[float, float]:
    begin = time.perf_counter()
    step()
    launched = time.perf_counter()
    torch.cuda.synchronize()
    return launched - begin, time.perf_counter() - begin


def _found(seen: profile) -> dict[str, Any]:
    rows, launches, operators = [], 0, 0
    for one in seen.key_averages(group_by_input_shape=True):
        operators += one.count if one.key.startswith("aten::") else 0
        launches += one.count if one.key.startswith(("cudaLaunchKernel", "cuLaunchKernel")) else 0
        named = one.key.startswith(("aten::", "Memcpy", "Memset"))
        if named and one.self_device_time_total > 0:
            shapes = json.dumps(one.input_shapes)
            rows.append([one.key, shapes, one.count, round(one.self_device_time_total, 1)])
    return {"launches": launches, "aten_ops": operators, "rows": rows}


if __name__ == "__main__":
    main()
