"""The desk: a process of each node that answers lookups, one of each kind at a time.

It takes rows straight from the table, so there is no queue entry that could be lost, stay behind a
measurement or outlive a question nobody wants any more. As it is one process, the engine that
traced a workload is also the one that is asked about it next, and has its traces at hand. A plan
takes much longer than a prediction, so each kind has a seat and an engine of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic, sleep

from django import db
from django.conf import settings
from django.db import connection

from analyses import canary, pace
from analyses.engine_events import Failure, parse
from analyses.engine_process import EngineProcess, Engines
from analyses.harvest import LONGEST_LOG_LINE
from analyses.lookups import services
from analyses.lookups.services import Hold
from analyses.models import Ask
from analyses.supervisor import CRASHED, DEADLINE, death_of
from engine.events import Answer, Log

logger = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.1
READ_SECONDS = 0.03
BEAT_EVERY_SECONDS = pace.HEARTBEAT_SECONDS / 3
SING_EVERY_SECONDS = 1.0


class Seat:
    """Works on one lookup after the other of one kind.

    Args:
        ask: The kind.
        node: The name of this node.
        keeps_engine: Whether an engine is kept warm, with the traces of what it was asked last.
    """

    def __init__(self, ask: Ask, node: str, *, keeps_engine: bool) -> None:
        self._ask, self._node, self._keeps_engine = ask, node, keeps_engine
        self._engines = Engines("--keep-traces")
        self._work: Work | None = None

    def look(self) -> bool:
        """Take a lookup if there is one, or see how the one in hand goes.

        Returns:
            Whether there is something in hand.

        Raises:
            django.db.Error: What has not been written yet is tried again the next time.
        """
        if self._work is None:
            hold = services.take(self._ask, self._node)
            if hold is not None:
                self._begin(hold)
            elif self._keeps_engine:
                self._prepare()
        if self._work is not None and self._work.look():
            self._end_work(answered=self._work.engine_waits)
        return self._work is not None

    def leave(self) -> None:
        """Give back what is in hand, and end the engines."""
        if self._work is not None:
            hold = self._work.hold
            self._end_work(answered=False)
            services.give_back(hold)
        self._engines.close()

    def _begin(self, hold: Hold) -> None:
        try:
            engine = self._engines.take()
        except OSError as error:
            reason = f"No engine could be started on {self._node}: {error}"
            services.fail(hold, Failure("internal", reason))
            return
        self._work = Work(hold, self._ask, engine)

    def _prepare(self) -> None:
        try:
            self._engines.prepare()
        except OSError:
            logger.exception("no engine could be started ahead: %s", settings.ENGINE_COMMAND)
            sleep(1)

    def _end_work(self, *, answered: bool) -> None:
        assert self._work is not None  # noqa: S101  # its callers have looked
        engine, self._work = self._work.engine, None
        if answered and self._keeps_engine:
            self._engines.give_back(engine)
        else:
            engine.end()


class Work:
    """One lookup in hand, and the engine that was asked."""

    def __init__(self, hold: Hold, ask: Ask, engine: EngineProcess) -> None:
        self.hold, self.engine = hold, engine
        self._seconds = settings.LOOKUP_DEADLINE_SECONDS[ask]
        self._begun_at = self._beat_at = monotonic()
        self._progress = ""
        self._outcome: Answer | Failure | None = None
        try:
            engine.send({"ask": ask, "request": hold.request})
        except BrokenPipeError:
            logger.warning("the engine died before it was asked")

    @property
    def engine_waits(self) -> bool:
        """Whether the engine has ended this itself, and waits for the next question."""
        if isinstance(self._outcome, Failure):
            return self._outcome.code not in (DEADLINE, CRASHED)
        return self._outcome is not None

    def look(self) -> bool:
        """Hear what the engine says, and store it.

        Returns:
            Whether this is done: the outcome is stored, or the lookup is not this desk's any more.
        """
        if self._outcome is None:
            self._outcome = self._listen()
        match self._outcome:
            case Answer(body):
                _say_if_lost(self.hold, services.answer(self.hold, body))
            case Failure():
                _say_if_lost(self.hold, services.fail(self.hold, self._outcome))
            case None:
                return not self._beats()
        return True

    def _listen(self) -> Answer | Failure | None:
        ended = self.engine.returncode is not None  # asked before reading: nothing is missed
        lines = self.engine.read(0 if ended else READ_SECONDS)
        for line in lines:
            event = parse(line.text) if line.stream == "stdout" else None
            if isinstance(event, (Answer, Failure)):
                return event
            if isinstance(event, Log):
                self._progress = event.message[:LONGEST_LOG_LINE]
        if self.engine.silent or (ended and not lines):
            return death_of(self.engine)
        return self._late() if monotonic() - self._begun_at > self._seconds else None

    def _beats(self) -> bool:
        if monotonic() - self._beat_at < BEAT_EVERY_SECONDS:
            return True
        self._beat_at = monotonic()
        return services.beat(self.hold, self._progress)

    def _late(self) -> Failure:
        return Failure(
            DEADLINE,
            f"No answer within {self._seconds:,} seconds, so the engine was stopped. An analysis "
            "has more time.",
        )


def work(node: str, is_to_stop: Callable[[], bool]) -> None:
    """Answer lookups until it is to stop; what is in hand then is given back.

    Args:
        node: The name of this node.
        is_to_stop: Asked often.
    """
    seats = [Seat(Ask.PREDICT, node, keeps_engine=True), Seat(Ask.PLAN, node, keeps_engine=False)]
    sang_at = 0.0
    released = False
    while not is_to_stop():
        try:
            if not released:
                services.release(node)
                released = True
            busy = [seat.look() for seat in seats]
        except db.Error:
            logger.exception("the database is away; trying again")
            connection.close()  # a broken one must not be used for the next try
            busy = []
            sleep(1)
        if monotonic() - sang_at >= SING_EVERY_SECONDS:
            sang_at = monotonic()
            canary.sing()
        if not any(busy):
            sleep(LOOK_EVERY_SECONDS)
    for seat in seats:
        try:
            seat.leave()
        except db.Error:
            logger.exception("what was in hand is found by the desk that comes next")
            connection.close()


def _say_if_lost(hold: Hold, stored: bool) -> None:
    if not stored:
        logger.warning("lookup %d is no longer this desk's; its answer is not needed", hold.pk)
