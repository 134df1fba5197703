"""The node process: keeps one machine's pool of workers alive, and tidies up after other nodes.

It does little, so that little can go wrong with it; a process manager starts it again if it dies.
"""

from __future__ import annotations

import logging
import signal
from threading import Event
from time import monotonic

from django import db
from django.db import connection, connections

from analyses import nodes, pace, queue, recovery, selectors
from analyses.models import Node
from analyses.pool import Pool

logger = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.25
STOP_SECONDS = 4.0
"""For the workers to give their analyses back; honcho kills everything after 5 seconds."""

LONGEST_PAUSE_SECONDS = 30.0


class NodeProcess:
    """Runs a pool until it is told to stop or the node has been drained."""

    def __init__(self) -> None:
        self._stopping = Event()
        self._pool: Pool | None = None
        self._failures = 0
        self._not_before = self._beat_at = 0.0

    def run(self) -> None:
        """Work until TERM or INT, or until a draining node has nothing left to do."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: self._stopping.set())
        while not self._stopping.is_set() and not _begin():
            self._stopping.wait(pace.HEARTBEAT_SECONDS)
        while not self._stopping.is_set() and not self._is_drained():
            self._look_after_pool()
            if monotonic() - self._beat_at >= pace.HEARTBEAT_SECONDS:
                self._beat_at = monotonic()
                _beat()
            self._stopping.wait(LOOK_EVERY_SECONDS)
        if self._pool is not None:
            self._pool.stop(STOP_SECONDS)

    def _look_after_pool(self) -> None:
        if self._pool is None:
            if monotonic() >= self._not_before:
                connections.close_all()  # a connection must not be shared with a child
                self._pool = Pool()
            return
        self._pool.listen()
        if self._pool.returncode is not None:
            self._start_again("The pool of workers has died")
        elif self._is_wedged(self._pool):
            self._start_again("Nothing gets through to the workers")
        elif self._pool.heard_at > self._not_before + LONGEST_PAUSE_SECONDS:
            self._failures = 0

    def _is_wedged(self, pool: Pool) -> bool:
        """Whether a canary should have been heard: some worker has nothing to do."""
        if monotonic() - pool.heard_at < pace.CANARY_SILENCE_SECONDS:
            return False
        here = nodes.here()
        try:
            wedged = selectors.busy_workers(here.name) < here.workers
        except db.Error:
            logger.exception("the workers cannot be judged while the database is away")
            connection.close()
            wedged = False
        if not wedged:
            pool.heard_at = monotonic()
        return wedged

    def _start_again(self, why: str) -> None:
        pause = min(2.0**self._failures - 1, LONGEST_PAUSE_SECONDS)
        logger.error("%s; starting them again in %.0f s", why, pause)
        self._failures += 1
        self._not_before = monotonic() + pause
        if self._pool is not None:
            self._pool.stop(STOP_SECONDS)
            self._pool = None
        try:
            queue.release_locked()
        except db.Error:
            logger.exception("entries of the queue stay locked for a while")
            connection.close()

    def _is_drained(self) -> bool:
        if monotonic() - self._beat_at < pace.HEARTBEAT_SECONDS:
            return False
        name = nodes.here().name
        try:
            return Node.objects.filter(
                name=name, draining=True
            ).exists() and not selectors.busy_workers(name)
        except db.Error:
            connection.close()  # _beat says so
            return False


def _begin() -> bool:
    """Join the lab, as soon as the database lets us."""
    try:
        nodes.register()
        recovery.recover()
        queue.release_locked()
    except db.Error:
        logger.exception("this node cannot join the lab yet; trying again")
        connection.close()
        return False
    return True


def _beat() -> None:
    """A sign of life, and a look at what other workers left behind."""
    try:
        nodes.beat()
        recovery.recover()
    except db.Error:
        logger.exception("no heartbeat: the database did not take it; trying again")
        connection.close()  # a broken one must not be used for the next try
