"""Plans of analyses: asked for once an analysis has succeeded, and what they decide.

A plan is a query, so equal analyses share one, and whoever asks for it gets the same answer. Its
ladder says what each of these analyses advises (:mod:`analyses.results.decided`), in the
transaction that stores it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from analyses.gpus import added_gpus
from analyses.jobs import lab_state, notifications, queue
from analyses.jobs.request_columns import request_hash
from analyses.models import (
    DOES_NOT_FIT,
    OF_A_PROGRAM,
    SHARED,
    Analysis,
    FigureSource,
    Job,
    Query,
    QueryKind,
    QueryStatus,
    Status,
)
from analyses.notifications import inbox
from analyses.results import decided
from analyses.results.ladders import pushed_ladder, read_ladder
from analyses.savings.aggregation import recounting, workload_key
from analyses.training_runs import services as training_runs
from engine.answer.ladder import Rung
from engine.core.choices import Goal
from engine.core.errors import InvalidInput
from engine.gpus import LOCAL, catalogue_name
from engine.interface.assumptions import Assumptions
from engine.interface.program import workload_request
from engine.interface.request import AnalysisRequest
from engine.versions import software

MESSAGES_WAIT = timedelta(minutes=5)
"""A message about an analysis waits this long for its plan, to say what the page will say."""

_CAUGHT_UP_AT_ONCE = 20


def catalogue_gpu(kind: str) -> str:
    """The catalogue's name of a node's GPU; :exc:`InvalidInput` if it has none."""
    name = catalogue_name(kind)
    if name is None:
        raise InvalidInput(
            {"gpu": f"{kind} is measured, not predicted: the catalogue does not have it"}
        )
    return name


def plan_request(analysis: Analysis) -> AnalysisRequest:
    """The request for the plan of an analysis, on a catalogue GPU.

    Raises:
        InvalidInput: It cannot be predicted, as no script can here.
    """
    gpu = catalogue_gpu(analysis.measured_gpu) if analysis.gpu == LOCAL else analysis.gpu
    return workload_request({**analysis.request, "gpu": gpu})


def query_hash(kind: QueryKind, request: AnalysisRequest) -> str:
    """A hash that is equal for queries with equal answers; empty if that cannot be known."""
    if kind == QueryKind.PREDICT:
        request = replace(request, assumptions=Assumptions())  # costs do not matter
        if request.current_batch_size is not None:  # nor do the other allowed batches
            request = replace(request, batch_multiple=1)
    return request_hash(request, kind)


def submit(
    member: User, kind: QueryKind, request: AnalysisRequest, *, for_page: bool = False
) -> Query:
    """Queue a query, or join an equal one, which may be answered already.

    Args:
        member: The asker.
        kind: Kind of the query.
        request: A request on a GPU that can be predicted.
        for_page: Whether a page needs it: it is then more urgent, and dropped with the page.
    """
    digest = query_hash(kind, request)
    with transaction.atomic():
        query = None
        while query is None:  # twice if an equal query is created at the same time
            query = _join(digest, for_page) or _create(kind, digest, request, for_page)
        query.askers.add(member)
    return query


def _join(digest: str, for_page: bool) -> Query | None:
    if not digest:
        return None
    equal = Query.objects.filter(request_hash=digest, status__in=SHARED)
    stays = {} if for_page else {"for_pages": False}
    # The update locks the row, so that it is not dropped before the asker is added.
    query = equal.first() if equal.update(asked_at=Now(), **stays) else None
    if query is not None and for_page:
        Job.objects.filter(query=query, state=Status.QUEUED).update(priority=1)
    return query


def _create(kind: QueryKind, digest: str, request: AnalysisRequest, for_page: bool) -> Query | None:
    try:
        with transaction.atomic():
            query = Query.objects.create(
                kind=kind, request_hash=digest, request=request.to_dict(), for_pages=for_page
            )
            queue.enqueue(query)
            return query
    except IntegrityError:
        return None


def latest(member: User, kind: QueryKind, request: AnalysisRequest) -> Query | None:
    """The latest query of a request; if its answer may change, the member's own."""
    digest = query_hash(kind, request)
    equal = Query.objects.filter(kind=kind, request_hash=digest)
    if not digest:
        equal = equal.filter(askers=member, request=request.to_dict())
    return equal.first()


def latest_or_earlier(member: User, kind: QueryKind, request: AnalysisRequest) -> Query | None:
    """As :func:`latest`; else one that an earlier version answered, or from fewer measured steps.

    It stands in until the same is requested again: advice does not vanish because more is known.
    """
    if query := latest(member, kind, request):
        return query
    answered = Query.objects.filter(kind=kind, status=QueryStatus.ANSWERED)
    return answered.exclude(request_hash="").filter(request=request.to_dict()).first()


def ladder_of(query: Query) -> list[Rung]:
    """The ladder of a plan in its order, as far as it is known; empty if another version stored it.

    While the query runs, what is found later may change the order, or stand for a rung.
    """
    return read_ladder((query.answer or {}).get("ladder") or query.rungs)


# What finished analyses ask for


