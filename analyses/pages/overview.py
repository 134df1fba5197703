"""The overview: what was saved, what waits for a decision, what runs, and how well GPUs are used.

The part about this moment is requested every few seconds; the rest is drawn once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRefresh

from analyses.charts import overview as charts
from analyses.jobs.keys import WRONG_KEY, problem_of
from analyses.jobs.lab_state import nodes_alive
from analyses.models import AT_WORK, Analysis, Node, Status
from analyses.overview.accuracy import accuracy_of
from analyses.overview.decisions import decisions_of
from analyses.overview.fullness import GpuUse, gpu_use
from analyses.overview.weeks import Week, weeks_until
from analyses.pages import overview_export
from analyses.pages.access import MemberRequest
from analyses.pages.analysis.views import State, state_of
from analyses.pages.savings import accrued
from analyses.savings.selected import selected_by
from analyses.savings.selection import today_utc
from analyses.selectors import savings_visible_to, visible_to

SHOWN_RECENT = 6
SHOWN_WAITING = 5


@dataclass(frozen=True)
class Now:
    """The lab's analyses and nodes at this moment.

    Attributes:
        unfinished: The analyses that are running, then the first that are queued.
        waiting: Number queued.
        recent: The analyses that have finished, newest first.
    """

    unfinished: list[Analysis]
    waiting: int
    recent: list[Analysis]
    nodes: list[Node]
    alive: list[Node]

    @property
    def is_new(self) -> bool:
        """Whether the lab has analyzed nothing yet."""
        return not (self.recent or self.unfinished)

    @property
    def version(self) -> str:
        """Changes whenever the page has something new to show."""
        rows: Iterable[Analysis] = (*self.unfinished, *self.recent)
        states = "-".join(f"{row.pk}{row.status}{'a' if row.adopted_at else ''}" for row in rows)
        nodes = "-".join(f"{node.pk}{'!' if problem_of(node) else ''}" for node in self.alive)
        return f"{states}.{self.waiting}.{nodes}"

    @property
    def running(self) -> list[tuple[Analysis, State]]:
        """The unfinished ones, each with its time so far."""
        now = timezone.now()
        return [(analysis, state_of(analysis, now)) for analysis in self.unfinished]

    @property
    def more_waiting(self) -> int:
        return max(0, self.waiting - SHOWN_WAITING)

    @property
    def online(self) -> list[Node]:
        """The nodes that can be counted on."""
        return [node for node in self.alive if problem_of(node) != WRONG_KEY]

    @property
    def gpus(self) -> list[Node]:
        """The nodes online that can measure on a GPU."""
        return [node for node in self.online if node.gpu_name]

    @property
    def problems(self) -> list[Node]:
        """The nodes with a live worker that cannot be counted on."""
        return [node for node in self.alive if problem_of(node)]


@require_safe
def overview(request: MemberRequest) -> HttpResponse:
    """The whole page; for htmx the part about this moment, or 204 if it has not changed."""
    now = _now(visible_to(request.user).defer("result"))
    if request.htmx:
        if request.GET.get("seen") == now.version:
            return HttpResponse(status=204)
        if request.GET.get("new"):  # nothing of the page is there yet
            return HttpResponseClientRefresh()
        return render(request, "overview/_now.html", {"now": now})
    context: dict[str, object] = {"nav": "overview", "now": now}
    if not now.is_new:
        context |= _saved(request) | _charts(request)
        context["decisions"] = decisions_of(request.user)
    return render(request, "overview/overview.html", context)


@require_safe
def as_csv(request: MemberRequest, chart: str) -> HttpResponseBase:
    """The numbers of one chart."""
    match chart:
        case "weeks":
            return overview_export.weeks_csv(_weeks(request))
        case "gpus":
            return overview_export.gpus_csv(_gpus(request))
        case "predictions":
            return overview_export.predictions_csv(accuracy_of(request.user))
    raise Http404(f"There is no chart {chart}.")


def _now(analyses: QuerySet[Analysis]) -> Now:
    at_work = analyses.filter(status__in=AT_WORK).order_by("started_at")
    waiting = analyses.filter(status=Status.QUEUED).order_by("pk")
    return Now(
        unfinished=[*at_work, *waiting[:SHOWN_WAITING]],
        waiting=waiting.count(),
        # Excluding what is unfinished reads from the newest; filtering what is final sorts it all.
        recent=list(analyses.exclude(status__in=(Status.QUEUED, *AT_WORK))[:SHOWN_RECENT]),
        nodes=list(Node.objects.all()),
        alive=list(nodes_alive()),
    )


def _saved(request: MemberRequest) -> dict[str, object]:
    """The savings of this year."""
    selected = selected_by(request.user, {})
    ledger, period = selected.ledger(), selected.selection.days
    return {
        "period": period,
        "any_savings": bool(ledger.totals),
        **accrued(ledger, period, selected.selection),
    }


def _charts(request: MemberRequest) -> dict[str, object]:
    weeks, gpus, accuracies = _weeks(request), _gpus(request), accuracy_of(request.user)
    return {
        "weeks": weeks,
        "weeks_chart": charts.weeks_chart(weeks),
        "weeks_description": charts.weeks_description(weeks),
        "gpus": gpus,
        "gpu_sources": sorted({source for kind in gpus for source in kind.sources}),
        "gpus_chart": charts.use_chart(gpus),
        "gpus_description": charts.use_description(gpus),
        "accuracies": accuracies,
        "is_compared": any(one.own for one in accuracies),
        "accuracy_chart": charts.accuracy_chart(accuracies),
        "accuracy_description": charts.accuracy_description(accuracies),
    }


def _weeks(request: MemberRequest) -> list[Week]:
    return weeks_until(visible_to(request.user), today_utc())


def _gpus(request: MemberRequest) -> list[GpuUse]:
    return gpu_use(savings_visible_to(request.user))
