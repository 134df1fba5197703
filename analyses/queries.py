"""Queries: predictions and plans that take seconds.

Equal requests share one query and its answer. One that only pages need is dropped when
those pages are closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import monotonic, sleep

from django.contrib.auth.models import AnonymousUser, User
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.db.models.functions import Now

from analyses.added_gpus import check_offered
from analyses.jobs import lab_state, queue, unwanted
from analyses.jobs.request_columns import request_hash
from analyses.models import SHARED, Analysis, Query, QueryKind, QueryStatus, Status
from analyses.permissions import may_administer, may_see_lab
from analyses.services import check_software, check_storable, measured_gpu, split_gpu
from engine.answer.ladder import Rung, in_order
from engine.core.border import read_json
from engine.core.choices import Goal
from engine.core.errors import InvalidInput
from engine.gpus import LOCAL, catalogue_name
from engine.interface.assumptions import Assumptions
from engine.interface.request import AnalysisRequest

NO_WORKER = (
    "No worker is online, so nothing is predicted now. Analyze works all the same: the analysis "
    "waits until a worker starts."
)

_LOOK_EVERY_SECONDS = 0.03
_MAX_LOOK_SECONDS = 0.5


def submit(
    member: User, kind: QueryKind, request: AnalysisRequest, *, for_page: bool = False
) -> Query:
    """Queue a query, or join an equal one, which may be answered already.

    Args:
        member: The asker.
        kind: Kind of the query.
        request: A request on a GPU that can be predicted.
        for_page: Whether a page needs it. Its new prediction replaces older ones that still wait.
    """
    digest = query_hash(kind, request)
    with transaction.atomic():
        query = None
        while query is None:  # twice if an equal query is created at the same time
            query = _join(digest, for_page) or _create(kind, digest, request, for_page)
        query.askers.add(member)
        if for_page and kind == QueryKind.PREDICT:
            _drop_older(member, query)
    return query


def _join(digest: str, for_page: bool) -> Query | None:
    if not digest:
        return None
    equal = Query.objects.filter(request_hash=digest, status__in=SHARED)
    stays = {} if for_page else {"for_pages": False}
    # The update locks the row, so that it is not dropped before the asker is added.
    return equal.first() if equal.update(asked_at=Now(), **stays) else None


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


def _drop_older(member: User, newer: Query) -> None:
    """Drop a page's earlier predictions, except those that have other askers too."""
    older = Query.objects.filter(
        askers=member, kind=QueryKind.PREDICT, for_pages=True, status=QueryStatus.WAITING
    ).exclude(pk=newer.pk)
    shared = Exists(User.objects.filter(queries=OuterRef("pk")).exclude(pk=member.pk))
    unwanted.drop(older.exclude(shared))


def keep_alive(query: Query) -> None:
    """Record that a page still waits for the answer."""
    Query.objects.filter(pk=query.pk, status=QueryStatus.WAITING).update(asked_at=Now())


def visible_to(user: User | AnonymousUser) -> QuerySet[Query]:
    """The queries this user may see: their own; an admin sees all."""
    if may_administer(user):
        return Query.objects.all()
    if user.is_authenticated and may_see_lab(user):
        return Query.objects.filter(askers=user)
    return Query.objects.none()


def worker_is_online() -> bool:
    """Whether a node, and so an interactive worker, is online."""
    return lab_state.nodes_online().exists()


def wait_for(query: Query, seconds: float) -> None:
    """Wait until a query is final or the time is up, and refresh it."""
    until = monotonic() + seconds
    pause = _LOOK_EVERY_SECONDS
    while not query.is_final and monotonic() < until:
        sleep(min(pause, max(0.0, until - monotonic())))
        pause = min(1.3 * pause, _MAX_LOOK_SECONDS)
        query.refresh_from_db()


def latest(member: User, kind: QueryKind, request: AnalysisRequest) -> Query | None:
    """The latest query of a request; if its answer may change, the member's own.

    One that an earlier version answered, or from fewer measured steps, stands in until the same is
    requested again: what was advised does not vanish because more is known.
    """
    digest = query_hash(kind, request)
    of_kind = Query.objects.filter(kind=kind)
    if not digest:
        return of_kind.filter(request_hash="", askers=member, request=request.to_dict()).first()
    return (
        of_kind.filter(request_hash=digest).first()
        or of_kind.exclude(request_hash="")
        .filter(request=request.to_dict(), status=QueryStatus.ANSWERED)
        .first()
    )


def ladder_of(query: Query) -> list[Rung]:
    """The ladder of a plan in its order, as far as it is known; empty if another version stored it.

    While the query runs, what is found later may change the order, or stand for a rung.
    """
    stored = (query.answer or {}).get("ladder") or query.rungs
    try:
        rungs = [read_json(Rung, rung) for rung in stored]
    except InvalidInput:
        return []
    return in_order(rungs) if rungs else []


def predictable(fields: Mapping[str, object]) -> AnalysisRequest:
    """The request for flat, untrusted fields, on a catalogue GPU.

    ``local`` and ``local:NAME``, the lab's GPUs, become that kind of GPU in the catalogue.

    Raises:
        InvalidInput: With a message for each wrong field; also if the catalogue lacks the GPU.
    """
    given, wanted = split_gpu(fields)
    request = AnalysisRequest.parse(given)
    check_offered(request.gpu)
    check_storable(request.workload.config)
    check_software(request.workload.software)
    if request.goal is not Goal.BATCH:
        raise InvalidInput({"goal": "only an analysis has another goal than batch; submit one"})
    if request.gpu != LOCAL:
        return request
    return AnalysisRequest.parse({**given, "gpu": catalogue_gpu(measured_gpu(wanted))})


def catalogue_gpu(kind: str) -> str:
    """The catalogue's name of a node's GPU; :exc:`InvalidInput` if it has none."""
    name = catalogue_name(kind)
    if name is None:
        raise InvalidInput(
            {"gpu": f"{kind} is measured, not predicted: the catalogue does not have it"}
        )
    return name


def query_hash(kind: QueryKind, request: AnalysisRequest) -> str:
    """A hash that is equal for queries with equal answers; empty if that cannot be known."""
    if kind == QueryKind.PREDICT:
        request = replace(request, assumptions=Assumptions())  # costs do not matter
        if request.current_batch_size is not None:  # nor do the other allowed batches
            request = replace(request, batch_multiple=1)
    return request_hash(request, kind)


def plan_request(analysis: Analysis) -> AnalysisRequest:
    """The request for the plan of an analysis, on a catalogue GPU.

    Raises:
        InvalidInput: It cannot be predicted.
    """
    gpu = catalogue_gpu(analysis.measured_gpu) if analysis.gpu == LOCAL else analysis.gpu
    return AnalysisRequest.parse({**analysis.request, "gpu": gpu})


def has_advice(analysis: Analysis) -> bool:
    """Whether it can have a plan: it is about a batch, wanted, and of a known GPU."""
    known = analysis.gpu != LOCAL or catalogue_name(analysis.measured_gpu) is not None
    is_wanted = analysis.status not in (Status.CANCELLED, Status.CANCELLING)
    return is_wanted and known and analysis.goal == Goal.BATCH
