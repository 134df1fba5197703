"""How fast the pages of a long-lived lab are: ``python -m analyses.drills.pages``.

It fills two labs of its own, one with a hundred times as many analyses as the other, each with ten
trials, and asks both in turn for the same pages as a browser and a script would. What counts is the
ratio: a page that takes as long in either stays as fast as it is, however much a lab asks.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from analyses.drills.commands import add_postgres_option, answer, new_database
from analyses.drills.lab import Lab

PAGES = {
    "overview": ("analyses:overview", ""),
    "history, first page": ("analyses:list", ""),
    "history, last page": ("analyses:list", "page={last}"),
    "history, fastest first": ("analyses:list", "sort=-speedup"),
    "history, slowest first": ("analyses:list", "sort=speedup"),
    "history, by member": ("analyses:list", "sort=member"),
    "history, failed ones": ("analyses:list", "status=failed"),
    "history, one model, succeeded": ("analyses:list", "model=bert&status=succeeded"),
    "history, one member, fastest first": ("analyses:list", "member=member-1&sort=-speedup"),
    "history, one tag": ("analyses:list", "tag=tag-1"),
    "history, one month": ("analyses:list", "date_from=2026-03-01&date_to=2026-03-31"),
    "history, adopted ones": ("analyses:list", "adopted=yes"),
    "history, search": ("analyses:list", "q=bert"),
    "history, CSV, first lines": ("analyses:export-csv", ""),
    "analysis": ("analyses:detail", ""),
    "compare 2": ("analyses:compare", "ids={two}"),
    "compare 10": ("analyses:compare", "ids={ten}"),
    "savings by member": ("analyses:savings", "by=member"),
    "savings by model": ("analyses:savings", "by=model"),
    "savings by GPU": ("analyses:savings", "by=gpu"),
    "savings by month": ("analyses:savings", "by=month"),
    "savings, potential ones": ("analyses:savings", "kind=potential&by=model"),
    "savings, CSV, first lines": ("analyses:savings-analyses-csv", ""),
    "API list": ("api:analysis-list", ""),
    "API list, last page": ("api:analysis-list", "page={last_of_api}"),
    "API analysis": ("api:analysis-detail", ""),
}
"""What is asked for: the view and its query, as :mod:`analyses.drills.browsing` reads it."""

Seconds = dict[str, list[float]]
"""How long each page took, each time."""


def main(arguments: list[str] | None = None) -> int:
    """Fill, measure, and print the table."""
    options = _parser().parse_args(arguments)
    result = answer()
    console = Console()
    with ExitStack() as labs:
        small, large = (
            labs.enter_context(_lab(count, options.postgres, result, console))
            for count in (options.small, options.large)
        )
        in_small, in_large = _in_turn([small, large], options.rounds, options.times)
    database = "PostgreSQL" if options.postgres else "SQLite"
    times = options.rounds * options.times
    table = Table(
        "page",
        f"{options.small:,} analyses",
        f"{options.large:,} analyses",
        "ratio",
        title=f"Pages on {database}: median of {times} (measured)",
    )
    for name in PAGES:
        before, after = median(in_small[name]), median(in_large[name])
        table.add_row(
            name, f"{1e3 * before:,.1f} ms", f"{1e3 * after:,.1f} ms", f"{after / before:.2f}"
        )
    console.print(table)
    return 0


@contextmanager
def _lab(count: int, server_url: str, result: dict[str, object], console: Console) -> Iterator[Lab]:
    with tempfile.TemporaryDirectory() as folder, new_database(server_url) as url:
        lab = Lab(Path(folder), database_url=url, result=result)
        found = lab.call("years.fill", count, f"{folder}/result.json")
        console.print(", ".join(f"{number:,} {what}" for what, number in found.items()))
        yield lab


def _in_turn(labs: list[Lab], rounds: int, times: int) -> list[Seconds]:
    """A slower moment of the machine strikes all labs alike."""
    seconds: list[Seconds] = [{name: [] for name in PAGES} for _ in labs]
    for _ in range(rounds):
        for lab, so_far in zip(labs, seconds, strict=True):
            for name, found in lab.call("browsing.seconds", PAGES, times).items():
                so_far[name] += found
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m analyses.drills.pages", description=__doc__)
    parser.add_argument("--small", type=int, default=1_000, help="analyses in the small lab")
    parser.add_argument("--large", type=int, default=100_000, help="analyses in the large lab")
    parser.add_argument("--rounds", type=int, default=6, help="how often both labs take turns")
    parser.add_argument("--times", type=int, default=3, help="a page is asked for in each round")
    add_postgres_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
