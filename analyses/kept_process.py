"""Keeps one child of the node process alive: starts it again when it dies or hangs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from django import db
from django.db import connection, connections

from analyses import pace
from analyses.bound_process import Bound

logger = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS = 30.0

STOP_SECONDS = 4.0
"""For work in hand to be given back; honcho kills everything after 5 seconds."""


@dataclass
class Kept:
    """A management command that is to run for as long as the node process does.

    Attributes:
        command: Its name.
        name: What it is, in words for the log.
        should_be_heard: Whether its canary's silence means that it hangs; a database error means
            that nobody can tell.
        after_end: Tidies up after one that has ended.
    """

    command: str
    name: str
    should_be_heard: Callable[[], bool]
    after_end: Callable[[], None]
    _process: Bound | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    _not_before: float = field(default=0.0, init=False)

    def look_after(self) -> None:
        """Start it, or start it again; after each failure it waits a while longer."""
        if self._process is None:
            if monotonic() >= self._not_before:
                connections.close_all()  # a connection must not be shared with a child
                self._process = Bound(self.command)
            return
        self._process.listen()
        if self._process.returncode is not None:
            self._start_again(f"The {self.name} died")
        elif self._hangs(self._process):
            self._start_again(f"Nothing gets through to the {self.name}")
        elif self._process.heard_at > self._not_before + LONGEST_PAUSE_SECONDS:
            self._failures = 0

    def ask_to_end(self) -> None:
        """Let it begin to end; :meth:`stop` waits for it."""
        if self._process is not None:
            self._process.ask_to_end()

    def stop(self, grace_seconds: float) -> None:
        """End it, by KILL if the grace is not enough."""
        if self._process is not None:
            self._process.stop(grace_seconds)
            self._process = None

    def _hangs(self, process: Bound) -> bool:
        """Whether its canary should have been heard."""
        if monotonic() - process.heard_at < pace.CANARY_SILENCE_SECONDS:
            return False
        try:
            hangs = self.should_be_heard()
        except db.Error:
            logger.exception("the %s cannot be judged while the database is away", self.name)
            connection.close()
            hangs = False
        if not hangs:
            process.heard_at = monotonic()
        return hangs

    def _start_again(self, why: str) -> None:
        pause = min(2.0**self._failures - 1, LONGEST_PAUSE_SECONDS)
        logger.error("%s; starting again in %.0f s", why, pause)
        self._failures += 1
        self._not_before = monotonic() + pause
        self.stop(STOP_SECONDS)
        try:
            self.after_end()
        except db.Error:
            logger.exception("what the %s left behind stays for a while", self.name)
            connection.close()
