"""Page speed in a lab with years of history: ``python -m drills.pages``.

It fills two labs, one with a hundred times as many analyses as the other, each with ten trials, and
requests the same pages from both in turn, as a browser and a script would. What counts is the
ratio: a page that takes as long in both labs stays as fast however much a lab submits. The ratio is
of the fastest times, which depend least on what else the machine is doing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

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
from drills.lab import Lab

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
    "search, tenth page": ("analyses:list", "q=bert&page=10"),
    "search, another order": ("analyses:list", "q=bert&sort=-speedup"),
    "history, grouped by project": ("analyses:list", "group=project"),
    "history, one project": ("analyses:list", "project=project-1"),
    "history, grouped by model": ("analyses:list", "group=model"),
    "search everything, a number": ("analyses:search", "q=145"),
    "search everything, a word": ("analyses:search", "q=bert"),
    "search, a word of notes": ("analyses:list", "q=chapter"),
    "search, a word nobody wrote": ("analyses:list", "q=no-such-word"),
    "search, model": ("analyses:list", "q=model%3Ddistilbert"),
    "search, member": ("analyses:list", "q=member%3Dmember-1"),
    "search, GPU": ("analyses:list", "q=gpu%3Aa10"),
    "search, status": ("analyses:list", "q=status%3Afailed"),
    "search, precision and optimizer": ("analyses:list", "q=precision%3Abf16+optimizer%3Asgd"),
    "search, tag": ("analyses:list", "q=tag%3Atag"),
    "search, note": ("analyses:list", "q=note%3Achapter"),
    "search, adopted ones": ("analyses:list", "q=adopted"),
    "search, gain": ("analyses:list", "q=gain"),
    "search, days": ("analyses:list", "q=after%3A2025-01-01+before%3A2025-02-01"),
    "search, a number": ("analyses:list", "q=speedup%3E1.2"),
    "search, a number nobody reached": ("analyses:list", "q=speedup%3E50"),
    "search, all but one model, a number": ("analyses:list", "q=model!%3Dbert+batch%3E%3D64"),
    "search, model, member, a number": (
        "analyses:list",
        "q=model%3Abert+member%3Dmember-1+speedup%3E1",
    ),
    "search, two numbers": ("analyses:list", "q=largest%3E%3D300+speedup%3E1.5"),
    "history, CSV, first lines": ("analyses:export-csv", ""),
    "analysis": ("analyses:detail", ""),
    "compare 2": ("analyses:compare", "ids={two}"),
    "compare 10": ("analyses:compare", "ids={ten}"),
    "savings by member": ("analyses:savings", "by=member"),
    "savings by model": ("analyses:savings", "by=model"),
    "savings by GPU": ("analyses:savings", "by=gpu"),
    "savings by month": ("analyses:savings", "by=month"),
    "savings, potential ones": ("analyses:savings", "kind=potential&by=model"),
    "savings, report of the month": ("analyses:savings-report", ""),
    "savings, CSV, first lines": ("analyses:savings-analyses-csv", ""),
    "GPU-hours by GPU": ("analyses:gpu-hours", ""),
    "GPU-hours by member, in all": ("analyses:gpu-hours", "by=member&period=all"),
    "GPU-hours by model, this month": ("analyses:gpu-hours", "by=model&period=month"),
    "imported jobs": ("analyses:imported-jobs", ""),
    "inbox": ("analyses:inbox", ""),
    "inbox, last page": ("analyses:inbox", "show=all&page=9999"),
    "audit log": ("accounts:audit", ""),
    "audit log, CSV, first lines": ("accounts:audit-csv", ""),
    "API list": ("api:analysis-list", ""),
    "API search": ("api:analysis-list", "q=gpu%3Aa10"),
    "API list, last page": ("api:analysis-list", "page={last_of_api}"),
    "API analysis": ("api:analysis-detail", ""),
    "API savings": ("api:savings", ""),
}
"""The pages requested: view name and query string, as :mod:`drills.browsing` takes them.

