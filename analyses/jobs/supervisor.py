"""Keeps the children of the node process alive: restarts one when it dies or hangs.

Each child leads its own process group. Node process and group are connected by pipes, which the
operating system closes however a process ends: the group ends when the node process does, and the
node process hears the workers' heartbeat.

A worker killed while waiting takes the lock of django-q2's internal queue with it. Later workers
look alive but never get a task; only a task that arrives proves otherwise. All tasks report, and
heartbeat tasks are sent when there are no others.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, sleep

from django import db
from django.conf import settings
from django.db import connection, connections

from analyses.jobs import timeouts

logger = logging.getLogger(__name__)

MAX_PAUSE_SECONDS = 30.0

STOP_SECONDS = 4.0
"""Time to give back work in hand; the parent process kills everything after 5 seconds."""

LIFELINE = "MEMORYMARK_LIFELINE"
"""Names the pipe whose end means that the node process has gone."""

HEARTBEAT_PIPE = "MEMORYMARK_HEARTBEAT_PIPE"
"""Names the pipe to the node process, by the number of its file descriptor."""

HEARTBEAT_TASK = "analyses.jobs.supervisor.report_alive"


@dataclass
class Supervisor:
    """Runs a pool of workers for as long as the node process runs.

    Attributes:
        pool: Its name.
        should_be_heard: Whether silence means that it hangs; a database error means that this is
            unknown.
    """

    pool: str
    should_be_heard: Callable[[], bool]
    _process: ChildProcess | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    _not_before: float = field(default=0.0, init=False)

    def look_after(self) -> None:
        """Start or restart it, with a longer pause after each failure."""
        if self._process is None:
            if monotonic() >= self._not_before:
                connections.close_all()  # a child must not share a connection
                self._process = ChildProcess("pool", self.pool)
            return
        self._process.listen()
        if self._process.returncode is not None:
            self._start_again(f"The pool {self.pool} died")
        elif self._hangs(self._process):
            self._start_again(f"Nothing gets through to the pool {self.pool}")
        elif self._process.heard_at > self._not_before + MAX_PAUSE_SECONDS:
            self._failures = 0

    def ask_to_end(self) -> None:
        """Request its end; :meth:`stop` waits for it."""
        if self._process is not None:
            self._process.ask_to_end()

    def stop(self, grace_seconds: float) -> None:
        """End it, with KILL after the grace period."""
        if self._process is not None:
            self._process.stop(grace_seconds)
            self._process = None

    def _hangs(self, process: ChildProcess) -> bool:
        """Whether its workers should have been heard by now."""
        if monotonic() - process.heard_at < timeouts.HEARTBEAT_SILENCE_SECONDS:
            return False
        try:
            hangs = self.should_be_heard()
        except db.Error:
            logger.exception(
                "the pool %s cannot be judged while the database does not respond", self.pool
            )
            connection.close()
            hangs = False
        if not hangs:
            process.heard_at = monotonic()
        return hangs

    def _start_again(self, why: str) -> None:
        pause = min(2.0**self._failures - 1, MAX_PAUSE_SECONDS)
        logger.error("%s; starting again in %.0f s", why, pause)
        self._failures += 1
        self._not_before = monotonic() + pause
        self.stop(STOP_SECONDS)


class ChildProcess:
    """A running management command and its process group, seen from the node process."""

    def __init__(self, *command: str) -> None:
        lifeline, self._lifeline = os.pipe()
        self._heartbeat, report = os.pipe()
        os.set_blocking(self._heartbeat, False)
        os.set_blocking(report, False)  # an unread report must not block a worker
        self._process = subprocess.Popen(
            [sys.executable, "-m", "django", *command],
            cwd=settings.BASE_DIR,
            env=os.environ | {LIFELINE: str(lifeline), HEARTBEAT_PIPE: str(report)},
            pass_fds=(lifeline, report),
            start_new_session=True,
        )
        os.close(lifeline)
        os.close(report)
        self.heard_at = monotonic() + timeouts.STARTING_SECONDS

    @property
    def pid(self) -> int:
        """The process id of its first process, and of its process group."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status of its first process; ``None`` while it runs."""
        return self._process.poll()

    def listen(self) -> None:
        """Note whether a worker has reported since the last time."""
        try:
            if os.read(self._heartbeat, 4096):
                self.heard_at = monotonic()
        except BlockingIOError:
            return

    def ask_to_end(self) -> None:
        """Send TERM to all of its processes."""
        self._signal(signal.SIGTERM)

    def stop(self, grace_seconds: float) -> None:
        """End all of its processes: TERM, then KILL after the grace period."""
        self.ask_to_end()
        until = monotonic() + grace_seconds
        while self._has_members() and monotonic() < until:
            sleep(0.05)
        self._signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._lifeline, self._heartbeat):
            os.close(pipe)

    def _has_members(self) -> bool:
        """Whether any of its processes holds the heartbeat pipe, which all of them inherit."""
        try:
            return os.read(self._heartbeat, 4096) != b""
        except BlockingIOError:
            return True

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return  # no process is left (macOS gives EPERM for a group of zombies)


def report_alive() -> None:
    """Notify the node process, if there is one, that a worker of this pool got a task."""
    if HEARTBEAT_PIPE not in os.environ:
        return
    with suppress(BlockingIOError):  # unread for so long that the pipe is full
        os.write(int(os.environ[HEARTBEAT_PIPE]), b".")


def end_with_node_process() -> None:
    """End this process and its group when the node process is gone.

    Workers do this too, since the first process of their group may be dead or frozen by then.
    """
    if LIFELINE not in os.environ:
        return  # in a test, without a node process
    lifeline = int(os.environ[LIFELINE])

    def wait() -> None:
        os.read(lifeline, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()
