"""Every read: who sees what, and what is alive."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.models import AnonymousUser
from django.contrib.auth.models import User as Member
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from analyses import pace
from analyses.models import (
    AT_WORK,
    Analysis,
    CountedSavings,
    Delivery,
    LogLine,
    Node,
    Notification,
    Status,
)
from analyses.permissions import may_see_lab

STANDSTILL = timedelta(seconds=20)
"""With nothing running, an analysis that waits for longer shows that nobody takes it."""

COUNTED = 10_000
"""More analyses than this are not counted: that would cost more than it tells."""


@dataclass(frozen=True)
class Count:
    """How many analyses there are.

    Attributes:
        number: At most :data:`COUNTED`.
        is_all: Whether there are no more.
    """

    number: int
    is_all: bool


def visible_to(user: Member | AnonymousUser) -> QuerySet[Analysis]:
    """The analyses this user may see: who is of the lab sees all of it, anybody else none."""
    analyses = Analysis.objects.select_related("owner", "adopted_by", "push")
    return analyses if may_see_lab(user) else analyses.none()


def count_of(analyses: QuerySet[Analysis]) -> Count:
    """How many of the analyses there are, as far as they are counted."""
    found = analyses.order_by().values("pk")[: COUNTED + 1].count()
    return Count(min(found, COUNTED), found <= COUNTED)


def savings_visible_to(user: Member | AnonymousUser) -> QuerySet[CountedSavings]:
    """What counts as savings of the analyses that this user may see."""
    return CountedSavings.objects.all() if may_see_lab(user) else CountedSavings.objects.none()


def can_be_adopted(analysis: Analysis) -> bool:
    """Whether there is a recommendation to follow; a final state never changes, nor does this."""
    return analysis.status == Status.SUCCEEDED and bool(analysis.recommended_batch_size)


def detail(user: Member | AnonymousUser) -> QuerySet[Analysis]:
    """What :func:`visible_to` gives, with the trials, tags and the note at hand."""
    return visible_to(user).select_related("note").prefetch_related("trials", "tags")


def log_lines(analysis: Analysis, after: int = 0) -> QuerySet[LogLine]:
    """The log lines of an analysis whose id is greater than ``after``."""
    return analysis.log_lines.filter(pk__gt=after)


def without_heartbeat() -> QuerySet[Analysis]:
    """Analyses whose worker has gone without ending them, by the database's clock."""
    return Analysis.objects.filter(status__in=AT_WORK, heartbeat_at__lt=Now() - pace.STALE_AFTER)


def at_work_on(node: str) -> QuerySet[Analysis]:
    """What the workers of a node are doing; not what a worker held that is gone."""
    fresh = Now() - pace.SILENT_AFTER
    return Analysis.objects.filter(node=node, status__in=AT_WORK, heartbeat_at__gte=fresh)


def busy_workers(node: str) -> int:
    """How many workers of a node are doing something; see :func:`at_work_on`."""
    sending = Notification.objects.filter(node=node, status=Delivery.SENDING)
    return at_work_on(node).count() + sending.count()


def predictions_at_work(node: str) -> QuerySet[Analysis]:
    """The predictions among what a node does."""
    return at_work_on(node).filter(measured_gpu="")


def measurements_at_work(device: str) -> QuerySet[Analysis]:
    """The measurement that holds a GPU, by the GPU's UUID; whose worker it is does not matter."""
    return Analysis.objects.filter(device=device, status__in=AT_WORK)


def queue_stands_still() -> bool:
    """Whether an analysis waits that a worker should have taken long ago."""
    since = Now() - STANDSTILL
    waiting = Analysis.objects.filter(status=Status.QUEUED, queued_at__lt=since)
    moving = Analysis.objects.filter(Q(status__in=AT_WORK) | Q(finished_at__gte=since))
    return waiting.exists() and not moving.exists()


def nodes_online() -> QuerySet[Node]:
    """The nodes with a worker that is alive."""
    return Node.objects.filter(heartbeat_at__gte=Now() - pace.STALE_AFTER)


def nodes() -> list[tuple[Node, list[Analysis]]]:
    """Every node that the lab has had, those online first, with what each is working on."""
    at_work: dict[str, list[Analysis]] = {}
    for analysis in Analysis.objects.filter(status__in=AT_WORK).select_related("owner"):
        at_work.setdefault(analysis.node, []).append(analysis)
    online = set(nodes_online().values_list("pk", flat=True))
    every = sorted(Node.objects.all(), key=lambda node: (node.pk not in online, node.name))
    return [(node, at_work.get(node.name, [])) for node in every]


def nodes_with_gpu() -> QuerySet[Node]:
    """The nodes online that can measure on a GPU."""
    return nodes_online().exclude(gpu_name="")