A search finds a page or more in the small lab too, or nothing in either: rows that are shown cost
more than those that are found.
"""

FILES = {
    "history, CSV": ("analyses:export-csv", ""),
    "savings, CSV": ("analyses:savings-analyses-csv", ""),
}
"""Downloads timed as a whole, in the large lab."""

Seconds = dict[str, list[float]]
"""The times of each page, in seconds."""


@dataclass(frozen=True)
class PageTimes:
    """Response times of one page in both labs.

    Attributes:
        page: Name of the page.
        small_seconds, large_seconds: Median in the small and in the large lab.
        small_fastest_seconds, large_fastest_seconds: Fastest in each.
    """

    page: str
    small_seconds: float
    large_seconds: float
    small_fastest_seconds: float
    large_fastest_seconds: float

    @property
    def ratio(self) -> float:
        """Fastest time in the large lab over that in the small lab."""
        return self.large_fastest_seconds / self.small_fastest_seconds


def main(arguments: list[str] | None = None) -> int:
    """Fill, measure, and print the table or JSON."""
    options = _parser().parse_args(arguments)
    result = answer()
    with ExitStack() as stack:
        labs, filled = zip(
            *(
                stack.enter_context(filled_lab(count, result, options))
                for count in (options.small, options.large)
            ),
            strict=True,
        )
        found = page_times(*in_turn(labs, options.rounds, options.times))
        files = labs[-1].call("browsing.downloads", FILES)
    numbers = {
        "database": name_of(options.postgres),
        "times": options.rounds * options.times,
        "small": filled[0],
        "large": filled[1],
        "files": files,
    }
    if options.json:
        print_json(numbers | {"pages": [asdict(page) | {"ratio": page.ratio} for page in found]})
    else:
        _print(found, numbers)
    return 0


def page_times(in_small: Seconds, in_large: Seconds) -> list[PageTimes]:
    """Summarize each page's times in the two labs."""
    both = [(name, times, in_large[name]) for name, times in in_small.items()]
    return [
        PageTimes(name, median(small), median(large), min(small), min(large))
        for name, small, large in both
    ]


def _print(found: Sequence[PageTimes], numbers: dict[str, Any]) -> None:
    console = Console()
    for size in ("small", "large"):
        console.print(", ".join(f"{number:,} {what}" for what, number in numbers[size].items()))
    table = Table(
        "page",
        f"{numbers['small']['analyses']:,} analyses",
        f"{numbers['large']['analyses']:,} analyses",
        "ratio of\nfastest",
        title=f"Pages on {numbers['database']}: median of {numbers['times']} (measured)",
    )
    for page in found:
        table.add_row(
            page.page,
            f"{1e3 * page.small_seconds:,.1f} ms",
            f"{1e3 * page.large_seconds:,.1f} ms",
            f"{page.ratio:.2f}",
        )
    console.print(table)
    for name, file in numbers["files"].items():
        console.print(
            f"{name} as a whole, {numbers['large']['analyses']:,} analyses: "
            f"{file['seconds']:.1f} s, {file['bytes'] / 1e6:.1f} MB (measured, once)"
        )


@contextmanager
def filled_lab(
    count: int, result: dict[str, object], options: argparse.Namespace
) -> Iterator[tuple[Lab, dict[str, int]]]:
    """A lab with ``count`` analyses, filled by the options, and its row counts."""
    members, trials = options.members, options.trials
    with new_lab(options.postgres, result=result) as lab:
        rows = lab.call("years.fill", count, f"{lab.folder}/result.json", members, trials)
        yield lab, rows | lab.call("inside_jobs.fill", options.jobs)


def in_turn(labs: Sequence[Lab], rounds: int, times: int) -> list[Seconds]:
    """Take turns between labs, so that a slow moment of the machine affects all of them."""
    seconds: list[Seconds] = [{name: [] for name in PAGES} for _ in labs]
    for _ in range(rounds):
        for lab, so_far in zip(labs, seconds, strict=True):
            for name, found in lab.call("browsing.seconds", PAGES, times).items():
                so_far[name] += found
    return seconds


def add_filling_options(parser: argparse.ArgumentParser, members: int = 24) -> None:
    """Add options for what a lab is filled with, and how often its pages are requested."""
    parser.add_argument("--members", type=int, default=members, help="members of each lab")
    parser.add_argument("--trials", type=int, default=10, help="trials per analysis")
    parser.add_argument("--jobs", type=int, default=5_000, help="imported jobs of each lab")
    parser.add_argument("--rounds", type=int, default=6, help="turns per lab")
    parser.add_argument("--times", type=int, default=3, help="requests per page and turn")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m drills.pages", description=__doc__)
    parser.add_argument("--small", type=int, default=1_000, help="analyses in the small lab")
    parser.add_argument("--large", type=int, default=100_000, help="analyses in the large lab")
    add_filling_options(parser)
    add_postgres_option(parser)
    add_json_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
