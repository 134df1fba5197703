"""Fills the demo's database: runs the plan's analyses on the engine and stores the answers.

The plan numbers its analyses, so an interrupted run resumes where it left off.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from analyses import queries
from analyses.jobs.engine_output import EngineOutput, Failure
from analyses.jobs.engine_process import EngineProcess
from analyses.jobs.nodes import environment_here
from analyses.jobs.plans import plan_request
from analyses.jobs.request_columns import request_columns
from analyses.lab.projects import project_named
from analyses.lab.settings import Settled, settle
from analyses.models import Analysis, CountedSavings, LogLine, QueryKind, Status, Trial
from analyses.results.stored import result_columns
from analyses.savings.aggregation import recounting
from analyses.training_runs.services import store_report
from demo.plan import Planned
from demo.runs import NODE, reports_of
from engine.core.choices import Precision
from engine.interface.request import AnalysisRequest
from engine.interface.result import AnalysisResult

MARK = "Part of the demo: the member and the time are invented; the numbers are real predictions."
ENGINES = 2
_PLANS = 2
"""Each keeps the demo's worker busy for about a minute."""

_LOOK_SECONDS = 0.05

Shared = tuple[Settled, list[Planned]]
"""One request with the analyses that share its answer, the earliest first."""


class EngineGone(Exception):
    """The engine ended without a result; the message is the end of its error output."""


@dataclass
class _Engine:
    """An engine process and the requests of one workload queued for it."""

    process: EngineProcess
    waiting: deque[Shared] = field(default_factory=deque)
    output: EngineOutput = field(default_factory=EngineOutput)
    sent_at: float = 0.0

    def send(self) -> None:
        self.output, self.sent_at = EngineOutput(), monotonic()
        self.process.send({"request": self.waiting[0][0].request.to_dict()})

    def look(self) -> bool:
        """Read the engine's output; returns whether the result is complete.

        Raises:
            EngineGone: The engine ended without a result.
        """
        silent = self.process.silent
        for line in self.process.read(_LOOK_SECONDS):
            self.output.take(line)
        if self.output.outcome is None and silent:
            raise EngineGone(f"the engine ended without an answer: {self.process.stderr_tail}")
        return self.output.outcome is not None


def fill(planned: Iterable[Planned], report: Callable[[str], None]) -> None:
    """Store the missing analyses; calls ``report`` with each line of progress.

    Raises:
        EngineGone: The engine does not work here.
    """
    every = list(planned)
    stored = set(Analysis.objects.values_list("pk", flat=True))
    missing = [one for one in every if one.pk not in stored]
    if not missing:
        return
    members = {one.member: member(one.member) for one in missing}
    groups = deque(_by_workload(missing))
    count = len(every) - len(missing)
    command = [*settings.ENGINE_COMMAND, "--keep-traces"]
    engines = [_Engine(EngineProcess(command)) for _ in range(min(ENGINES, len(groups)))]
    try:
        while busy := [engine for engine in engines if _has_work(engine, groups)]:
            for engine in busy:
                if engine.look():
                    settled, sharing = engine.waiting.popleft()
                    _store(settled, sharing, engine.output, monotonic() - engine.sent_at, members)
                    request = settled.request
                    count += len(sharing)
                    report(f"{count} of {len(every)}: {request.subject.name} on {request.gpu}")
                    if engine.waiting:
                        engine.send()
    finally:
        for engine in engines:
            engine.process.end()


def ask_for_plans() -> int:
    """Queue the plans that find changes other than the batch; the demo's worker answers them.

    They are of the analyses in fp32 whose batch would save most. Asking again changes
    nothing while their answers are kept.
    """
    worth = CountedSavings.objects.filter(
        is_realised=False, usd_per_year__gt=0, analysis__precision=Precision.FP32
    )
    chosen = worth.select_related("analysis__owner").order_by("-usd_per_year", "-pk")[:_PLANS]
    for row in chosen:
        analysis = row.analysis
        queries.submit(analysis.owner, QueryKind.PLAN, plan_request(analysis))
    return len(chosen)


