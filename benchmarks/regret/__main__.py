"""Judges recommended batches by measured and published sweeps: ``python -m benchmarks.regret``.

The engine decides by predicted speeds with their intervals, among the batch sizes that were
measured. No GPU is needed. What was not traced before is traced first, in a few minutes; then it
takes seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.regret.judging import AIM, ENOUGH, SLOWER, Group, Judged, Shares, groups, judge
from benchmarks.regret.sweeps import all_sweeps
from engine.interface.trial import Source


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regret", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON, with every decision")
    options = parser.parse_args(arguments)
    judged = [judge(sweep) for sweep in all_sweeps()]
    found = groups(judged)
    if options.json:
        json.dump(as_json(found, judged), sys.stdout, indent=1)
    else:
        console = Console()
        console.print(table_of(found))
        console.print(_sweeps_table(judged))
    return 0


def as_json(found: Sequence[Group], judged: Sequence[Judged]) -> dict[str, Any]:
    """Everything that the tables show."""
    return {
        "source": str(Source.PREDICTED),
        "aims": {"share_of_best": ENOUGH, "of_sweeps": AIM, "slower_below": SLOWER},
        "groups": [asdict(one) for one in found],
        "sweeps": [
            {
                "source": one.sweep.source,
                "name": one.sweep.name,
                "gpu": one.sweep.gpu,
                "host_bound": one.sweep.host_bound,
                "points": [
                    {
                        "batch_size": point.batch_size,
                        "measured_share": point.measured / best,
                        "predicted_samples_per_second": point.predicted,
                    }
                    for point in one.sweep.points
                ],
                "decisions": [asdict(case) for case in (one.to_start, *one.each)],
            }
            for one in judged
            for best in [max(point.measured for point in one.sweep.points)]
        ],
    }


def table_of(found: Sequence[Group]) -> Table:
    """The groups as a table."""
    table = Table(
        box=box.SIMPLE,
        title="Measured throughput at the recommended batch (by predicted speeds), share of the "
        "best of its sweep",
    )
    for heading in (
        *("sweeps", "number", "kept:\nmedian", "from the\nsmallest", "5th per-\ncentile"),
        *("at least\n98%", "to start:\nat least 98%", "decisions", "changes", "worst\nchange"),
        *("slower\nby > 2%", "gains\nmissed"),
    ):
        table.add_column(heading, justify="left" if heading == "sweeps" else "right")
    for one in found:
        table.add_row(
            one.name,
            str(one.sweeps),
            f"{one.kept.median:.1%}",
            f"{one.smallest.median:.1%}",
            f"{one.smallest.percentile_5:.1%}",
            _enough(one.smallest, one.sweeps),
            _enough(one.to_start, one.sweeps),
            str(one.decisions),
            str(one.changes),
            "-" if one.worst is None else f"{one.worst:.2f}×",
            str(one.slower),
            str(one.missed),
        )
    return table


def _enough(shares: Shares, sweeps: int) -> str:
    return f"{shares.enough / sweeps:.0%}"


def _sweeps_table(judged: Sequence[Judged]) -> Table:
    """Each sweep: what is recommended from its smallest batch, and what was best."""
    table = Table(box=box.SIMPLE, title="Each sweep, from its smallest batch")
    for heading in ("source", "workload", "GPU", "batches", "recommended", "best", "share"):
        table.add_column(heading)
    for one in judged:
        points = one.sweep.points
        best = max(points, key=lambda point: point.measured)
        case = one.each[0]
        table.add_row(
            one.sweep.source,
            one.sweep.name,
            one.sweep.gpu,
            " ".join(str(point.batch_size) for point in points),
            str(case.recommended),
            str(best.batch_size),
            f"{case.share:.1%}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
