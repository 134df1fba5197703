"""The tasks of the queue: one analysis or one notification, seen through in a process of the pool.

The queue may deliver a task twice or lose it with its worker; the claim makes the first harmless
and :mod:`analyses.recovery` the second. Whatever happens here, the row ends in a final state.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType
from typing import Any

from django import db
from django.conf import settings

from analyses import canary, claims, log_context, nodes
from analyses.claims import Claim, ClaimLost, Outcome
from analyses.engine_events import Failure
from analyses.engine_process import EngineProcess, Engines
from analyses.environment import environment_here
from analyses.models import Analysis
from analyses.notifications import delivery
from analyses.stored_result import tried_batch
from analyses.supervisor import CRASHED, DEADLINE, Lease, LeaseExpired, follow
from engine.result import AnalysisResult

logger = logging.getLogger(__name__)

engines = Engines()
_stopping = threading.Event()
_busy = threading.Event()


def run_analysis(analysis_id: int) -> None:
    """Run one analysis to its end. Never raises, so that the queue has nothing to repeat."""
    with _seen_through():
        try:
            claim = _claim(analysis_id)
            if claim is None:
                logger.info("analysis %s is not waiting any more; nothing to do", analysis_id)
            else:
                _work_safely(claim)
            if not _stopping.is_set():
                keep_warm()
        except db.Error:
            logger.exception("analysis %s could not be taken; it stays queued", analysis_id)


def deliver_notification(notification_id: int) -> None:
    """Try to deliver one notification. Never raises, so that the queue has nothing to repeat."""
    with _seen_through():
        try:
            if not _stopping.is_set():
                delivery.deliver(notification_id)
        except db.Error:
            logger.exception("how notification %s went is not stored", notification_id)


@contextmanager
def _seen_through() -> Iterator[None]:
    """Keep TERM from ending the process before the task is done, or the analysis given back."""
    canary.sing()  # where one task follows another at once, no canary of its own is sent
    _busy.set()
    try:
        yield
    finally:
        _busy.clear()
    if _stopping.is_set():
        sys.exit(0)


def _claim(analysis_id: int) -> Claim | None:
    if _stopping.is_set():
        return None
    this = Analysis.objects.filter(pk=analysis_id)  # nothing, where it has been deleted
    measured_gpu = this.values_list("measured_gpu", flat=True).first()
    here = nodes.here()
    device = here.gpu_uuid if measured_gpu else ""
    return claims.claim(analysis_id, here.name, device, environment_here())


def _work_safely(claim: Claim) -> None:
    lease = Lease(claim)
    with log_context.of_analysis(claim.analysis_id, claim.request_id):
        logger.info("taken, attempt %d", claim.attempt)
        try:
            outcome = _work(lease)
            lease.write_at_last(lambda: claims.finish(claim, outcome))
        except (ClaimLost, LeaseExpired) as error:
            # Whoever has taken it goes on with it; if nobody has, recovery finds it.
            logger.warning("%s; its engine was ended", error)
        else:
            logger.info("ended: %s", type(outcome).__name__)


def _work(lease: Lease) -> Outcome:
    """Ask an engine, which is kept for the next question only if it has answered this one."""
    try:
        question, measures = _question(lease.claim)
        engine = engines.take()
        answered = False
        try:
            outcome = follow(lease, engine, question, _stopping)
            answered = _engine_waits(outcome) and not measures
        finally:
            _put_away(engine, answered)
    except (ClaimLost, LeaseExpired):
        raise
    except Exception as error:
        logger.exception("analysis %s failed in the worker", lease.claim.analysis_id)
        reason = f"MemoryMark's worker failed: {type(error).__name__}: {error}"
        return Failure(code="internal", message=reason)
    return outcome


def _engine_waits(outcome: Outcome) -> bool:
    """Whether the engine itself has said how it ended, and waits for the next question."""
    if isinstance(outcome, Failure):
        return outcome.code not in (DEADLINE, CRASHED)
    return isinstance(outcome, AnalysisResult)


def _put_away(engine: EngineProcess, answered: bool) -> None:
    if answered and not _stopping.is_set():
        engines.give_back(engine)
    else:
        engine.end()


def _question(claim: Claim) -> tuple[dict[str, Any], bool]:
    """What the engine is asked, with what earlier workers found; and whether it measures."""
    analysis = Analysis.objects.prefetch_related("trials").get(pk=claim.analysis_id)
    known = [asdict(tried_batch(trial)) for trial in analysis.trials.all()]
    return {"request": analysis.request, "trials": known}, bool(analysis.measured_gpu)


def keep_warm() -> None:
    """Have an engine ready; where that fails, the next analysis tells the person why."""
    try:
        engines.prepare()
    except OSError:
        logger.exception("no engine could be started ahead: %s", settings.ENGINE_COMMAND)


def start() -> None:
    """Make a fresh worker process stoppable and have its first engine ready."""
    signal.signal(signal.SIGTERM, stop)
    keep_warm()


def stop(_number: int, _frame: FrameType | None) -> None:
    """On TERM: an idle worker ends at once, a busy one after giving its analysis back."""
    _stopping.set()
    if not _busy.is_set():
        engines.close()
        sys.exit(0)
