"""Traces steps that we measured; :mod:`benchmarks.step_time.own` starts it with their transformers.

It reads jobs as lines of JSON, and writes the operations of each step into the file it names.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

from engine.gpus import GPUS
from engine.hub import resolve
from engine.interface.workload import Workload
from engine.prediction.timing.launch_queue import places, runs
from engine.traces.workloads import trace_workload
from engine.tracing.lowering import cuda_behaviour


def main() -> None:
    jobs = map(json.loads, sys.stdin)
    for (gpu, fields), group in groupby(jobs, lambda job: (job["gpu"], job["fields"])):
        behaviour = cuda_behaviour(GPUS[gpu].compute_capability)
        workload = resolve(Workload.parse(fields))
        traces = trace_workload(workload, behaviour, lambda _: None)
        for job in group:
            operations = traces.at(job["batch"]).operations
            micro_batches = workload.gradient_accumulation
            counts = runs(operations, micro_batches), places(operations, micro_batches)
            work = Counter[Any]()
            for operation, times, place in zip(operations, *counts, strict=True):
                work[operation, operation.unrolled, operation.waits, place] += times
            _write(Path(job["file"]), work)
        sys.stderr.write(f"{workload.preset.display_name}\n")


def _write(file: Path, work: Counter[Any]) -> None:
    rows = [
        [
            *(one.name, one.dtype, one.phase, one.channels_last, unrolled, waits, times),
            *[one.numbers] * 2,
        ]
        for (one, unrolled, waits, _), times in work.items()
    ]
    file.write_bytes(gzip.compress(json.dumps({"operations": rows}).encode()))


if __name__ == "__main__":
    main()
