"""Time to compute the memory curve on every GPU: ``python -m benchmarks.curve``."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from engine.core.errors import InvalidInput
from engine.core.process import collect_rarely, peak_resident_bytes
from engine.gpus import GPUS, Gpu
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Source
from engine.interface.workload import Workload

_GIB = 2**30


@dataclass(frozen=True)
class Aim:
    """A workload and its targets.

    Attributes:
        workload: The fields of a workload.
        seconds: Time for the whole curve on all GPUs, with everything loaded.
        peak_bytes: Memory of the predicting process.
    """

    workload: dict[str, str]
    seconds: float
    peak_bytes: int = _GIB


AIMS = {
    "bert": Aim({"model": "bert"}, 3.0),
    "llama-3-8b": Aim({"model": "llama-3-8b", "precision": "bf16-true"}, 3.0),
    "llama-3.3-70b": Aim({"model": "llama-3.3-70b", "precision": "bf16-true"}, 6.0),
    "qwen3-235b-a22b": Aim({"model": "qwen3-235b-a22b", "precision": "bf16-true"}, 6.0),
}


@dataclass(frozen=True)
class Limit:
    """The largest batch on one GPU, predicted."""

    gpu: str
    largest_batch_size: int
    points: int


@dataclass(frozen=True)
class Timing:
    """Time and memory of one workload.

    Attributes:
        described: Precision, optimizer and mode.
        first_seconds: The first time in a process that has traced only something small.
        warm_seconds: The second time.
        warm_cpu_seconds: CPU time of the second time; the rest went to other programs.
        peak_bytes: Peak memory of the process, including torch and transformers.
        refused: GPUs without the number format.
    """

    model: str
    described: str
    first_seconds: float
    warm_seconds: float
    warm_cpu_seconds: float
    peak_bytes: int
    limits: list[Limit]
    refused: list[str]


def suitable(workload: Workload, gpus: Sequence[Gpu]) -> tuple[list[Gpu], list[str]]:
    able, refused = [], []
    for gpu in gpus:
        try:
            AnalysisRequest(workload, gpu=gpu.name)
        except InvalidInput:
            refused.append(gpu.name)
        else:
            able.append(gpu)
    return able, refused


def time_here(name: str, workload: Workload, gpus: Sequence[Gpu]) -> Timing:
    # torch takes seconds to load; --help must not wait for it.
    from benchmarks.memory_curves import memory_curves
    from engine.traces.tracer import warm_up

    collect_rarely()  # as commands do
    warm_up()
    able, refused = suitable(workload, gpus)
    seconds, cpu_seconds = [], []
    for _ in range(2):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        curves = list(memory_curves(workload, able))
        seconds.append(time.perf_counter() - begin)
        cpu_seconds.append(time.process_time() - cpu_begin)
    return Timing(
        model=name,
        described=f"{workload.precision}, {workload.optimizer}, {workload.mode}",
        first_seconds=seconds[0],
        warm_seconds=seconds[1],
        warm_cpu_seconds=cpu_seconds[1],
        peak_bytes=peak_resident_bytes() or 0,
        limits=[Limit(c.gpu.name, c.largest_batch_size, len(c.points)) for c in curves],
        refused=refused,
    )


def time_in_fresh_process(name: str) -> Timing:
    """Time one workload in a fresh process, so that the peak memory is its own."""
    command = [sys.executable, "-m", "benchmarks.curve", "--here", name]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    read = json.loads(output.splitlines()[-1])
    return Timing(**read | {"limits": [Limit(**limit) for limit in read["limits"]]})


def render_times(timings: Sequence[Timing]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("workload", style="cyan")
    table.add_column("trained")
    headings = ("GPUs", "points", "first\ns", "warm\ns", "of it\nCPU, s", "aim\ns", "memory\nGiB")
    for heading in (*headings, "aim\nGiB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for timing in timings:
        aim = AIMS[timing.model]
        table.add_row(
            timing.model,
            timing.described,
            str(len(timing.limits)),
            str(sum(limit.points for limit in timing.limits)),
            f"{timing.first_seconds:.1f}",
            _coloured(timing.warm_seconds, aim.seconds, ".1f"),
            f"{timing.warm_cpu_seconds:.1f}",
            f"{aim.seconds:.0f}",
            _coloured(timing.peak_bytes / _GIB, aim.peak_bytes / _GIB, ".2f"),
            f"{aim.peak_bytes / _GIB:.0f}",
        )
    return table


def _coloured(value: float, aim: float, form: str) -> str:
    colour = "green" if value < aim else "red"
    return f"[{colour}]{value:{form}}[/{colour}]"


def render_limits(timings: Sequence[Timing]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("GPU", style="cyan")
    for timing in timings:
        table.add_column(timing.model, justify="right")
    found = [{limit.gpu: limit.largest_batch_size for limit in t.limits} for t in timings]
    for gpu in GPUS:
        cells = [
            "no bf16" if gpu in timing.refused else f"{limits.get(gpu, 0) or 'none'}"
            for timing, limits in zip(timings, found, strict=True)
        ]
        table.add_row(gpu, *cells)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.curve",
        description="Time the whole curve of memory vs. batch size, from 1 to the limit, on "
        "all catalogue GPUs at once, and the memory of the process.",
    )
    parser.add_argument("models", nargs="*", help=f"any of {', '.join(AIMS)}; default all")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--here", metavar="MODEL", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    names = [chosen.here] if chosen.here else chosen.models or list(AIMS)
    if unknown := [name for name in names if name not in AIMS]:
        parser.error(f"no aim is set for {', '.join(unknown)}; choose from {', '.join(AIMS)}")
    if chosen.here:
        workload = Workload.parse(AIMS[chosen.here].workload)
        timing = time_here(chosen.here, workload, list(GPUS.values()))
        sys.stdout.write(json.dumps(asdict(timing)) + "\n")
        return 0
    timings = [time_in_fresh_process(name) for name in names]
    if chosen.json:
        sys.stdout.write(json.dumps(_to_dict(timings), indent=2) + "\n")
        return 0
    console = Console()
    console.print(render_times(timings))
    console.print("Times and memory measured on this machine.\n", style="dim")
    console.print(render_limits(timings))
    console.print("Largest batch, predicted.", style="dim")
    return 0


def _to_dict(timings: Sequence[Timing]) -> dict[str, Any]:
    return {
        "times_source": Source.MEASURED,
        "limits_source": Source.PREDICTED,
        "timings": [asdict(timing) | {"aim": asdict(AIMS[timing.model])} for timing in timings],
    }


if __name__ == "__main__":
    sys.exit(main())
