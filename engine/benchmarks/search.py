"""Searches for the largest batch, compared: ``python -m engine.benchmarks.search``."""

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

from engine.result import Source

if TYPE_CHECKING:  # both load torch
    from engine.benchmarks.limited_training import LimitedTraining
    from engine.benchmarks.searchers import Searcher

LIMITS_MIB = (24, 64, 160)
AIM_TRIALS = 4
INSTALL = "pip install lightning==2.6.6 accelerate==1.15.0"
_MIB = 2**20


@dataclass(frozen=True)
class Row:
    """What one search made of one limit.

    Attributes:
        tool: Its name.
        version: Of its package; empty for what needs none, ``None`` if it is not installed, where
            all else but the truth is missing too.
        limit_bytes: The memory limit.
        truth: The largest batch that fits, found by trying every one.
        answer: The largest batch by this search.
        trials: Batch sizes it ran, repeats included.
        seconds: How long it took, measured.
        tried: Those batch sizes, with whether they fitted.
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
        """Whether the answer is the true maximum."""
        return self.answer == self.truth


def run_search(searcher: Searcher, training: LimitedTraining, truth: int) -> Row:
    """Let one tool search one training."""
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
    """Every tool at every limit."""
    # torch takes seconds to load; --help must not wait for it.
    from engine.benchmarks.limited_training import LimitedTraining, one_thread, small_workload
    from engine.benchmarks.searchers import SEARCHERS, true_maximum
    from engine.tracing.tracer import warm_up

    workload = small_workload()
    rows = []
    with one_thread():
        warm_up()
        LimitedTraining(workload, 2**40).run(1)  # what the first step of a process loads
        for limit in limits_bytes:
            truth = true_maximum(workload, limit)
            for searcher in SEARCHERS:
                rows.append(run_search(searcher, LimitedTraining(workload, limit), truth))
    return rows


def render(rows: Sequence[Row]) -> Table:
    """The rows as a table."""
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
            in_words(row),
        )
    return table


def in_words(row: Row) -> str:
    """Whether the answer is the true maximum, or how far from it."""
    if row.answer is None:
        return ""
    if row.exact:
        return "[green]yes[/green]"
    if row.answer > row.truth:
        return f"[red]no: does not fit, {row.answer - row.truth:,} too many[/red]"
    return f"[yellow]no: {row.answer / row.truth:.0%} of it[/yellow]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the searches, and print the table or JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m engine.benchmarks.search",
        description="Search for the largest batch of one small training on the CPU, under memory "
        "limits counted to the byte, by the tools people use and by MemoryMark.",
        epilog=f"The tools are compared where they are installed: {INSTALL}",
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
        parser.error("a memory limit is 1 MiB at least")
    rows = run_all(limit * _MIB for limit in chosen.limit_mib)
    if chosen.json:
        written = [asdict(row) | {"exact": row.exact} for row in rows]
        answer = {"source": Source.MEASURED, "aim_trials": AIM_TRIALS, "rows": written}
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
        return 0
    console = Console()
    console.print(render(rows))
    console.print(
        "All measured, every tool with its defaults; Lightning's binsearch takes 5 % off what it "
        f"finds. The aim for MemoryMark: exact, in {AIM_TRIALS} trials or fewer; its first is the "
        "batch size used today, its last the one that fails.",
        highlight=False,
    )
    if any(row.version is None for row in rows):
        console.print(f"To compare the missing tools: {INSTALL}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
