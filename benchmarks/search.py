"""Searches for the largest batch, compared: ``python -m benchmarks.search``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

from engine.interface.trial import Source

if TYPE_CHECKING:  # both load torch
    from benchmarks.searchers import LimitedTraining, Searcher

LIMITS_MIB = (24, 64, 160)
AIM_TRIALS = 4
INSTALL = "pip install lightning==2.6.6 accelerate==1.15.0"
_MIB = 2**20


@dataclass(frozen=True)
class Row:
    """One search under one limit.

    Attributes:
        version: The package's version; empty if it needs none. ``None`` if it is not installed; the
            fields from ``answer`` on are then empty.
        truth: The largest batch that fits, found by trying every one.
        answer: The largest batch according to this search.
        trials: Batch sizes it ran, including repeats.
        tried: The batch sizes, and whether they fitted.
    """

    tool: str
    version: str | None
    limit_bytes: int
    truth: int
    answer: int | None = None
    trials: int | None = None
    seconds: float | None = None
    tried: tuple[tuple[int, bool], ...] = ()

    @property
    def exact(self) -> bool:
        return self.answer == self.truth


def run_search(searcher: Searcher, training: LimitedTraining, truth: int) -> Row:
    row = Row(searcher.name, searcher.version, training.limit_bytes, truth)
    if row.version is None:
        return row
    searcher.load()
    begin = time.perf_counter()
    answer = searcher.search(training)
    return Row(
        tool=row.tool,
        version=row.version,
        limit_bytes=row.limit_bytes,
        truth=truth,
        answer=answer,
        trials=len(training.tried),
        seconds=time.perf_counter() - begin,
        tried=tuple(training.tried),
    )


def run_all(limits_bytes: Iterable[int]) -> list[Row]:
    # torch takes seconds to load; --help must not wait for it.
    from benchmarks.searchers import (
        SEARCHERS,
        LimitedTraining,
        one_thread,
        small_workload,
        true_maximum,
    )
    from engine.traces.tracer import warm_up

    workload = small_workload()
    rows = []
    with one_thread():
        warm_up()
        LimitedTraining(workload, 2**40).run(1)  # loads what the first step of a process needs
        for limit in limits_bytes:
            truth = true_maximum(workload, limit)
            for searcher in SEARCHERS:
                rows.append(run_search(searcher, LimitedTraining(workload, limit), truth))
    return rows


def render(rows: Sequence[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("limit", justify="right", no_wrap=True)
    table.add_column("largest\nthat fits", justify="right")
    table.add_column("search", style="cyan")
    table.add_column("version")
    for heading in ("trials", "seconds", "answer"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("true maximum?")
    limit = None
    for row in rows:
        if limit not in (None, row.limit_bytes):
            table.add_section()
        new = row.limit_bytes != limit
        limit = row.limit_bytes
        table.add_row(
            f"{limit / _MIB:,.0f} MiB" if new else "",
            f"{row.truth:,}" if new else "",
            row.tool,
            "not installed" if row.version is None else row.version,
            "-" if row.trials is None else f"{row.trials:,}",
            "-" if row.seconds is None else f"{row.seconds:,.1f}",
            "-" if row.answer is None else f"{row.answer:,}",
            describe_answer(row),
        )
    return table


def describe_answer(row: Row) -> str:
    """Whether the answer is the true maximum, or how far off it is."""
    if row.answer is None:
        return ""
    if row.exact:
        return "[green]yes[/green]"
    if row.answer > row.truth:
        return f"[red]no: does not fit, {row.answer - row.truth:,} too many[/red]"
    return f"[yellow]no: {row.answer / row.truth:.0%} of it[/yellow]"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search",
        description="Search for the largest batch of a small workload on the CPU, under memory "
        "limits counted to the byte, with common tools and with MemoryMark.",
        epilog=f"Tools that are not installed are skipped: {INSTALL}",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--limit-mib",
        type=int,
        nargs="+",
        default=LIMITS_MIB,
        metavar="MIB",
        help=f"memory limits in MiB; default {' '.join(map(str, LIMITS_MIB))}",
    )
    chosen = parser.parse_args(arguments)
    if min(chosen.limit_mib) < 1:
        parser.error("the smallest memory limit is 1 MiB")
    rows = run_all(limit * _MIB for limit in chosen.limit_mib)
    if chosen.json:
        written = [asdict(row) | {"exact": row.exact} for row in rows]
        answer = {"source": Source.MEASURED, "aim_trials": AIM_TRIALS, "rows": written}
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
        return 0
    console = Console()
    console.print(render(rows))
    console.print(
        "All measured, every tool with its defaults; Lightning's binsearch subtracts 5% from what "
        f"it finds. MemoryMark aims to be exact in at most {AIM_TRIALS} trials: the first "
        "is the current batch size, the last one fails.",
        highlight=False,
    )
    if any(row.version is None for row in rows):
        console.print(f"To compare the missing tools: {INSTALL}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
