"""Follows one engine to its answer and stores what it says, for as long as the claim holds.

The claim is a lease: who could not renew it in time, since the database was away, ends the engine
before another node takes the analysis, so that no GPU is used twice.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Mapping
from threading import Event
from time import monotonic

from django import db
from django.conf import settings
from django.db import connection

from analyses import claims, pace
from analyses.claims import Cancelled, Claim, Interrupted, Outcome
from analyses.engine_events import Failure
from analyses.engine_process import EngineProcess
from analyses.harvest import Harvest

logger = logging.getLogger(__name__)

DEADLINE, CRASHED = "deadline", "crashed"
"""The failures of an engine that has not given an answer itself."""

LOOK_EVERY_SECONDS = 0.1
STORE_EVERY_SECONDS = 0.25
CANCEL_CHECK_SECONDS = 0.5


class LeaseExpired(Exception):
    """The database has not taken a write for so long that the analysis may be another's."""


class Lease:
    """A claim that is kept by writing; writes that fail are repeated until it has run out."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.renewed_at = monotonic()

    def write(self, work: Callable[[], None]) -> bool:
        """Try a write that renews the lease.

        Returns:
            Whether the database took it; if not, try again later.

        Raises:
            ClaimLost: The analysis is somebody else's.
            LeaseExpired: It may be by now.
        """
        begun_at = monotonic()
        try:
            work()
        except db.Error as error:
            self._endure(error)
            return False
        self.renewed_at = begun_at
        return True

    def write_at_last(self, work: Callable[[], None]) -> None:
        """Repeat a write until the database takes it.

        Raises:
            ClaimLost: The analysis is somebody else's.
            LeaseExpired: The database was away for too long.
        """
        pause = Event()
        while not self.write(work):
            pause.wait(CANCEL_CHECK_SECONDS)

    def is_to_end(self) -> bool:
        """Whether the analysis is to be cancelled, as far as the database can be asked."""
        try:
            return claims.is_to_end(self.claim)
        except db.Error as error:
            self._endure(error)
            return False

    def _endure(self, error: db.Error) -> None:
        connection.close()  # a broken one must not be used for the next try
        if monotonic() - self.renewed_at > pace.LEASE_SECONDS:
            raise LeaseExpired(
                f"analysis {self.claim.analysis_id}: the database is away: {error}"
            ) from error
        logger.warning("analysis %d: trying again: %s", self.claim.analysis_id, error)


def follow(
    lease: Lease, engine: EngineProcess, question: Mapping[str, object], stopping: Event
) -> Outcome:
    """Put the question to the engine and follow the answer, storing it as it comes.

    Args:
        lease: The hold on the analysis.
        engine: It waits for a question. It is the caller's to end.
        question: As :mod:`engine.run` reads it.
        stopping: Set when the worker has to stop.

    Returns:
        How it ended. Everything said before is stored, the outcome is not.

    Raises:
        ClaimLost: The analysis is somebody else's.
        LeaseExpired: It may be by now.
    """
    deadline = monotonic() + settings.ENGINE_DEADLINE_SECONDS
    harvest = Harvest()
    try:
        engine.send(question)
    except BrokenPipeError:
        logger.warning("the engine died before it was asked")
    outcome = _listen(lease, engine, harvest, stopping, deadline)
    if harvest:
        lease.write_at_last(lambda: _store(lease.claim, harvest))
    return outcome


def _listen(
    lease: Lease, engine: EngineProcess, harvest: Harvest, stopping: Event, deadline: float
) -> Outcome:
    tried_at = checked_at = monotonic()
    while harvest.outcome is None and not engine.silent:
        now = monotonic()
        if stopping.is_set():
            return Interrupted()
        if now > deadline:
            return _late()
        if now - checked_at >= CANCEL_CHECK_SECONDS:
            checked_at = now
            if lease.is_to_end():
                return Cancelled()
        ended = engine.returncode is not None  # asked before reading, so that nothing is missed
        lines = engine.read(0 if ended else LOOK_EVERY_SECONDS)
        for line in lines:
            harvest.take(line)
        if ended and not lines:
            break  # its children may still hold the pipes open
        if now - tried_at >= (STORE_EVERY_SECONDS if harvest else pace.HEARTBEAT_SECONDS):
            tried_at = now
            lease.write(lambda: _store(lease.claim, harvest))
    return harvest.outcome or death_of(engine)


def _store(claim: Claim, harvest: Harvest) -> None:
    if harvest:
        claims.record(claim, harvest.trials, harvest.lines)
        harvest.clear()
    else:
        claims.heartbeat(claim)


def _late() -> Failure:
    seconds = settings.ENGINE_DEADLINE_SECONDS
    return Failure(
        code=DEADLINE,
        message=f"No answer within {seconds:,} seconds, so the engine was stopped. "
        "Try a smaller model, or raise ENGINE_DEADLINE_SECONDS.",
    )


def death_of(engine: EngineProcess) -> Failure:
    """The reason for an engine that ended without an answer."""
    engine.end()
    status = engine.returncode or 0
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    if status == -signal.SIGKILL:
        how += " (this machine may have run out of memory)"
    said = f" Its last words:\n{engine.stderr_tail}" if engine.stderr_tail else ""
    return Failure(code=CRASHED, message=f"The engine {how} before it had an answer.{said}")