def _has_work(engine: _Engine, groups: deque[deque[Shared]]) -> bool:
    """Whether the engine has work; an idle one takes the next workload."""
    if not engine.waiting and groups:
        engine.waiting = groups.popleft()
        engine.send()
    return bool(engine.waiting)


def member(name: str) -> User:
    """Get or create a member who cannot sign in."""
    found, is_new = User.objects.get_or_create(username=name)
    if is_new:
        found.set_unusable_password()
        found.save()
    return found


def _by_workload(planned: Iterable[Planned]) -> list[deque[Shared]]:
    """Group distinct requests by workload, since one workload's traces serve all of them."""
    groups: dict[str, dict[str, Shared]] = {}
    for one in planned:
        request = AnalysisRequest.parse(one.fields)
        settled = settle(request, one.fields)
        workload = json.dumps(request.workload.to_dict(), sort_keys=True)
        key = json.dumps(settled.request.to_dict(), sort_keys=True)
        group = groups.setdefault(workload, {})
        group.setdefault(key, (settled, []))[1].append(one)
    by_size = sorted(groups.values(), key=len, reverse=True)  # so that engines end close together
    return [deque(group.values()) for group in by_size]


@transaction.atomic
def _store(
    settled: Settled,
    sharing: list[Planned],
    output: EngineOutput,
    seconds: float,
    members: dict[str, User],
) -> None:
    """Store one result for all analyses that share it; later ones refer to the first."""
    first: Analysis | None = None
    for one in sharing:
        analysis = Analysis.objects.filter(
            pk=one.pk
        ).first()  # another process may be filling the same demo
        if analysis is None:
            started_at = one.queued_at + timedelta(milliseconds=300)
            took = timedelta(seconds=seconds if first is None else 0)
            analysis = Analysis.objects.create(
                pk=one.pk,
                owner=members[one.member],
                project=project_named(one.project),
                node=NODE,
                environment=environment_here() | {"node": NODE},
                attempt=1,
                started_at=started_at,
                finished_at=started_at + took,
                answered_from=first,
                **request_columns(settled),
                **_outcome(output),
            )
            _date(analysis, one.queued_at, output)
        if first is None and analysis.status == Status.SUCCEEDED:
            first = analysis


def _outcome(output: EngineOutput) -> dict[str, object]:
    match output.outcome:
        case AnalysisResult() as result:
            return {"status": Status.SUCCEEDED} | result_columns(result)
        case Failure(code, message):
            return {"status": Status.FAILED, "failure_code": code, "failure_reason": message}
        case _:
            raise ValueError("there is no answer to store yet")


def _date(analysis: Analysis, queued_at: datetime, output: EngineOutput) -> None:
    """Store the trials and log of an analysis, and set all times to the plan's."""
    Trial.objects.bulk_create(Trial(analysis=analysis, **vars(trial)) for trial in output.trials)
    lines = [("warning", MARK), *((line.level, line.message) for line in output.lines)]
    LogLine.objects.bulk_create(
        LogLine(analysis=analysis, level=level, message=message) for level, message in lines
    )
    # The database's clock set these times.
    this = Analysis.objects.filter(pk=analysis.pk)
    with recounting(this):
        this.update(queued_at=queued_at, **_adopted(analysis))
    analysis.refresh_from_db()
    for report in reports_of(analysis):
        store_report(analysis.owner, report)
    analysis.trials.update(created_at=analysis.finished_at)
    analysis.log_lines.update(created_at=analysis.finished_at)


def _adopted(analysis: Analysis) -> dict[str, object]:
    """Adopt every third recommendation with a gain, two days later."""
    if analysis.pk % 3 or not analysis.finished_at or not analysis.usd_per_year:
        return {}
    return {
        "adopted_at": analysis.finished_at + timedelta(days=2),
        "adopted_by": analysis.owner,
    }
