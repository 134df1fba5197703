"""The start page: what the lab saves, what runs now and for whom, and what ran lately."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from analyses.models import AT_WORK, Analysis, Node, Status
from analyses.presentation import State, state_of
from analyses.savings.totals import totals
from analyses.selectors import count_of, nodes_online, savings_visible_to, visible_to
from analyses.views import MemberRequest

SHOWN_RECENT = 8
SHOWN_WAITING = 5


@dataclass(frozen=True)
class Now:
    """What goes on in the lab at the moment.

    Attributes:
        unfinished: What is at work, then the first of those that wait.
        waiting: How many wait.
        recent: What has ended, newest first.
    """

    unfinished: list[Analysis]
    waiting: int
    recent: list[Analysis]
    online: list[Node]

    @property
    def version(self) -> str:
        """A word that changes when what the page shows of it does."""
        rows: Iterable[Analysis] = (*self.unfinished, *self.recent)
        states = "-".join(
            f"{row.pk}{row.status[:7]}{'a' if row.adopted_at else ''}" for row in rows
        )
        return f"{states}.{self.waiting}.{'-'.join(str(node.pk) for node in self.online)}"

    @property
    def running(self) -> list[tuple[Analysis, State]]:
        """The unfinished ones, each with how long it has taken."""
        now = timezone.now()
        return [(analysis, state_of(analysis, now)) for analysis in self.unfinished]

    @property
    def more_waiting(self) -> int:
        """How many wait that are not shown."""
        return max(0, self.waiting - SHOWN_WAITING)

    @property
    def gpus(self) -> list[Node]:
        """The nodes online that can measure."""
        return [node for node in self.online if node.gpu_name]


@require_safe
def overview(request: MemberRequest) -> HttpResponse:
    """The lab at a glance; for htmx the part that changes, and 204 if it has not."""
    analyses = visible_to(request.user).defer("result")
    now = _now(analyses)
    if request.htmx and request.GET.get("seen") == now.version:
        return HttpResponse(status=204)
    context = {"nav": "overview", "now": now, "is_new": not (now.recent or now.unfinished)}
    if not context["is_new"]:
        context |= {
            "totals": totals(savings_visible_to(request.user)),
            "analysis_count": count_of(analyses),
            "node_count": Node.objects.count(),
        }
    template = "overview/_lab.html" if request.htmx else "overview/overview.html"
    return render(request, template, context)


def _now(analyses: QuerySet[Analysis]) -> Now:
    at_work = analyses.filter(status__in=AT_WORK).order_by("started_at")
    waiting = analyses.filter(status=Status.QUEUED).order_by("pk")
    return Now(
        unfinished=[*at_work, *waiting[:SHOWN_WAITING]],
        waiting=waiting.count(),
        # Said by what it is not: else all that has ended is sorted, not read from the newest.
        recent=list(analyses.exclude(status__in=(Status.QUEUED, *AT_WORK))[:SHOWN_RECENT]),
        online=list(nodes_online()),
    )
