"""The node process: keeps one machine's workers alive, and cleans up after other nodes.

It does little, so that little can go wrong; a process manager restarts it if it dies.
"""

from __future__ import annotations

import logging
import signal
from functools import partial
from threading import Event
from time import monotonic

from django import db
from django.db import connection

from analyses.jobs import checking, nodes, queue, recovery, timeouts
from analyses.jobs.retention import Housekeeper
from analyses.jobs.supervisor import STOP_SECONDS, Supervisor
from analyses.models import Node

logger = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.25


class NodeProcess:
    """Runs the pools until it is stopped or the node is drained."""

    def __init__(self) -> None:
        self._stopping = Event()
        self._beat_at = 0.0
        self._housekeeper = Housekeeper()
        self._pools = [
            Supervisor(pool, partial(queue.has_free_worker, pool)) for pool in queue.POOLS
        ]

    def run(self) -> None:
        """Run until TERM or INT, or until a draining node has no work left."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: self._stopping.set())
        while not self._stopping.is_set() and not _begin():
            self._stopping.wait(timeouts.HEARTBEAT_SECONDS)
        while not self._stopping.is_set() and not self._is_drained():
            for pool in self._pools:
                pool.look_after()
            if monotonic() - self._beat_at >= timeouts.HEARTBEAT_SECONDS:
                self._beat_at = monotonic()
                _beat()
                self._housekeeper.look()
            self._stopping.wait(LOOK_EVERY_SECONDS)
        self._stop()

    def _stop(self) -> None:
        until = monotonic() + STOP_SECONDS
        for pool in self._pools:
            pool.ask_to_end()
        for pool in self._pools:
            pool.stop(max(0.0, until - monotonic()))

    def _is_drained(self) -> bool:
        if monotonic() - self._beat_at < timeouts.HEARTBEAT_SECONDS:
            return False
        name = nodes.here().name
        try:
            return (
                Node.objects.filter(name=name, draining=True).exists()
                and not queue.at_work_on(name).exists()
            )
        except db.Error:
            connection.close()  # _beat logs it
            return False


def _begin() -> bool:
    """Join the lab as soon as the database is available."""
    try:
        nodes.register()
        checking.ask_if_due()
        recovery.recover()
    except db.Error:
        logger.exception("this node cannot join the lab yet; trying again")
        connection.close()
        return False
    return True


def _beat() -> None:
    """Set the heartbeat, and recover jobs of dead workers."""
    try:
        nodes.beat()
        recovery.recover()
    except db.Error:
        logger.exception("no heartbeat: the database did not take it; trying again")
        connection.close()  # do not reuse a broken connection for the retry
