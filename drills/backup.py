"""Backups of a lab while it works and its processes die: ``python -m drills.backup``.

It backs the lab up several times while the soak runs, and restores each backup into a new lab of
the same kind of database and of the other kind. There, what had ended before the backup has to
be as it was, nothing may be half, and everything else has to be finished by a worker.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

from rich.console import Console
from rich.table import Table

from drills.commands import add_postgres_option, answer, new_database
from drills.lab import Lab
from drills.soak import TRIALS, soak

_FINISH_SECONDS = 120.0
_AT_ONCE = 10


@dataclass(frozen=True)
class Backup:
    """One that was made while the lab worked.

    Attributes:
        file: Where it is.
        finals: What had ended before; see :func:`drills.kept.finals`.
        seconds: How long the command took, with the start of its process.
    """

    file: Path
    finals: dict[str, str]
    seconds: float


@dataclass(frozen=True)
class Found:
    """What became of a backup in another lab; all but ``ended`` and ``finished`` has to be 0.

    Attributes:
        ended: How many analyses had ended before the backup.
        changed: How many of these are missing or differ.
        half: How many have a trial twice, or succeeded without all of theirs.
        miscounted: Whether the savings' rows are not those of the analyses.
        finished: How many of the others a worker has finished.
        stuck: How many it has not.
    """

    ended: int
    changed: int
    half: int
    miscounted: int
    finished: int
    stuck: int

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.changed or self.half or self.miscounted or self.stuck)


def back_up_under_load(
    lab: Lab, *, backups: int, kill_every: float, chance: random.Random
) -> list[Backup]:
    """Run the soak with two nodes until there are enough backups, or it has failed."""
    nodes = [lab.start_node(f"node-{number}") for number in (1, 2)]
    made: list[Backup] = []

    def wanted(_sent: int) -> int:
        return _AT_ONCE if len(made) < backups else 0

    load = Thread(target=soak, args=(lab, nodes, wanted, kill_every, chance))
    load.start()
    while load.is_alive() and len(made) < backups:
        finals = lab.call("kept.finals")
        if len(finals) > (len(made[-1].finals) if made else 0):
            file = lab.folder / f"backup-{len(made) + 1}"
            begun = monotonic()
            lab.manage("backup", str(file))
            made.append(Backup(file, finals, monotonic() - begun))
        sleep(1)
    load.join()
    return made


def restored(backup: Backup, lab: Lab) -> Found:
    """Restore a backup into an empty lab, let a node of it finish what is left, and look."""
    lab.manage("restore", str(backup.file))
    changed = len(lab.call("kept.changed", backup.finals))
    half = _half(lab)
    miscounted = int(lab.call("kept.savings_differ"))
    left = lab.call("unfinished")
    lab.start_node("after")
    lab.wait_for("all_final", seconds=_FINISH_SECONDS)
    stuck = lab.call("unfinished")
    return Found(len(backup.finals), changed, half + _half(lab), miscounted, left - stuck, stuck)


def _half(lab: Lab) -> int:
    tally = lab.call("tally", TRIALS)
    return int(tally["duplicated"] + tally["incomplete"])


def main(arguments: list[str] | None = None) -> int:
    """Run the drill; the exit status is 1 if anything was wrong with a backup."""
    options = _parser().parse_args(arguments)
    chance = random.Random(options.seed)  # noqa: S311  # no secret
    table = Table(
        "from", "into", "backup s", "ended before", "of them changed", "half", "miscounted",
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
                    figures = (found.ended, found.changed, found.half, found.miscounted)
                    table.add_row(
                        _name(source), _name(target), f"{backup.seconds:.1f}",
                        *(f"{figure}" for figure in (*figures, found.finished, found.stuck)),
                    )  # fmt: skip
            good = good and bool(backups)
    Console().print(table)
    return int(not good)


@contextmanager
def _lab(server_url: str) -> Iterator[Lab]:
    with (
        tempfile.TemporaryDirectory(prefix="memorymark-backup-") as folder,
        new_database(server_url) as url,
    ):
        lab = Lab(Path(folder), database_url=url, trials=TRIALS, seconds=0.3, result=answer())
        try:
            yield lab
        finally:
            lab.end()


def _name(url: str) -> str:
    return "PostgreSQL" if url else "SQLite"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m drills.backup", description=__doc__)
    parser.add_argument("--backups", type=int, default=3, help="to make (default 3)")
    parser.add_argument(
        "--kill-every", type=float, default=3.0, metavar="SECONDS", help="on average (default 3)"
    )
    parser.add_argument("--seed", type=int, default=1)
    add_postgres_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
