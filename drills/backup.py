"""Backups of a lab while it works and its processes die: ``python -m drills.backup``.

It backs up the lab several times during the soak and restores each backup into a new lab, on the
same kind of database and on the other kind. There, analyses that had finished before the backup
must be unchanged, none may be incomplete, and a worker must finish the rest.
"""

from __future__ import annotations

import argparse
import random
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

from rich.console import Console
from rich.table import Table

from drills.commands import add_postgres_option, answer, name_of, new_lab
from drills.lab import Lab
from drills.soak import TRIALS, soak

_FINISH_SECONDS = 120.0
_AT_ONCE = 10


@dataclass(frozen=True)
class Backup:
    """A backup made while the lab was working.

    Attributes:
        file: Its path.
        finals: The analyses finished before it; see :func:`drills.backup_checks.finals`.
        seconds: Run time of the command, including process start.
    """

    file: Path
    finals: dict[str, str]
    seconds: float


@dataclass(frozen=True)
class Found:
    """The state of a restored backup; all but ``ended`` and ``finished`` must be 0.

    Attributes:
        ended: Analyses that had finished before the backup.
        changed: Number of these that are missing or different.
        half: Analyses with a duplicate trial, or that succeeded with trials missing.
        miscounted: 1 if the savings rows do not match the analyses.
        finished: Number of the other analyses that a worker finished.
        stuck: Number that it did not.
    """

    ended: int
    changed: int
    half: int
    miscounted: int
    finished: int
    stuck: int

    @property
    def is_good(self) -> bool:
        """Whether the restored lab is intact."""
        return not (self.changed or self.half or self.miscounted or self.stuck)


def back_up_under_load(
    lab: Lab, *, backups: int, kill_every: float, chance: random.Random
) -> list[Backup]:
    """Run the soak with two nodes until there are enough backups or it fails."""
    nodes = [lab.start_node(f"node-{number}") for number in (1, 2)]
    made: list[Backup] = []

    def wanted(_sent: int) -> int:
        return _AT_ONCE if len(made) < backups else 0

    load = Thread(target=soak, args=(lab, nodes, wanted, kill_every, chance))
    load.start()
    while load.is_alive() and len(made) < backups:
        finals = lab.call("backup_checks.finals")
        if len(finals) > (len(made[-1].finals) if made else 0):
            file = lab.folder / f"backup-{len(made) + 1}"
            begun = monotonic()
            lab.manage("backup", str(file))
            made.append(Backup(file, finals, monotonic() - begun))
        sleep(1)
    load.join()
    return made


def restored(backup: Backup, lab: Lab) -> Found:
    """Restore a backup into an empty lab, let a node finish the rest, and check the state."""
    lab.manage("restore", str(backup.file), "--unsigned")  # each lab has a key of its own
    changed = len(lab.call("backup_checks.changed", backup.finals))
    half = _half(lab)
    miscounted = int(lab.call("backup_checks.savings_differ"))
    left = lab.call("unfinished")
    lab.start_node("after")
    lab.wait_for("all_final", seconds=_FINISH_SECONDS)
    stuck = lab.call("unfinished")
    return Found(len(backup.finals), changed, half + _half(lab), miscounted, left - stuck, stuck)


def _half(lab: Lab) -> int:
    tally = lab.call("tally", TRIALS)
    return int(tally["duplicated"] + tally["incomplete"])


def main(arguments: list[str] | None = None) -> int:
    """Run the drill; the exit status is 1 if any backup was bad."""
    options = _parser().parse_args(arguments)
    chance = random.Random(options.seed)  # noqa: S311  # no secret
    table = Table(
        "from", "to", "backup s", "finished before", "changed", "half", "miscounted",
        "finished after", "stuck", title="Backups under load (measured); a good one has four zeros",
    )  # fmt: skip
    good = True
    for source in ("", options.postgres) if options.postgres else ("",):
        with _lab(source) as lab:
            backups = back_up_under_load(
                lab,
                backups=options.backups,
                kill_every=options.kill_every,
                chance=chance,
            )
            for backup in backups:
                for target in ("", options.postgres) if options.postgres else ("",):
                    with _lab(target) as empty:
                        found = restored(backup, empty)
                    good = good and found.is_good
                    counts = (found.ended, found.changed, found.half, found.miscounted)
                    table.add_row(
                        name_of(source), name_of(target), f"{backup.seconds:.1f}",
                        *(f"{count}" for count in (*counts, found.finished, found.stuck)),
                    )  # fmt: skip
            good = good and bool(backups)
    Console().print(table)
    return int(not good)


def _lab(server_url: str) -> AbstractContextManager[Lab]:
    return new_lab(server_url, trials=TRIALS, seconds=0.3, result=answer())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m drills.backup", description=__doc__)
    parser.add_argument("--backups", type=int, default=3, help="number of backups (default 3)")
    parser.add_argument(
        "--kill-every",
        type=float,
        default=3.0,
        metavar="SECONDS",
        help="mean time between strikes (default 3)",
    )
    parser.add_argument("--seed", type=int, default=1)
    add_postgres_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
