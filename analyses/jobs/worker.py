"""The one task of the queue: running a job in a process of a pool.

The queue may deliver a job twice or lose it with its worker. The lease makes the first harmless and
:mod:`analyses.jobs.recovery` the second. Whatever happens, the job ends in a final state.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType

from django import db
from django.conf import settings
from django.db import connection
from django_q.conf import Conf

from analyses.gpus import added_gpus
from analyses.jobs import (
    engine_session,
    environments,
    lease,
    nodes,
    notifications,
    queue,
    recovery,
    supervisor,
    unwanted,
)
from analyses.jobs.engine_output import Failure
from analyses.jobs.engine_process import Engines
from analyses.jobs.lease import Lease, LeaseExpired, LeaseLost, Outcome, Renewal, Sent
from analyses.models import Analysis, Job, JobKind
from memorymark_site.operations import log

logger = logging.getLogger(__name__)

engines = Engines()
_stopping = threading.Event()
_busy = threading.Event()


def run(job_id: int) -> None:
    """Run one job to its end. Never raises, so that the queue has nothing to retry."""
    with _seen_through(), added_gpus.offered():
        try:
            taken = None if _stopping.is_set() else _claim(job_id)
            if taken is None:
                logger.info("job %s is not waiting any more; nothing to do", job_id)
            else:
                with _named_in_log(taken):
                    _work_safely(Renewal(taken))
            if not _stopping.is_set():
                keep_warm()
        except db.Error:
            logger.exception("job %s could not be taken; it stays queued", job_id)


@contextmanager
def _seen_through() -> Iterator[None]:
    """Keep TERM from ending the process before the job is done or queued again."""
    supervisor.report_alive()  # busy workers get no heartbeat tasks
    _busy.set()
    try:
        yield
    finally:
        _busy.clear()
    if _stopping.is_set():
        sys.exit(0)


def _claim(job_id: int) -> Lease | None:
    job = Job.objects.filter(pk=job_id).first()  # none if its subject was deleted
    if job is None:
        return None
    if job.query_id:
        unwanted.drop_unwanted()
    here = nodes.here()
    measures = job.lane.startswith((queue.MEASUREMENTS, queue.SELF_CHECKS))
    device = here.gpu_uuid if measures else ""
    return lease.claim(job_id, here.name, device, nodes.environment_here(job.software))


def _named_in_log(taken: Lease) -> AbstractContextManager[None]:
    """Add the analysis id and the request id to log lines about an analysis."""
    if taken.kind != JobKind.ANALYSIS:
        return nullcontext()
    this = Analysis.objects.filter(pk=taken.subject_id)
    return log.of_analysis(
        taken.subject_id, this.values_list("request_id", flat=True).first() or ""
    )


def _work_safely(renewal: Renewal) -> None:
    taken = renewal.lease
    logger.info("taken, attempt %d: %s %d", taken.attempt, taken.kind, taken.subject_id)
    try:
        outcome = _work(renewal)
        renewal.write_at_last(lambda: lease.finish(taken, outcome))
    except (LeaseLost, LeaseExpired) as error:
        # Another worker has it and continues, or recovery will find it.
        logger.warning("%s; its engine was ended", error)
    else:
        logger.info("ended: %s", type(outcome).__name__)


def _work(renewal: Renewal) -> Outcome:
    taken = renewal.lease
    try:
        if taken.kind == JobKind.NOTIFICATION:
            return notifications.deliver(taken.subject_id) or Sent()
        return _ask_engine(renewal)
    except (LeaseLost, LeaseExpired):
        raise
    except Exception as error:
        logger.exception("%s %d failed in the worker", taken.kind, taken.subject_id)
        reason = f"MemoryMark's worker failed: {type(error).__name__}: {error}"
        return Failure(code="internal", message=reason)


def _ask_engine(renewal: Renewal) -> Outcome:
    """Run an engine, which is kept for the next request only if it completes this one."""
    asked = engine_session.asked_of(renewal.lease)
    environment = environments.find(asked.software)
    if environment is None:
        return Failure("no_software", f"This node no longer offers {asked.software}.")
    engine = engines.take(environment)
    keeps_engine = False
    try:
        if renewal.lease.kind == JobKind.PLAN:  # somebody waits for the answer that it is about
            engine.let_others_first()
        outcome = engine_session.follow(renewal, engine, asked, _stopping)
        keeps_engine = asked.keeps_engine and engine_session.has_answered(outcome)
    finally:
        if keeps_engine and not _stopping.is_set():
            engines.give_back(engine)
        else:
            engine.end()
    return outcome


def keep_warm() -> None:
    """Have an engine ready; if that fails, the next job reports the reason."""
    try:
        engines.prepare()
    except OSError:
        logger.exception("no engine could be started ahead: %s", settings.ENGINE_COMMAND)


def start() -> None:
    """Prepare a new worker process: handle TERM, and have an engine ready."""
    signal.signal(signal.SIGTERM, stop)
    if Conf.CLUSTER_NAME == queue.INTERACTIVE:
        engines.keep_traces = True
        _release_predecessor()
    keep_warm()


def _release_predecessor() -> None:
    """Release the queries of this node's previous interactive worker: there is only one."""
    try:
        recovery.release(nodes.here().name, queue.INTERACTIVE)
    except db.Error:
        logger.exception("what the worker before this one had in hand is released later")
        connection.close()


def stop(_number: int, _frame: FrameType | None) -> None:
    """End on TERM: an idle worker immediately, a busy one after queueing its job again."""
    _stopping.set()
    if not _busy.is_set():
        engines.close()
        sys.exit(0)
