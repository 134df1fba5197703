"""Faults against a lab of real processes: ``python -m drills``, or ``make drills``.

Each fault strikes while a node is in the middle of an analysis and others wait. The table says
how many analyses were lost or doubled, and how long it took until the struck one went on; after a
fault that lasts, from its end. With ``--postgres URL``, SQLite comes first, then PostgreSQL, and
then two sites behind nginx.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from drills import two_sites
from drills.commands import add_json_option, add_postgres_option, answer, print_json
from drills.faults import FAULTS, Fault, Outcome, of_server, run
from drills.own_server import NoServer, own_server
from drills.proxy import NoProxy

HEARTBEAT_SECONDS = 3.0
"""The product's own, so that what is measured is what an operator sees."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all faults; the exit status is 1 if anything was lost or doubled, or did not go on."""
    options = _parser().parse_args(arguments)
    outcomes = []
    for outcome in _all(options):
        outcomes.append(outcome)
        sys.stderr.write(f"{outcome.database}, {outcome.fault}: {_ended(outcome)}\n")
    if options.json:
        print_json({"heartbeat_seconds": options.heartbeat, "faults": [*map(asdict, outcomes)]})
    else:
        show(outcomes, options.heartbeat, Console())
    return int(not all(outcome.is_well for outcome in outcomes))


def _all(options: argparse.Namespace) -> Iterator[Outcome]:
    result = answer()
    for url in ("", options.postgres) if options.postgres else ("",):
        yield from _run(FAULTS, url, result, options)
    if options.postgres:
        yield from _own_server(result, options)
    if options.only in f"{two_sites.FAULT}, {two_sites.WHERE}":
        yield _two_sites(options.postgres, result)


def _run(
    faults: Sequence[Fault], url: str, result: dict[str, Any], options: argparse.Namespace
) -> Iterator[Outcome]:
    return run(
        [fault for fault in faults if options.only in f"{fault.name}, {fault.where}"],
        url,
        result,
        analyses=options.analyses,
        heartbeat=options.heartbeat,
        seconds=options.seconds,
    )


def _own_server(result: dict[str, Any], options: argparse.Namespace) -> Iterator[Outcome]:
    try:
        with own_server() as server:
            yield from _run(of_server(server), server.url, result, options)
    except NoServer as reason:
        yield Outcome("restarted or cut off", "database", "PostgreSQL", not_run=str(reason))


def _two_sites(server_url: str, result: dict[str, Any]) -> Outcome:
    reason = "needs PostgreSQL (--postgres URL)"
    try:
        if server_url:
            return two_sites.kill_one_of_two(server_url, result)
    except NoProxy as missing:
        reason = str(missing)
    return Outcome(two_sites.FAULT, two_sites.WHERE, "PostgreSQL", not_run=reason)


def show(outcomes: Sequence[Outcome], heartbeat: float, console: Console) -> None:
    """Print what each fault cost."""
    table = Table(
        "fault", "where it hit", "database", "analyses submitted", "lost", "doubled", "recovery, s",
        title=f"Faults and what they cost (measured; heartbeats every {heartbeat:g} s)",
        box=SIMPLE_HEAD,
    )  # fmt: skip
    for column in table.columns[:3]:
        column.no_wrap = True
    for one in outcomes:
        counts = (one.submitted, one.lost, one.doubled)
        numbers = [*(f"{count:,}" for count in counts), _seconds(one.recovery_seconds)]
        table.add_row(
            one.fault, one.where, one.database, *(["not run"] if one.not_run else numbers)
        )
    console.print(table)
    for one in outcomes:
        if one.not_run:
            console.print(f"{one.fault}, {one.database}: not run, {one.not_run}")
        elif one.failed_pages is not None:
            console.print(
                f"{one.fault}: {one.failed_pages} pages failed, {one.sent_again} analyses were "
                "sent again"
            )


def _ended(outcome: Outcome) -> str:
    if outcome.not_run:
        return f"not run: {outcome.not_run}"
    counts = f"{outcome.lost} lost, {outcome.doubled} doubled of {outcome.submitted}"
    return f"{counts}, recovered after {_seconds(outcome.recovery_seconds)} s"


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m drills", description=__doc__)
    parser.add_argument(
        "--analyses", type=int, default=6, help="submitted for each fault (default 6)"
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="duration of an analysis (default 1)"
    )
    parser.add_argument(
        "--heartbeat",
        type=float,
        default=HEARTBEAT_SECONDS,
        metavar="SECONDS",
        help="between two heartbeats of a worker; all timeouts follow from it (default 3, as in "
        "operation)",
    )
    parser.add_argument("--only", default="", metavar="WORDS", help="faults with these words")
    add_postgres_option(parser)
    add_json_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
