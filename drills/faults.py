"""Faults that strike a lab from outside, and what each costs: analyses and seconds.

Each fault strikes a node that is in the middle of an analysis, while others wait.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

from drills.commands import name_of, new_lab
from drills.lab import Lab, until
from drills.node import Node
from drills.own_server import OwnServer, tables_locked
from drills.surroundings import (
    NoSmallDisk,
    cut_connections,
    full,
    locked,
    read_only,
    small_disk,
)

TRIALS, BEFORE = 20, 5
"""Trials of an analysis, and how many of them are stored when the fault strikes."""

AWAY_SECONDS = 10.0
"""Seconds that a database or disk is away: less than the 20 s for which workers retry."""

_DISK_MEBIBYTES = 96
_RECOVERY_SECONDS = 120.0
_FINISH_SECONDS = 300.0


class NotRun(Exception):
    """A fault cannot be tried here; the message says why."""


@dataclass(frozen=True)
class Scene:
    """A lab that a fault is about to strike.

    Attributes:
        lab: A lab with its nodes online.
        node: The one in the middle of an analysis.
        disk: The small disk of its data folder, where one could be mounted.
    """

    lab: Lab
    node: Node
    disk: Path | None


@dataclass(frozen=True)
class Outcome:
    """The effects of a fault.

    Attributes:
        fault: The fault.
        where: The part it struck.
        database: SQLite or PostgreSQL.
        submitted: Analyses that the lab had accepted.
        lost: Number of these without a whole result in the end.
        doubled: Analyses stored twice, or with a trial stored twice.
        recovery_seconds: Time from the end of the fault until what had stood still went on.
        failed_pages: Pages answered with an error; none where no site was running.
        sent_again: Analyses that had to be sent twice, since the answer was an error.
        not_run: Reason why it was not tried; empty if it was.
    """

    fault: str
    where: str
    database: str
    submitted: int = 0
    lost: int = 0
    doubled: int = 0
    recovery_seconds: float | None = None
    failed_pages: int | None = None
    sent_again: int | None = None
    not_run: str = ""

    @property
    def is_well(self) -> bool:
        """Whether nothing was lost or doubled, no page failed, and the lab went on."""
        went_on = self.recovery_seconds is not None or bool(self.not_run)
        return went_on and not (self.lost or self.doubled or self.failed_pages)


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong on a node or around it.

    Attributes:
        name: The fault.
        where: The part it strikes.
        strikes: Makes it happen; returns once it is over.
        nodes: Number of nodes of the lab.
        recovered: The function of :mod:`drills.inside` that checks it; without one, the
            struck analysis has to go on.
    """

    name: str
    where: str
    strikes: Callable[[Scene], None]
    nodes: int = 1
    recovered: str = ""


def _signalled(role: str, number: signal.Signals) -> Callable[[Scene], None]:
    return lambda scene: scene.node.strike(role, number)


def _restarted(scene: Scene) -> None:
    scene.node.strike("node", signal.SIGKILL)
    scene.node.process.wait()
    scene.node.start()


def _database_away(scene: Scene) -> None:
    if url := scene.lab.database_url:
        scene.lab.release()
        cut_connections(url, AWAY_SECONDS, refuse=True)
        return
    with locked(scene.lab.data_dir):
        scene.lab.release()
        sleep(AWAY_SECONDS)


def _disk_full(scene: Scene) -> None:
    if scene.disk is None:
        raise NotRun("only root may mount a small disk")
    with full(scene.disk):
        scene.lab.release()
        sleep(AWAY_SECONDS)


def _tables_locked(scene: Scene) -> None:
    if not scene.lab.database_url:
        raise NotRun("SQLite has one lock, which another fault holds")
    with tables_locked(scene.lab.database_url):
        scene.lab.release()
        sleep(AWAY_SECONDS)


def _disk_read_only(scene: Scene) -> None:
    if scene.disk is None:
        raise NotRun("only root may mount a small disk")
    with read_only(scene.disk):
        scene.lab.release()
        sleep(AWAY_SECONDS)


def _jobs_deleted(scene: Scene) -> None:
    scene.lab.call("delete_jobs")


def _wrong_key(scene: Scene) -> None:
    scene.lab.start_node("odd", SECRET_KEY="another key than the lab has")  # noqa: S106  # of this drill


