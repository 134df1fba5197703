"""Queries: predictions and plans that take seconds.

Equal requests share one query and its answer. One that only pages need is dropped when
those pages are closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic, sleep

from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.db.models.functions import Now

from analyses.gpus.added_gpus import check_offered
from analyses.jobs import lab_state, plans, unwanted
from analyses.jobs.plans import catalogue_gpu
from analyses.models import Analysis, Query, QueryKind, QueryStatus, Status
from analyses.permissions import may_administer, may_see_lab
from analyses.services import check_software, check_storable, measured_gpu, split_gpu
from engine.core.choices import Goal
from engine.core.errors import InvalidInput
from engine.gpus import ANY, LOCAL, catalogue_name
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
    """As :func:`analyses.jobs.plans.submit`; a page's new prediction replaces older ones.

    Those that still wait are dropped.
    """
    with transaction.atomic():
        query = plans.submit(member, kind, request, for_page=for_page)
        if for_page and kind == QueryKind.PREDICT:
            _drop_older(member, query)
    return query


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


def has_advice(analysis: Analysis) -> bool:
    """Whether it can have a plan: it is about a batch, wanted, and of a known GPU.

    Which GPU the search for one chooses is known when it has ended.
    """
    if analysis.gpu == ANY and analysis.finished_at is None:
        return False
    known = analysis.gpu != LOCAL or catalogue_name(analysis.measured_gpu) is not None
    is_wanted = analysis.status not in (Status.CANCELLED, Status.CANCELLING)
    return is_wanted and known and analysis.goal == Goal.BATCH
