"""The start page: the lab's savings, what is running for whom, and recent analyses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from analyses.jobs.lab_state import nodes_online
from analyses.models import AT_WORK, Analysis, Node, Status
from analyses.pages.access import MemberRequest
from analyses.pages.analysis import State, state_of
from analyses.savings.breakdown import totals
from analyses.selectors import count_of, savings_visible_to, visible_to

SHOWN_RECENT = 8
SHOWN_WAITING = 5


@dataclass(frozen=True)
class Now:
    """The lab's analyses and nodes at this moment.

    Attributes:
        unfinished: Those running, then the first that are queued.
        waiting: How many are queued.
        recent: Those that have finished, newest first.
    """

    unfinished: list[Analysis]
    waiting: int
    recent: list[Analysis]
    online: list[Node]

    @property
    def version(self) -> str:
        """Changes whenever the page has something new to show."""
        rows: Iterable[Analysis] = (*self.unfinished, *self.recent)
        states = "-".join(f"{row.pk}{row.status}{'a' if row.adopted_at else ''}" for row in rows)
        return f"{states}.{self.waiting}.{'-'.join(str(node.pk) for node in self.online)}"

    @property
    def running(self) -> list[tuple[Analysis, State]]:
        """The unfinished ones, each with its time so far."""
        now = timezone.now()
        return [(analysis, state_of(analysis, now)) for analysis in self.unfinished]

    @property
    def more_waiting(self) -> int:
        return max(0, self.waiting - SHOWN_WAITING)

    @property
    def gpus(self) -> list[Node]:
        """The nodes online that can measure on a GPU."""
        return [node for node in self.online if node.gpu_name]


@require_safe
def overview(request: MemberRequest) -> HttpResponse:
    """The whole page; for htmx the changing part, or 204 if it has not changed."""
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
        # Excluding what is unfinished reads from the newest; filtering what is final sorts it all.
        recent=list(analyses.exclude(status__in=(Status.QUEUED, *AT_WORK))[:SHOWN_RECENT]),
        online=list(nodes_online()),
    )