# Killed: by signal 9. Frozen: by SIGSTOP, for good.
FAULTS = (
    Fault("engine killed", "engine", _signalled("engine", signal.SIGKILL)),
    Fault("worker killed", "worker", _signalled("staff", signal.SIGKILL)),
    Fault("worker frozen", "worker", _signalled("staff", signal.SIGSTOP)),
    Fault("pool frozen", "pool", _signalled("pool", signal.SIGSTOP)),
    Fault("node process killed", "cluster", _restarted),
    Fault("one of two nodes killed", "machine", lambda scene: scene.node.kill(), nodes=2),
    Fault(f"database away {AWAY_SECONDS:.0f} s", "database", _database_away),
    Fault(f"disk full {AWAY_SECONDS:.0f} s", "data folder", _disk_full),
    Fault(f"disk read-only {AWAY_SECONDS:.0f} s", "data folder", _disk_read_only),
    Fault(f"tables locked {AWAY_SECONDS:.0f} s", "database", _tables_locked),
    Fault("rows deleted", "queue", _jobs_deleted),
    Fault("another SECRET_KEY", "second node", _wrong_key, 1, "node_with_wrong_key"),
)


def of_server(server: OwnServer) -> tuple[Fault, ...]:
    """The faults of a PostgreSQL server that nobody else uses."""

    def restarted(scene: Scene) -> None:
        scene.lab.release()
        server.restart(AWAY_SECONDS)

    def cut_off(scene: Scene) -> None:
        with server.wire.broken():
            scene.lab.release()
            sleep(AWAY_SECONDS)

    def frozen(scene: Scene) -> None:
        with server.frozen():
            scene.lab.release()
            sleep(AWAY_SECONDS)

    return (
        Fault(f"restarted, away {AWAY_SECONDS:.0f} s", "database", restarted),
        Fault(f"cut off {AWAY_SECONDS:.0f} s", "network to the database", cut_off),
        Fault(f"server frozen {AWAY_SECONDS:.0f} s", "database", frozen),
    )


def run(
    faults: Sequence[Fault],
    server_url: str,
    result: dict[str, Any],
    *,
    analyses: int,
    heartbeat: float,
    seconds: float,
) -> Iterator[Outcome]:
    """Strike a lab with one fault after another; its processes are new for each of them.

    Args:
        faults: Faults to try.
        server_url: Address of a PostgreSQL server; empty for SQLite.
        result: The result of each analysis.
        analyses: Number submitted for each fault.
        heartbeat: Seconds between two heartbeats of a worker, from which all timeouts follow.
        seconds: Duration of an analysis without a fault.
    """
    if not faults:
        return
    with TemporaryDirectory(prefix="memorymark-disk-") as folder, ExitStack() as stack:
        try:
            disk = stack.enter_context(small_disk(Path(folder) / "disk", _DISK_MEBIBYTES))
        except NoSmallDisk:
            disk = None
        lab = stack.enter_context(
            new_lab(
                server_url,
                data_dir=disk,
                trials=TRIALS,
                seconds=seconds,
                heartbeat=heartbeat,
                result=result,
            )
        )
        for fault in faults:
            nodes = [lab.start_node(f"node-{number + 1}") for number in range(fault.nodes)]
            try:
                yield _outcome(fault, Scene(lab, nodes[0], disk), analyses)
            except NotRun as reason:
                yield Outcome(fault.name, fault.where, name_of(server_url), not_run=str(reason))
            finally:
                lab.end()


def _outcome(fault: Fault, scene: Scene, analyses: int) -> Outcome:
    lab = scene.lab
    lab.hold(after=BEFORE)
    _need(lab.wait_for("are_online", fault.nodes), "the nodes did not start")
    submitted = lab.call("submit", analyses)
    _need(pk := lab.wait_for("in_hand", scene.node.name), "no analysis was started")
    _need(lab.wait_for("is_at_work", pk, BEFORE), "the analysis stands still")
    try:
        fault.strikes(scene)
    finally:
        lab.release()
    check = (fault.recovered,) if fault.recovered else ("has_gone_on", pk, BEFORE)
    seconds = recovery(lambda: lab.call(*check))
    lab.wait_for("all_final", seconds=_FINISH_SECONDS)
    tally = lab.call("tally", TRIALS, submitted[0])
    return Outcome(
        fault.name,
        fault.where,
        name_of(lab.database_url),
        submitted=len(submitted),
        lost=len(submitted) - tally.get("succeeded", 0) + tally["incomplete"],
        doubled=tally["duplicated"] + tally["sent"] - len(submitted),
        recovery_seconds=seconds,
    )


def recovery(check: Callable[[], object]) -> float | None:
    """The seconds from now until something is so; nothing if it takes too long."""
    begun = monotonic()
    return monotonic() - begun if until(check, _RECOVERY_SECONDS) else None


def _need(found: object, otherwise: str) -> None:
    if not found:
        raise RuntimeError(otherwise)
