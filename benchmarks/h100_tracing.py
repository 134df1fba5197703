"""Predicts trials on an H100 with the packages of this Python; :mod:`benchmarks.h100` starts it.

It reads trials as JSON and writes what is predicted for them.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, groupby
from typing import Any

from benchmarks.h100 import MEMORY
from engine.gpus import GPUS
from engine.hub import resolve
from engine.interface.workload import Workload
from engine.prediction.probe import predict_trial
from engine.traces.workloads import trace_workload
from engine.tracing.lowering import cuda_behaviour

H100 = GPUS["h100"]


def main() -> None:
    trials = groupby(json.load(sys.stdin), lambda trial: trial["fields"])
    asked = [(fields, [trial["batch_size"] for trial in each]) for fields, each in trials]
    with ProcessPoolExecutor() as pool:
        found = list(pool.map(predicted, *zip(*asked, strict=True)))
    json.dump(list(chain.from_iterable(found)), sys.stdout)


def predicted(fields: dict[str, Any], batch_sizes: list[int]) -> list[dict[str, Any]]:
    """The predictions for a workload, as :class:`benchmarks.h100.Compared` has them."""
    workload = resolve(Workload.parse(fields))
    behaviour = cuda_behaviour(H100.compute_capability)
    traces = trace_workload(workload, behaviour, lambda _: None)
    trials = [predict_trial(workload, H100, traces.at(size), careful=True) for size in batch_sizes]
    sys.stderr.write(f"{workload.preset.display_name}, {len(trials)} trials\n")
    return [
        {
            "predicted": {counted: getattr(trial, counted) for counted in MEMORY},
            "low": trial.device_used_low_bytes,
            "high": trial.device_used_high_bytes,
        }
        for trial in trials
    ]


if __name__ == "__main__":
    main()
