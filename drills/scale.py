"""A lab of 1,000 members and 200 GPU nodes, at several sizes: ``python -m drills.scale``.

It fills labs of 10,000, 100,000 and 1,000,000 analyses on PostgreSQL, requests their pages in turn
as :mod:`drills.pages` does, and measures in each how long it takes to submit by the API, to poll
the queue and to claim from it with few and many jobs waiting, to keep 200 heartbeats, and to remove
old rows; how many bytes each table and index has; and, up to a size, how long a backup takes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import count as count_up
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

from drills.commands import add_json_option, add_postgres_option, answer, print_json
from drills.lab import Lab
from drills.pages import PAGES, Seconds, add_filling_options, filled_lab, in_turn
from engine.client.connection import Connection, Settings

NODES = 200
WAITING = (1, 200, 20_000)
"""Numbers of jobs that wait while others are claimed."""

MOMENTS = 100
"""Number of times that each moment of the queue is timed."""

CLIENTS = 8
"""Clients that submit at the same time to a site of their own."""

BACKED_UP = 10_000
"""The largest lab that is backed up: a backup reads every value, and takes in proportion."""

KEPT_DAYS = {"MEMORYMARK_KEEP_LOG_DAYS": 365, "MEMORYMARK_KEEP_FAILED_DAYS": 365}
REMOVED_BATCHES = 5
_TABLES = ("analyses_analysis", "analyses_trial", "analyses_job")


@dataclass(frozen=True)
class Times:
    """The distribution of a measured time.

    Attributes:
        times: Number of measurements.
        median_seconds: Half of them took no longer.
        percentile_95_seconds: 95% of them took no longer.
    """

    times: int
    median_seconds: float
    percentile_95_seconds: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Times:
        return cls(len(seconds), median(seconds), quantiles(seconds, n=20)[18])


def main(arguments: list[str] | None = None) -> int:
    """Fill, measure, and print the table or JSON."""
    options = _parser().parse_args(arguments)
    result = answer()
    with ExitStack() as stack:
        labs, filled = zip(
            *(
                stack.enter_context(filled_lab(count, result, options))
                for count in options.analyses
            ),
            strict=True,
        )
        found = measured(labs, filled, options.rounds, options.times)
    if options.json:
        print_json({"labs": found})
    else:
        _print(found)
    return 0


def measured(
    labs: Sequence[Lab], filled: Sequence[dict[str, int]], rounds: int, times: int
) -> list[dict[str, Any]]:
    """The measurements of the drill in each lab, and the rows that it was filled with."""
    pages = in_turn(labs, rounds, times)
    return [
        {"filled": rows, "pages": _pages(seconds)} | _measured(lab, rows["analyses"])
        for lab, rows, seconds in zip(labs, filled, pages, strict=True)
    ]


def _pages(seconds: Seconds) -> dict[str, dict[str, float]]:
    return {
        name: {"median_seconds": median(times), "fastest_seconds": min(times)}
        for name, times in seconds.items()
    }


def _measured(lab: Lab, analyses: int) -> dict[str, Any]:
    sizes = {
        "tables": lab.call("inside_scale.sizes"),
        "indexes": {table: lab.call("inside_scale.index_sizes", table) for table in _TABLES},
    }
    lab.call("inside_scale.announce", NODES)
    claims = {
        str(waiting): {what: asdict(Times.of(seconds)) for what, seconds in found.items()}
        for waiting in WAITING
        for found in [lab.call("inside_scale.claims", MOMENTS, waiting)]
    }
    moments = {
        what: asdict(Times.of(lab.call(f"inside_scale.{what}", times)))
        for what, times in (("polls", MOMENTS), ("heartbeats", NODES), ("submits", MOMENTS))
    }
    submitted = _submitted(lab)
    lab.call("inside_scale.forget_work")
    return {
        "sizes": sizes,
        "claims": claims,
        **moments,
        "submitted_per_second": submitted,
        "index_seconds": lab.call("inside_scale.index_seconds"),
        "backup": _backup(lab) if analyses <= BACKED_UP else None,
        "removals": lab.call("inside_scale.removals", REMOVED_BATCHES, KEPT_DAYS),
    }


def _submitted(lab: Lab) -> float:
    """Analyses per second that a site of its own takes from several clients together."""
    site = lab.start_site(MEMORYMARK_API_UNITS="0")
    clients = [
        Connection(Settings(site, token), 60.0)
        for token in lab.call("inside_scale.make_tokens", CLIENTS)
    ]
    numbers = count_up(1000)  # a batch size of its own for each, so that no result is reused

    def submit(client: Connection) -> None:
        for _ in range(MOMENTS):
            fields = {"model": "bert", "gpu": "a10", "current_batch_size": next(numbers)}
            client.send("POST", "/analyses/", fields)

    with ThreadPoolExecutor(CLIENTS) as threads:
        begun = perf_counter()
        list(threads.map(submit, clients))
        return CLIENTS * MOMENTS / (perf_counter() - begun)


def _backup(lab: Lab) -> dict[str, float]:
    file = Path(lab.folder) / "backup.zip"
    begun = perf_counter()
    lab.manage("backup", str(file))
    found = {"seconds": perf_counter() - begun, "bytes": file.stat().st_size}
    file.unlink()
    return found


def _print(found: Sequence[dict[str, Any]]) -> None:
    console = Console()
    sizes = [f"{lab['filled']['analyses']:,} analyses" for lab in found]
    table = Table("what", *sizes, title="PostgreSQL, medians (measured)")
    for page in PAGES:
        table.add_row(page, *(_ms(lab["pages"][page]["median_seconds"]) for lab in found))
    for what in ("submits", "polls", "heartbeats"):
        table.add_row(what, *(_ms(lab[what]["median_seconds"]) for lab in found))
    for waiting in WAITING:
        for what in ("chosen", "claimed"):
            times = (_ms(lab["claims"][str(waiting)][what]["median_seconds"]) for lab in found)
            table.add_row(f"job {what}, {waiting:,} waiting", *times)
    table.add_row(
        f"submitted per second, {CLIENTS} clients",
        *(f"{lab['submitted_per_second']:,.0f}" for lab in found),
    )
    console.print(table)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.1f} ms"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m drills.scale", description=__doc__)
    parser.add_argument(
        "--analyses",
        type=int,
        nargs="+",
        default=[10_000, 100_000, 1_000_000],
        help="in each lab; a million take 20 GB of disk and half an hour",
    )
    add_filling_options(parser, members=1000)
    add_postgres_option(parser)
    add_json_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