def ask_for(numbers: Collection[int]) -> None:
    """Ask for the plans of analyses that have just ended, so that each gets its decision.

    Whatever a plan may decide is planned, whether anyone looks at it or not, so that looking
    changes no decision. Measured answers and those that chose a GPU among others are not replaced
    by a plan; what does not fit has no answer to replace. Messages wait for the plan a while.

    Call it in the transaction in which they end, or in which their adoption is undone.
    """
    by_plan = Q(source=FigureSource.PREDICTED) & (_HAS_NO_CHOICE_OF_GPU | OF_A_PROGRAM)
    found = _undecided().filter(by_plan | DOES_NOT_FIT, pk__in=numbers)
    waiting = []
    for analysis in found.select_related("owner", "pushed_ladder"):
        if rungs := pushed_ladder(analysis):
            _advise(analysis, rungs)
            continue
        query = _asked(analysis)
        if query is None:
            continue
        if query.status == QueryStatus.ANSWERED:
            _advise(analysis, ladder_of(query))
        else:
            waiting.append(analysis.pk)
    notifications.hold(waiting, MESSAGES_WAIT)


def _asked(analysis: Analysis) -> Query | None:
    """The query of an analysis's plan, new or old; ``None`` if it cannot be predicted."""
    try:
        request = plan_request(analysis)
    except InvalidInput:
        return None
    known = latest(analysis.owner, QueryKind.PLAN, request)
    if known is not None and known.status == QueryStatus.ANSWERED:
        return known
    return submit(analysis.owner, QueryKind.PLAN, request)


_HAS_NO_CHOICE_OF_GPU = Q(result__compared_gpus__0__isnull=True)
"""An answer that chose its GPU keeps it; see :func:`analyses.results.decided.advise`. The GPUs of a
script are only compared."""


def _undecided() -> QuerySet[Analysis]:
    """The analyses that a plan may decide: predicted or not fitting, and not adopted."""
    predicted = Q(status=Status.SUCCEEDED, measured_gpu="")
    return Analysis.objects.filter(
        predicted | DOES_NOT_FIT, goal=Goal.BATCH, adopted_at=None
    ).defer("result")


class Awaited(StrEnum):
    """The things that the decision of an analysis may wait for; the values are those of the API."""

    ANALYSIS = "analysis"
    PLAN = "plan"
    WORKER = "worker"


def awaited(analysis: Analysis) -> Awaited | None:
    """The event a decision waits for: its analysis, the plan, or a worker for the plan.

    ``None`` once it is final: a plan that has failed, or that nobody has asked for, never comes.
    """
    if not analysis.is_final:
        return Awaited.ANALYSIS
    if not unfinished().exists():  # so that most answers need no more queries
        return None
    try:
        request = plan_request(analysis)
    except InvalidInput:
        return None
    may_be_decided = _undecided().filter(_HAS_NO_CHOICE_OF_GPU, pk=analysis.pk)
    if not (unfinished().filter(request=request.to_dict()).exists() and may_be_decided.exists()):
        return None
    pins = software.parse(request.workload.software)
    offered = lab_state.software_offered().values()
    takes_it = any(software.is_offered(pins, versions) for versions in offered)
    return Awaited.PLAN if takes_it else Awaited.WORKER


def unfinished() -> QuerySet[Query]:
    """The plans that wait for a worker or have one."""
    states = (Status.QUEUED, Status.RUNNING)
    return Query.objects.filter(kind=QueryKind.PLAN, job__state__in=states)


# What answered plans decide


def queries_ended(numbers: Collection[int], state: Status) -> None:
    """Take over what plans have found that have just ended, in the same transaction."""
    for query in Query.objects.filter(pk__in=numbers, kind=QueryKind.PLAN):
        rows = list(planned_by(query))
        if state == Status.SUCCEEDED:
            _decide(query, rows)
        notifications.release([row.pk for row in rows])


def planned_by(query: Query) -> Iterator[Analysis]:
    """Yield the analyses that a plan may decide."""
    found = _undecided().filter(
        workload_key=workload_key(query.request),
        current_batch_size=query.request.get("current_batch_size"),
    )
    same: dict[str, bool] = {}
    for analysis in found:
        text = json.dumps(analysis.request, sort_keys=True)
        if text not in same:
            same[text] = _planned_request(analysis) == query.request
        if same[text]:
            yield analysis


def catch_up() -> int:
    """Take over what plans found before decisions were stored; returns how many plans it read."""
    plans = Query.objects.filter(
        kind=QueryKind.PLAN, status=QueryStatus.ANSWERED, is_taken_over=False
    )
    late = list(plans.order_by("pk")[:_CAUGHT_UP_AT_ONCE])  # of two, the newer counts
    with added_gpus.offered():
        for query in late:
            rows = list(planned_by(query))
            with recounting(Analysis.objects.filter(pk__in=[row.pk for row in rows])):
                _decide(query, rows)
    return len(late)


def _planned_request(analysis: Analysis) -> dict[str, object] | None:
    try:
        return plan_request(analysis).to_dict()
    except InvalidInput:
        return None


def _decide(query: Query, rows: Collection[Analysis]) -> None:
    rungs = ladder_of(query)
    for analysis in rows:
        _advise(analysis, rungs)
    Query.objects.filter(pk=query.pk).update(is_taken_over=True)


def _advise(analysis: Analysis, rungs: list[Rung]) -> None:
    if not rungs:  # another version stored them
        return
    this = Analysis.objects.filter(pk=analysis.pk)
    this.update(**decided.advise(analysis, rungs))
    training_runs.verify_reported([analysis.pk])
    inbox.note_decision(this.select_related("owner", "decided").defer("request", "result").get())
