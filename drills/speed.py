"""Worker speed: ``python -m drills.speed``.

Measures four things with an engine that computes nothing: how long an analysis waits for an idle
worker, how long cancelling a running one takes, how long a preview takes on top of the engine's own
time, and the worker's processor time per stored engine event.
"""

from __future__ import annotations

import argparse
import sys
from statistics import median
from time import monotonic, sleep

import psutil
from rich.console import Console
from rich.table import Table

from drills.commands import (
    add_json_option,
    add_postgres_option,
    answer,
    name_of,
    new_lab,
    print_json,
)
from drills.lab import START_SECONDS, Lab
from drills.node import Node

WORKERS = 2
"""Workers of a node without a GPU: one for predictions and one for plans."""

EVENTS_PER_TRIAL = 2
"""The drill's engine reports each trial twice: as a trial and as a log line."""


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print the table or JSON."""
    options = _parser().parse_args(arguments)
    with new_lab(options.postgres, trials=1, seconds=0.0, result=answer()) as lab:
        node = _idle_node(lab)
        waits = [_wait_seconds(lab) for _ in range(options.analyses)]
        cancels = [_cancel_seconds(lab) for _ in range(options.analyses)]
        lab.call("seconds_to_predict", 1)  # so that the next ones have a warm engine
        previews = [
            float(lab.call("seconds_to_predict", 2 + number)) for number in range(options.analyses)
        ]
        node.stop()
        lab.make_engine(trials=options.trials, seconds=options.trials / 1e3)
        node.start()
        costs = [_seconds_per_event(lab, node, options.trials) for _ in range(3)]
    database, events = name_of(options.postgres), EVENTS_PER_TRIAL * options.trials
    if options.json:
        print_json(
            {
                "database": database,
                "queued_to_started_seconds": _median_and_worst(waits),
                "asked_to_cancelled_seconds": _median_and_worst(cancels),
                "preview_asked_to_answered_seconds": _median_and_worst(previews),
                "analyses": len(waits),
                "worker_cpu_seconds_per_event": _median_and_worst(costs),
                "events": events,
            }
        )
        return 0
    table = Table("what", "median", "worst", title=f"Workers with {database} (measured)")
    table.add_row(
        f"queued to started, {len(waits)} analyses on an idle worker",
        f"{1e3 * median(waits):,.0f} ms",
        f"{1e3 * max(waits):,.0f} ms",
    )
    table.add_row(
        f"cancel requested to cancelled, {len(cancels)} running analyses",
        f"{1e3 * median(cancels):,.0f} ms",
        f"{1e3 * max(cancels):,.0f} ms",
    )
    table.add_row(
        f"preview requested to answered, {len(previews)} batch sizes of one workload",
        f"{1e3 * median(previews):,.0f} ms",
        f"{1e3 * max(previews):,.0f} ms",
    )
    table.add_row(
        f"worker's processor time per event, {events:,} events",
        f"{1e6 * median(costs):,.0f} µs",
        f"{1e6 * max(costs):,.0f} µs",
    )
    Console().print(table)
    return 0


def _median_and_worst(seconds: list[float]) -> dict[str, float]:
    return {"median": median(seconds), "worst": max(seconds)}


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


def _cancel_seconds(lab: Lab) -> float:
    """Cancel an analysis whose engine would never finish."""
    lab.hold()
    (pk,) = lab.call("submit")
    lab.wait_for("is_attempt", pk, 1)
    seconds = float(lab.call("seconds_to_cancel", pk))
    lab.release()
    return seconds


def _seconds_per_event(lab: Lab, node: Node, trials: int) -> float:
    """Processor time of both workers; the idle one costs next to nothing."""
    _finish_one(lab)
    workers = _workers_with_engines(node)
    before = sum(map(_processor_seconds, workers))
    _finish_one(lab)
    return (sum(map(_processor_seconds, workers)) - before) / (EVENTS_PER_TRIAL * trials)


def _workers_with_engines(node: Node) -> list[psutil.Process]:
    """Both workers, once each has started an engine, which it does when idle."""
    end = monotonic() + START_SECONDS
    while monotonic() < end:
        found = [process for process in node.processes()["staff"] if process.children()]
        if len(found) == WORKERS:
            return found
        sleep(0.1)
    raise RuntimeError(f"{len(found)} workers have an engine, instead of {WORKERS}")


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m drills.speed", description=__doc__)
    parser.add_argument("--analyses", type=int, default=20)
    parser.add_argument("--trials", type=int, default=1000)
    add_postgres_option(parser)
    add_json_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
