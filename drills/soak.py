"""Many analyses while processes are killed: ``python -m drills.soak``.

It starts its own lab with an engine that computes nothing, submits analyses, kills or freezes
processes at random, restarts what a process manager would, and prints how the analyses ended.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep

import psutil
from rich.console import Console
from rich.table import Table

from drills.commands import add_postgres_option, answer, name_of, new_lab
from drills.lab import Lab
from drills.node import Node

TRIALS = 4
QUIET_SECONDS = 90.0
"""Time the lab may take to finish once nothing is killed any more."""

_ROLES = ("engine", "staff", "staff", "guard", "pool", "node")
_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
_BATCH, _LAST = 20, 3
_MEANING = {
    "sent": "analyses submitted",
    "succeeded": "with a result",
    "failed": "with a reason: their engine was killed",
    "lost": "with a reason: two workers died with them",
    "cancelled": "by a member",
    "retried": "of these, taken over from a dead worker",
    "duplicated": "with a trial stored twice (must be 0)",
    "incomplete": "succeeded with trials missing (must be 0)",
    "stuck": "not finished (must be 0)",
}
_MUST_BE_ZERO = ("duplicated", "incomplete", "stuck")


def main(arguments: list[str] | None = None) -> int:
    """Run the soak; the exit status is 1 if an analysis was stuck, duplicated or incomplete."""
    options = _parser().parse_args(arguments)
    chance = random.Random(options.seed)  # noqa: S311  # no secret
    with new_lab(options.postgres, trials=TRIALS, seconds=options.seconds, result=answer()) as lab:
        nodes = [lab.start_node(f"node-{number}") for number in range(1, options.nodes + 1)]
        begun = monotonic()
        strikes = soak(lab, nodes, lambda sent: options.analyses - sent, options.kill_every, chance)
        seconds = monotonic() - begun
        tally = lab.call("tally", TRIALS)
    _print(tally, strikes, seconds, name_of(options.postgres), options)
    return int(any(tally.get(name, 0) for name in _MUST_BE_ZERO))


def soak(
    lab: Lab,
    nodes: list[Node],
    wanted: Callable[[int], int],
    kill_every: float,
    chance: random.Random,
) -> dict[str, int]:
    """Submit analyses, strike processes and restart nodes until all is done or time is up.

    Args:
        lab: The lab to submit to.
        nodes: The lab's nodes, whose processes are struck.
        wanted: Given the number submitted so far, how many more to submit.
        kill_every: Mean time between two strikes, in seconds.
        chance: Chooses what is struck, and when.

    Returns:
        The number of strikes by role and signal.
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
                process.send_signal(signal.SIGCONT)  # as if the machine had woken up
        for node in nodes:
            node.keep()
        sleep(0.2)


def _strike(node: Node, frozen: list[psutil.Process], chance: random.Random) -> str:
    role, number = chance.choice(_ROLES), chance.choice(_SIGNALS)
    victims = node.processes()[role]
    if not victims:
        return "no process"
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
    struck = ", ".join(f"{count} {name}" for name, count in sorted(strikes.items()))
    console.print(f"Struck: {struck or 'none'}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m drills.soak", description=__doc__)
    parser.add_argument("--analyses", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument(
        "--kill-every",
        type=float,
        default=3.0,
        metavar="SECONDS",
        help="mean time between strikes (default 3)",
    )
    parser.add_argument(
        "--seconds", type=float, default=0.3, help="duration of an analysis (default 0.3)"
    )
    parser.add_argument("--seed", type=int, default=1)
    add_postgres_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
