"""Fills the demo's database: asks the engine what the plan says, and stores the answers.

Each analysis has the number that the plan gives it, so what is stored already is known, and who
stops the filling can start it again.
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

from analyses.analysis_columns import answered, asked
from analyses.demo.plan import Planned
from analyses.engine_events import Failure
from analyses.engine_process import EngineProcess
from analyses.environment import environment_here
from analyses.harvest import Harvest
from analyses.lab.defaults import Settled, settle
from analyses.models import Analysis, LogLine, Status, Trial
from analyses.savings.counting import counted_anew
from engine.request import AnalysisRequest
from engine.result import AnalysisResult

NODE = "demo"
MARK = (
    "Part of the demo: the member and the time are invented; the figures are predicted, for real."
)
ENGINES = 2
_LOOK_SECONDS = 0.05

Question = tuple[Settled, list[Planned]]
"""One question and who has asked it, the first one first."""


class EngineGone(Exception):
    """The engine has ended without an answer; the message has its last words."""


@dataclass
class _Desk:
    """An engine with the questions of one workload before it."""

    engine: EngineProcess
    waiting: deque[Question] = field(default_factory=deque)
    harvest: Harvest = field(default_factory=Harvest)
    asked_at: float = 0.0

    def ask(self) -> None:
        """Put the first question to the engine."""
        self.harvest, self.asked_at = Harvest(), monotonic()
        self.engine.send({"request": self.waiting[0][0].request.to_dict()})

    def look(self) -> bool:
        """Whether the answer is there.

        Raises:
            EngineGone: If none will come.
        """
        silent = self.engine.silent
        for line in self.engine.read(_LOOK_SECONDS):
            self.harvest.take(line)
        if self.harvest.outcome is None and silent:
            raise EngineGone(f"the engine ended without an answer: {self.engine.stderr_tail}")
        return self.harvest.outcome is not None


def fill(planned: Iterable[Planned], say: Callable[[str], None]) -> None:
    """Make the analyses that are not stored yet.

    Args:
        planned: All of the demo.
        say: Told of the progress, a line at a time.

    Raises:
        EngineGone: If the engine does not work here.
    """
    every = list(planned)
    stored = set(Analysis.objects.values_list("pk", flat=True))
    missing = [one for one in every if one.pk not in stored]
    if not missing:
        return
    members = {one.member: _member(one.member) for one in missing}
    groups = deque(_by_workload(missing))
    count = len(every) - len(missing)
    command = [*settings.ENGINE_COMMAND, "--keep-traces"]
    desks = [_Desk(EngineProcess(command)) for _ in range(min(ENGINES, len(groups)))]
    try:
        while busy := [desk for desk in desks if _has_work(desk, groups)]:
            for desk in busy:
                if desk.look():
                    settled, askers = desk.waiting.popleft()
                    _store(settled, askers, desk.harvest, monotonic() - desk.asked_at, members)
                    request = settled.request
                    count += len(askers)
                    say(f"{count} of {len(every)}: {request.workload.model} on {request.gpu}")
                    if desk.waiting:
                        desk.ask()
    finally:
        for desk in desks:
            desk.engine.end()


def _has_work(desk: _Desk, groups: deque[deque[Question]]) -> bool:
    """Whether the engine is at a question; one that has none takes the next workload."""
    if not desk.waiting and groups:
        desk.waiting = groups.popleft()
        desk.ask()
    return bool(desk.waiting)


def _member(name: str) -> User:
    """A member who cannot sign in."""
    member, is_new = User.objects.get_or_create(username=name)
    if is_new:
        member.set_unusable_password()
        member.save()
    return member


def _by_workload(planned: Iterable[Planned]) -> list[deque[Question]]:
    """The questions, each once; those of a workload together, since its traces serve them all."""
    groups: dict[str, dict[str, Question]] = {}
    for one in planned:
        settled = settle(AnalysisRequest.parse(one.fields), one.fields)
        request = settled.request
        workload = json.dumps(request.workload.to_dict(), sort_keys=True)
        question = json.dumps(request.to_dict(), sort_keys=True)
        group = groups.setdefault(workload, {})
        group.setdefault(question, (settled, []))[1].append(one)
    by_size = sorted(groups.values(), key=len, reverse=True)  # so that both end at about one time
    return [deque(group.values()) for group in by_size]


@transaction.atomic
def _store(
    settled: Settled,
    askers: list[Planned],
    harvest: Harvest,
    seconds: float,
    members: dict[str, User],
) -> None:
    """One answer for all who have asked; the later ones have it from the first one's analysis."""
    first: Analysis | None = None
    for one in askers:
        analysis = Analysis.objects.filter(pk=one.pk).first()  # another filling may run beside this
        if analysis is None:
            started_at = one.queued_at + timedelta(milliseconds=300)
            took = timedelta(seconds=seconds if first is None else 0)
            analysis = Analysis.objects.create(
                pk=one.pk,
                owner=members[one.member],
                node=NODE,
                environment=environment_here() | {"node": NODE},
                attempt=1,
                started_at=started_at,
                finished_at=started_at + took,
                answered_from=first,
                **asked(settled),
                **_outcome(harvest),
            )
            _date(analysis, one.queued_at, harvest)
        if first is None and analysis.status == Status.SUCCEEDED:
            first = analysis


def _outcome(harvest: Harvest) -> dict[str, object]:
    match harvest.outcome:
        case AnalysisResult() as result:
            return {"status": Status.SUCCEEDED} | answered(result)
        case Failure(code, message):
            return {"status": Status.FAILED, "failure_code": code, "failure_reason": message}
        case _:
            raise ValueError("there is no answer to store yet")


def _date(analysis: Analysis, queued_at: datetime, harvest: Harvest) -> None:
    """Put the trials and the log beside an analysis, and the plan's time on all of them."""
    Trial.objects.bulk_create(Trial(analysis=analysis, **vars(trial)) for trial in harvest.trials)
    lines = [("warning", MARK), *((line.level, line.message) for line in harvest.lines)]
    LogLine.objects.bulk_create(
        LogLine(analysis=analysis, level=level, message=message) for level, message in lines
    )
    # The database's clock has set these.
    this = Analysis.objects.filter(pk=analysis.pk)
    with counted_anew(this):
        this.update(queued_at=queued_at, **_adopted(analysis))
    analysis.trials.update(created_at=analysis.finished_at)
    analysis.log_lines.update(created_at=analysis.finished_at)


def _adopted(analysis: Analysis) -> dict[str, object]:
    """Every third recommendation that is a gain has been adopted, two days later."""
    if analysis.pk % 3 or not analysis.finished_at or not analysis.usd_per_year:
        return {}
    return {
        "adopted_at": analysis.finished_at + timedelta(days=2),
        "adopted_by": analysis.owner,
    }
