"""Predicts trials on an H100 with the packages of this Python; :mod:`benchmarks.h100` starts it.

It reads trials as JSON and writes what is predicted for them.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.h100 import MEMORY
from engine.gpus import GPUS
from engine.hub import resolve
from engine.prediction.probe import predict_trial
from engine.prediction.tracer import TraceAt
from engine.prediction.traces import trace_workload
from engine.tracing.lowering import cuda_behaviour
from engine.workload import Workload

H100 = GPUS["h100"]


def main() -> None:
    traces: dict[Workload, TraceAt] = {}
    found: list[dict[str, Any]] = []
    for trial in json.load(sys.stdin):
        workload = resolve(Workload.parse(trial["fields"]))
        if workload not in traces:
            behaviour = cuda_behaviour(H100.compute_capability)
            traces[workload] = trace_workload(workload, behaviour, lambda _: None)
        found.append(predicted(workload, traces[workload], trial["batch_size"]))
        sys.stderr.write(f"\r{len(found)} ")
    sys.stderr.write("\n")
    json.dump(found, sys.stdout)


def predicted(workload: Workload, trace_at: TraceAt, batch_size: int) -> dict[str, Any]:
    """What is predicted, as :class:`benchmarks.h100.Compared` has it."""
    trial = predict_trial(workload, H100, trace_at(batch_size), careful=True)
    return {
        "predicted": {counted: getattr(trial, counted) for counted in MEMORY},
        "low": trial.device_used_low_bytes,
        "high": trial.device_used_high_bytes,
    }


if __name__ == "__main__":
    main()
