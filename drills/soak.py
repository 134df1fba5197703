"""Many analyses while processes are killed: ``python -m drills.soak``.

It starts a lab of its own with an engine that computes nothing, submits analyses, strikes processes
at random, starts again what a process manager would, and prints what became of each analysis.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

import psutil
from rich.console import Console
from rich.table import Table

from drills.commands import add_postgres_option, answer, new_database
from drills.lab import Lab
from drills.node import Node

TRIALS = 4
QUIET_SECONDS = 90.0
"""How long the lab may take to finish when nothing is killed any more."""

_ROLES = ("engine", "staff", "staff", "guard", "pool", "node")
_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
_BATCH, _LAST = 20, 3
_MEANING = {
    "sent": "analyses submitted",
    "succeeded": "ended with an answer",
    "failed": "ended in words: their engine was killed",
    "lost": "ended in words: two workers vanished with them",
    "cancelled": "ended because somebody wanted it",
    "retried": "of these, taken over from a worker that vanished",
    "duplicated": "with a trial stored twice (has to be 0)",
    "incomplete": "succeeded without all their trials (has to be 0)",
    "stuck": "not ended (has to be 0)",
}
_HAS_TO_BE_ZERO = ("duplicated", "incomplete", "stuck")


def main(arguments: list[str] | None = None) -> int:
    """Run the soak; the exit status is 1 if an analysis was stuck, duplicated or incomplete."""
    options = _parser().parse_args(arguments)
    chance = random.Random(options.seed)  # noqa: S311  # no secret
    with _folder() as folder, new_database(options.postgres) as url:
        lab = Lab(folder, database_url=url, trials=TRIALS, seconds=options.seconds, result=answer())
        nodes = [lab.start_node(f"node-{number}") for number in range(1, options.nodes + 1)]
        begun = monotonic()
        try:
            strikes = soak(
                lab, nodes, lambda sent: options.analyses - sent, options.kill_every, chance
            )
            seconds = monotonic() - begun
            tally = lab.call("tally", TRIALS)
        finally:
            lab.end()
    _print(tally, strikes, seconds, "PostgreSQL" if url else "SQLite", options)
    return int(any(tally.get(name, 0) for name in _HAS_TO_BE_ZERO))


def soak(
    lab: Lab,
    nodes: list[Node],
    wanted: Callable[[int], int],
    kill_every: float,
    chance: random.Random,
) -> dict[str, int]:
    """Submit, strike and keep alive, until everything has ended or the quiet time is over.

    Args:
        lab: Where.
        nodes: Of the lab, which are struck.
        wanted: How many more analyses are, once so many have been sent.
        kill_every: How often one is struck, on average in seconds.
        chance: Decides what is struck, and when.

    Returns:
        How often what was struck.
    """
    strikes: dict[str, int] = {}
    frozen: list[psutil.Process] = []
    sent, quiet_until = 0, 0.0
    strike_at = monotonic() + chance.expovariate(1 / kill_every)
    while True:
        unfinished = lab.call("unfinished")
        if more := wanted(sent):
            if unfinished < _BATCH:
                sent += len(lab.call("submit", min(_BATCH, more)))
        elif not unfinished or (quiet_until and monotonic() > quiet_until):
            return strikes
        elif not quiet_until and unfinished <= _LAST:
            quiet_until = monotonic() + QUIET_SECONDS
        if monotonic() > strike_at and not quiet_until:
            struck = _strike(chance.choice(nodes), frozen, chance)
            strikes[struck] = strikes.get(struck, 0) + 1
            strike_at = monotonic() + chance.expovariate(1 / kill_every)
        for process in frozen[:-1] if not quiet_until else frozen:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)  # somebody woke the machine up again
        for node in nodes:
            node.keep()
        sleep(0.2)


def _strike(node: Node, frozen: list[psutil.Process], chance: random.Random) -> str:
    role, number = chance.choice(_ROLES), chance.choice(_SIGNALS)
    victims = node.processes()[role]
    if not victims:
        return "nobody there"
    victim = chance.choice(victims)
    with suppress(psutil.NoSuchProcess):
        victim.send_signal(number)
        if number == signal.SIGSTOP:
            frozen.append(victim)
    return f"{role} {number.name}"


def _print(
    tally: dict[str, int],
    strikes: dict[str, int],
    seconds: float,
    database: str,
    options: argparse.Namespace,
) -> None:
    title = (
        f"{tally['sent']} analyses on {options.nodes} nodes with {database}, "
        f"{sum(strikes.values())} strikes, {seconds:,.0f} s (measured, seed {options.seed})"
    )
    table = Table("what", "analyses", "meaning", title=title)
    for name, meaning in _MEANING.items():
        table.add_row(name, f"{tally.get(name, 0):,}", meaning)
    console = Console()
    console.print(table)
    told = ", ".join(f"{count} {name}" for name, count in sorted(strikes.items()))
    console.print(f"Struck: {told or 'nobody'}")


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="memorymark-soak-") as name:
        yield Path(name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m drills.soak", description=__doc__)
    parser.add_argument("--analyses", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument(
        "--kill-every", type=float, default=3.0, metavar="SECONDS", help="on average (default 3)"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.3, help="an analysis takes (default 0.3)"
    )
    parser.add_argument("--seed", type=int, default=1)
    add_postgres_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
