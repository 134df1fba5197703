"""How fast the workers are: ``python -m analyses.drills.speed``.

Two figures, with an engine that computes nothing: how long an analysis waits until an idle worker
takes it, and what it costs the worker to store one event of the engine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

import psutil
from rich.console import Console
from rich.table import Table

from analyses.drills.commands import add_postgres_option, answer, new_database
from analyses.drills.lab import Lab, Node

EVENTS_PER_TRIAL = 2
"""The drill's engine says each trial twice: as a trial and as a log line."""


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print the table."""
    options = _parser().parse_args(arguments)
    name = "PostgreSQL" if options.postgres else "SQLite"
    table = Table("what", "median", "worst", title=f"Workers with {name} (measured)")
    with tempfile.TemporaryDirectory() as folder, new_database(options.postgres) as url:
        lab = Lab(Path(folder), database_url=url, trials=1, seconds=0.0, result=answer())
        try:
            node = _idle_node(lab)
            waits = [_wait_seconds(lab) for _ in range(options.analyses)]
            table.add_row(
                f"queued to started, {len(waits)} analyses on an idle worker",
                f"{1e3 * median(waits):,.0f} ms",
                f"{1e3 * max(waits):,.0f} ms",
            )
            node.stop()
            lab.make_engine(trials=options.trials, seconds=options.trials / 1e3)
            node.start()
            costs = [_seconds_per_event(lab, node, options.trials) for _ in range(3)]
            table.add_row(
                f"worker's processor time per event, {EVENTS_PER_TRIAL * options.trials:,} events",
                f"{1e6 * median(costs):,.0f} µs",
                f"{1e6 * max(costs):,.0f} µs",
            )
        finally:
            lab.end()
    Console().print(table)
    return 0


def _idle_node(lab: Lab) -> Node:
    node = lab.start_node("node-1")
    lab.wait_for("are_online", 1)
    _finish_one(lab)
    return node


def _finish_one(lab: Lab) -> int:
    (pk,) = lab.call("submit")
    if lab.wait_for("is_final", pk, seconds=120) != "succeeded":
        raise RuntimeError(f"analysis {pk} did not succeed: {lab.call('facts', pk)}")
    return int(pk)


def _wait_seconds(lab: Lab) -> float:
    return float(lab.call("facts", _finish_one(lab))["waited_seconds"])


def _seconds_per_event(lab: Lab, node: Node, trials: int) -> float:
    _finish_one(lab)  # so that the worker has an engine, and is known by it
    (worker,) = [process for process in node.processes()["staff"] if process.children()]
    before = _processor_seconds(worker)
    _finish_one(lab)
    return (_processor_seconds(worker) - before) / (EVENTS_PER_TRIAL * trials)


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m analyses.drills.speed", description=__doc__)
    parser.add_argument("--analyses", type=int, default=20)
    parser.add_argument("--trials", type=int, default=1000)
    add_postgres_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
