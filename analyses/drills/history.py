"""How fast a long history is: ``python -m analyses.drills.history``.

It fills a lab of its own with analyses, each with an answer of the real engine, and asks for pages
of the history and of the API as a browser and a script would.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from analyses.drills.commands import answer, new_database
from analyses.drills.lab import Lab

TIMES = 5

PAGE, API = "analyses:list", "api:analysis-list"
QUERIES = {
    "first page": (PAGE, ""),
    "last page": (PAGE, "page={last}"),
    "fastest first": (PAGE, "sort=-speedup"),
    "of one member, fastest first": (PAGE, "member=member-1&sort=-speedup"),
    "failed, of one model and precision": (PAGE, "model=gpt2&precision=fp32&status=failed"),
    "one tag": (PAGE, "tag=tag-1"),
    "one month": (PAGE, "date_from=2026-03-01&date_to=2026-03-31"),
    "search for a model and a GPU": (PAGE, "q=gpt-2+t4"),
    "search that finds nothing": (PAGE, "q=no-such-thing"),
    "API, first page": (API, ""),
    "API, last page": (API, "page={last_of_api}"),
}
"""What is asked for: the page's name and its query."""

_PER_PAGE, _PER_API_PAGE = 25, 50


def main(arguments: list[str] | None = None) -> int:
    """Fill, measure, and print the table."""
    options = _parser().parse_args(arguments)
    database = "PostgreSQL" if options.postgres else "SQLite"
    title = f"A history of {options.analyses:,} analyses on {database} (measured)"
    table = Table("page", f"median of {TIMES}", "worst", title=title)
    pages = {
        "last": -(-options.analyses // _PER_PAGE),
        "last_of_api": -(-options.analyses // _PER_API_PAGE),
    }
    with tempfile.TemporaryDirectory() as folder, new_database(options.postgres) as url:
        lab = Lab(Path(folder), database_url=url, result=answer())
        lab.call("fill_history", options.analyses, f"{folder}/result.json")
        queries = [(name, query.format(**pages)) for name, query in QUERIES.values()]
        all_seconds = lab.call("page_seconds", queries, TIMES)
    for name, seconds in zip(QUERIES, all_seconds, strict=True):
        table.add_row(name, f"{1e3 * median(seconds):,.0f} ms", f"{1e3 * max(seconds):,.0f} ms")
    Console().print(table)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m analyses.drills.history", description=__doc__)
    parser.add_argument("--analyses", type=int, default=100_000)
    parser.add_argument(
        "--postgres",
        default="",
        metavar="URL",
        help="such as postgres://postgres@127.0.0.1:5432/test; it makes and drops a database there",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
