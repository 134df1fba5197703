"""The task of the queue: runs the engine for one analysis and stores what it says.

The queue may deliver a task twice or lose it with its worker; the claim makes the first harmless
and :mod:`analyses.recovery` the second. Whatever happens here, the row ends in a final state.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from dataclasses import dataclass, field
from time import monotonic
from types import FrameType

from django import db
from django.conf import settings

from analyses import services
from analyses.engine_events import Failure, parse
from analyses.engine_process import EngineProcess, Line, Standby
from analyses.models import Analysis
from analyses.services import Claim, ClaimLost
from engine.events import Log
from engine.result import AnalysisResult, Trial

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 3.0
STORE_EVERY_SECONDS = 0.25
LONGEST_LOG_LINE = 4096
MOST_LOG_LINES = 5000

INTERRUPTED = (
    "The worker was stopped while it worked on this. Nothing is wrong with it; run it again."
)

standby = Standby()
_stopping = threading.Event()
_busy = threading.Event()


@dataclass(frozen=True)
class Outcome:
    """How an engine ended: with a result, or with a code and a reason."""

    result: AnalysisResult | None = None
    code: str = ""
    reason: str = ""


@dataclass
class Harvest:
    """What the engine has said so far; ``trials`` and ``lines`` are not stored yet."""

    trials: list[Trial] = field(default_factory=list)
    lines: list[Log] = field(default_factory=list)
    line_count: int = 0
    outcome: Outcome | None = None

    def take(self, line: Line) -> None:
        """Sort in one line of output."""
        event = parse(line.text) if line.stream == "stdout" else None
        match event:
            case Trial():
                self.trials.append(event)
            case AnalysisResult():
                self.outcome = Outcome(event)
            case Failure():
                self.outcome = Outcome(code=event.code, reason=event.message)
            case Log():
                self._say(event)
            case None:
                self._say(Log(line.text))

    def _say(self, line: Log) -> None:
        if not line.message.strip():
            return
        self.line_count += 1
        if self.line_count > MOST_LOG_LINES:
            return
        if self.line_count == MOST_LOG_LINES:
            line = Log(f"The log ends here: {MOST_LOG_LINES:,} lines are kept.", "warning")
        message = line.message
        if len(message) > LONGEST_LOG_LINE:
            message = message[: LONGEST_LOG_LINE - 1] + "…"
        self.lines.append(Log(message, line.level))


def run_analysis(analysis_id: int) -> None:
    """Run one analysis to its end. Never raises, so that the queue has nothing to repeat."""
    _busy.set()  # from here on, TERM does not end the process before the row is final
    try:
        claim = services.claim(analysis_id)
        if claim is None:
            logger.info("analysis %s is not waiting any more; nothing to do", analysis_id)
        else:
            _work_safely(claim)
        if not _stopping.is_set():
            prepare_standby()
    except db.Error:
        logger.exception("analysis %s could not be taken; it stays queued", analysis_id)
    finally:
        _busy.clear()
    if _stopping.is_set():
        sys.exit(0)


def _work_safely(claim: Claim) -> None:
    try:
        _work(claim)
    except ClaimLost as error:
        logger.warning("%s; its engine was ended", error)
    except Exception as error:
        logger.exception("analysis %s failed in the worker", claim.analysis_id)
        _fail_if_possible(claim, f"MemoryMark's worker failed: {type(error).__name__}: {error}")


def _work(claim: Claim) -> None:
    request = Analysis.objects.values_list("request", flat=True).get(pk=claim.analysis_id)
    engine = standby.take()
    try:
        outcome = _ask(claim, engine, request)
    finally:
        engine.end()
    if outcome.result is not None:
        services.succeed(claim, outcome.result)
    else:
        services.fail(claim, outcome.code, outcome.reason)


def _ask(claim: Claim, engine: EngineProcess, request: dict[str, object]) -> Outcome:
    """Put the question and follow the answer, storing it as it comes."""
    deadline = monotonic() + settings.ENGINE_DEADLINE_SECONDS
    harvest = Harvest()
    stored_at = beat_at = monotonic()
    try:
        engine.send(request)
    except BrokenPipeError:
        logger.warning("the engine died before it was asked")
    while harvest.outcome is None and not engine.silent:
        if _stopping.is_set():
            return Outcome(code="worker_stopped", reason=INTERRUPTED)
        if monotonic() > deadline:
            _store(claim, harvest)
            return _late()
        ended = engine.returncode is not None  # asked before reading, so that nothing is missed
        lines = engine.read(0 if ended else 0.1)
        for line in lines:
            harvest.take(line)
        if ended and not lines:
            break  # its children may still hold the pipes open
        now = monotonic()
        if (harvest.trials or harvest.lines) and now - stored_at >= STORE_EVERY_SECONDS:
            _store(claim, harvest)
            stored_at = beat_at = now
        elif now - beat_at >= HEARTBEAT_SECONDS:
            services.heartbeat(claim)
            beat_at = now
    _store(claim, harvest)
    return harvest.outcome or _died(engine)


def _store(claim: Claim, harvest: Harvest) -> None:
    services.record(claim, harvest.trials, harvest.lines)
    harvest.trials, harvest.lines = [], []


def _late() -> Outcome:
    seconds = settings.ENGINE_DEADLINE_SECONDS
    return Outcome(
        code="deadline",
        reason=f"No answer within {seconds:,} seconds, so the engine was stopped. "
        "Try a smaller model, or raise ENGINE_DEADLINE_SECONDS.",
    )


def _died(engine: EngineProcess) -> Outcome:
    """The reason for an engine that ended without an answer."""
    engine.end()
    status = engine.returncode or 0
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    if status == -signal.SIGKILL:
        how += " (this machine may have run out of memory)"
    said = f" Its last words:\n{engine.stderr_tail}" if engine.stderr_tail else ""
    return Outcome(code="crashed", reason=f"The engine {how} before it had an answer.{said}")


def _fail_if_possible(claim: Claim, reason: str) -> None:
    try:
        services.fail(claim, "internal", reason)
    except (ClaimLost, db.Error):
        # It was lost meanwhile, or the database is away: then recovery ends it by its heartbeat.
        logger.exception("analysis %s could not be marked as failed", claim.analysis_id)


def prepare_standby() -> None:
    """Have an engine ready; where that fails, the next analysis tells the person why."""
    try:
        standby.prepare()
    except OSError:
        logger.exception("no engine could be started ahead: %s", settings.ENGINE_COMMAND)


def start() -> None:
    """Make a fresh worker process stoppable and have its first engine ready."""
    signal.signal(signal.SIGTERM, stop)
    prepare_standby()


def stop(_number: int, _frame: FrameType | None) -> None:
    """On TERM: an idle worker ends at once, a busy one after ending its analysis in words."""
    _stopping.set()
    if not _busy.is_set():
        standby.close()
        sys.exit(0)
