"""Follows one engine to its result and stores its events, for as long as the lease holds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from threading import Event
from time import monotonic
from typing import Any

from django.conf import settings

from analyses.gpus import added_gpus, self_checks
from analyses.jobs import lease as leases
from analyses.jobs import nodes, timeouts
from analyses.jobs.engine_output import KILLED, EngineOutput, Failure, QueryOutput
from analyses.jobs.engine_process import EngineProcess
from analyses.jobs.environments import OWN
from analyses.jobs.lease import Cancelled, Interrupted, Lease, Outcome, Renewal
from analyses.jobs.measured_steps import measured_steps
from analyses.lab.settings import prices_for
from analyses.models import Analysis, JobKind, Query
from analyses.results.stored import tried_batch
from engine.events import Answer
from engine.gpus.checked import SECONDS
from engine.interface.result import AnalysisResult
from engine.interface.texts import TextResult
from engine.run import Command

logger = logging.getLogger(__name__)

DEADLINE, CRASHED = "deadline", "crashed"
"""The failures of an engine that has not given an answer itself."""

_MARGIN_SECONDS = 30.0
"""The engine ends its self-check in time; one that does not hangs."""

LOOK_EVERY_SECONDS = 0.1
STORE_EVERY_SECONDS = 0.25
CANCEL_CHECK_SECONDS = 0.5


@dataclass(frozen=True)
class Asked:
    """A request to an engine.

    Attributes:
        request: The request, as :mod:`engine.run` reads it.
        seconds: Time limit.
        advice: Advice if it takes longer.
        keeps_engine: Whether the engine may be reused afterwards.
        software: The versions that the workload has to run with.
    """

    request: Mapping[str, object]
    seconds: float
    advice: str
    keeps_engine: bool
    software: str


_MORE_TIME = {
    JobKind.PREDICT: "An analysis has more time.",
    JobKind.PLAN: "Try again once the workers are less busy, or raise PLAN_DEADLINE_SECONDS.",
}
"""Advice about a query that took too long."""


def asked_of(lease: Lease) -> Asked:
    """A job's request: an analysis with the trials of earlier workers, a query or a self-check."""
    if lease.kind == JobKind.SELF_CHECK:
        return Asked(
            {"ask": Command.SELF_CHECK},
            SECONDS + _MARGIN_SECONDS,
            "Restart the worker to check again.",
            keeps_engine=False,
            software=OWN,
        )
    if lease.kind == JobKind.ANALYSIS:
        analysis = Analysis.objects.prefetch_related("trials").get(pk=lease.subject_id)
        known = [asdict(tried_batch(trial)) for trial in analysis.trials.all()]
        return Asked(
            {
                "request": analysis.request,
                "trials": known,
                "measured": _measured(analysis.request),
                **_of_the_lab(analysis.request),
            },
            settings.ENGINE_DEADLINE_SECONDS,
            "Try a smaller model, or raise ENGINE_DEADLINE_SECONDS.",
            keeps_engine=not analysis.measured_gpu,
            software=analysis.software,
        )
    query = Query.objects.get(pk=lease.subject_id)
    return Asked(
        {
            "ask": lease.kind,
            "request": query.request,
            "measured": _measured(query.request),
            **_of_the_lab(query.request),
        },
        settings.QUERY_DEADLINE_SECONDS[lease.kind],
        _MORE_TIME[JobKind(lease.kind)],
        keeps_engine=lease.kind == JobKind.PREDICT,
        software=query.request.get("software") or "",
    )


def _of_the_lab(request: Mapping[str, Any]) -> dict[str, object]:
    """The measurements of the lab's nodes, the GPUs added to the catalogue, and the prices."""
    return {
        "prices": {gpu: price.usd for gpu, price in prices_for(request).items()},
        "checks": self_checks.of_the_lab(nodes.here().name),
        "gpus": [asdict(gpu) for gpu in added_gpus.known_for(request["gpu"])],
    }


def _measured(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The lab's measured steps on the GPU of a request."""
    return [asdict(residual) for residual in measured_steps(request["gpu"])]


def follow(renewal: Renewal, engine: EngineProcess, asked: Asked, stopping: Event) -> Outcome:
    """Send a request to the engine and store its events as they come.

    Args:
        renewal: Keeps the lease on the job.
        engine: A waiting engine; the caller ends it.
        asked: The request.
        stopping: Set when the worker must stop.

    Returns:
        The outcome, which is not stored; all events before it are.

    Raises:
        LeaseLost: The job belongs to another worker.
        LeaseExpired: It may belong to another worker by now.
    """
    is_analysis = renewal.lease.kind == JobKind.ANALYSIS
    output: EngineOutput | QueryOutput = EngineOutput() if is_analysis else QueryOutput()
    engine.send(asked.request)
    outcome = _listen(renewal, engine, output, stopping, asked)
    if output:
        renewal.write_at_last(lambda: _store(renewal.lease, output))
    return outcome


def has_answered(outcome: Outcome) -> bool:
    """Whether the engine itself reported the outcome, and waits for the next request."""
    if isinstance(outcome, Failure):
        return outcome.code not in (DEADLINE, CRASHED, KILLED)
    return isinstance(outcome, (AnalysisResult, TextResult, Answer))


def _listen(
    renewal: Renewal,
    engine: EngineProcess,
    output: EngineOutput | QueryOutput,
    stopping: Event,
    asked: Asked,
) -> Outcome:
    deadline = monotonic() + asked.seconds
    tried_at = checked_at = monotonic()
    while output.outcome is None and not engine.silent:
        now = monotonic()
        if stopping.is_set():
            return Interrupted()
        if now > deadline:
            return _late(asked)
        if now - checked_at >= CANCEL_CHECK_SECONDS:
            checked_at = now
            if renewal.is_to_end():
                return Cancelled()
        ended = engine.returncode is not None  # checked before reading, so that nothing is missed
        lines = engine.read(0 if ended else LOOK_EVERY_SECONDS)
        for line in lines:
            output.take(line)
        if ended and not lines:
            break  # its children may still hold the pipes open
        if now - tried_at >= (STORE_EVERY_SECONDS if output else timeouts.HEARTBEAT_SECONDS):
            tried_at = now
            renewal.write(lambda: _store(renewal.lease, output))
    return output.outcome or death_of(engine)


def _store(lease: Lease, output: EngineOutput | QueryOutput) -> None:
    if not output or lease.kind == JobKind.SELF_CHECK:  # nobody waits for its progress
        leases.renew(lease)
    elif isinstance(output, EngineOutput):
        leases.record(lease, output.trials, output.lines)
    else:
        leases.record_progress(lease, output.progress, output.rungs)
    output.clear()


def _late(asked: Asked) -> Failure:
    message = f"No answer within {asked.seconds:,} seconds, so the engine was stopped."
    return Failure(DEADLINE, f"{message} {asked.advice}")


def death_of(engine: EngineProcess) -> Failure:
    """The reason for an engine that ended without a result."""
    engine.end()
    status = engine.returncode or 0
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    if engine.was_killed:
        how += " (this machine may have run out of memory)"
    said = f" Its last words:\n{engine.stderr_tail}" if engine.stderr_tail else ""
    code = KILLED if engine.was_killed else CRASHED
    return Failure(code, f"The engine {how} before it had an answer.{said}")
