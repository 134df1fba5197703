"""The pages. Who is not signed in never gets here: the login middleware stands before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import prefetch_related_objects
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    StreamingHttpResponse,
)
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_htmx.middleware import HtmxDetails

from analyses import services
from analyses.figures import SOURCE_MEANINGS
from analyses.form_values import default_values, values_of, with_changes, with_upload
from analyses.forms import AnalysisForm
from analyses.history.forms import LabelsForm
from analyses.history.labels import labels_of
from analyses.lab.defaults import PRICE
from analyses.lab.selectors import kinds_outside_the_catalogue, prices
from analyses.lookups.questions import has_advice
from analyses.models import Analysis, LogLine
from analyses.node_rows import node_rows
from analyses.permissions import may_change
from analyses.presentation import Verdict, environment_rows, state_of, verdict_of
from analyses.progress import NOTHING, Progress, progress_of
from analyses.question import command_of, local_gpu, settings_of
from analyses.savings.worth import worth_of
from analyses.selectors import can_be_adopted, log_lines, visible_to
from analyses.sharing.forms import ShareForm
from analyses.sharing.links import links_of, may_share
from analyses.trainings.side_by_side import side_by_side
from engine.errors import InvalidInput
from engine.gpus import GPUS
from memorymark_site.accounts.roles import Role, needs

SHOWN_LOG_LINES = 200


class MemberRequest(HttpRequest):
    """A request as it arrives here: of a member, with htmx's headers read."""

    user: User
    htmx: HtmxDetails


@needs(Role.MEMBER)
@require_http_methods(["GET", "HEAD", "POST"])
def new(request: MemberRequest) -> HttpResponse:
    """The form of a new analysis, empty or filled from an earlier one."""
    if request.method == "POST":
        form = AnalysisForm(with_upload(request.POST, request.FILES))
        if form.is_valid() and (analysis := form.submit(request.user)):
            return redirect("analyses:detail", pk=analysis.pk)
        form.focus_first_error()
    else:
        form = AnalysisForm(initial=_initial(request))
    return render(request, "analyses/new.html", {"form": form, "nav": "new"})


@require_safe
def detail(request: MemberRequest, pk: int) -> HttpResponse:
    """One analysis: its progress while it runs, its verdict or its failure at the end."""
    analysis = find_analysis(request, pk)
    prefetch_related_objects([analysis], "tags", "note__author")
    context = _context(request, analysis, progress_of(analysis))
    context["labels_form"] = LabelsForm.of(labels_of(analysis))
    return render(request, "analyses/detail.html", context)


@require_POST
def cancel(request: MemberRequest, pk: int) -> HttpResponse:
    """End an analysis of one's own; the page then shows what became of it."""
    analysis = find_analysis(request, pk)
    if not may_change(request.user, analysis):
        raise PermissionDenied("Only who has asked for an analysis, or an admin, may cancel it.")
    if not services.cancel(analysis, request.user):
        messages.warning(request, f"There is nothing to cancel: analysis {pk} has ended.")
    return redirect("analyses:detail", pk=pk)


@require_POST
def run_again(request: MemberRequest, pk: int) -> HttpResponse:
    """Ask the same question once more; the page then shows the new analysis."""
    analysis = find_analysis(request, pk)
    if not analysis.is_final:
        messages.warning(request, f"Analysis {pk} has not ended yet.")
        return redirect("analyses:detail", pk=pk)
    try:
        again = services.run_again(analysis, request.user)
    except InvalidInput as error:
        reasons = "; ".join(error.fields.values())
        messages.warning(request, f"Analysis {pk} cannot be run again: {reasons}.")
        return redirect("analyses:detail", pk=pk)
    messages.success(request, f"This is analysis {pk} run again.")
    return redirect("analyses:detail", pk=again.pk)


@require_safe
def gpus(request: MemberRequest) -> HttpResponse:
    """The lab's nodes with what each is doing, and the catalogue."""
    if request.htmx:
        return render(request, "analyses/_nodes.html", {"nodes": node_rows()})
    others = kinds_outside_the_catalogue()
    held = prices([*GPUS, *others])
    context = {
        "nodes": node_rows(),
        "catalogue": [(gpu, held[gpu.name]) for gpu in GPUS.values()],
        "others": [held[kind] for kind in others],
        "nav": "gpus",
    }
    return render(request, "analyses/gpus.html", context)


@require_safe
def live(request: MemberRequest, pk: int) -> HttpResponse:
    """The changing part of the page; 204 if it is still as the browser has seen it."""
    analysis = find_analysis(request, pk)
    seen, now = Progress.parse(request.GET.get("seen", "")), progress_of(analysis)
    if seen == now:
        return HttpResponse(status=204)
    context = _context(request, analysis, now, seen)
    # Sent only when it changes: a screen reader says a live region again that is written again.
    context["new_status"] = seen.status != now.status
    return render(request, "analyses/_live.html", context)


@require_safe
def log(request: MemberRequest, pk: int) -> HttpResponseBase:
    """The whole log as plain text."""
    lines = LogLine.objects.filter(analysis=find_analysis(request, pk))

    def text() -> Iterator[str]:
        for created_at, message in lines.values_list("created_at", "message").iterator():
            yield f"{created_at:%Y-%m-%d %H:%M:%S} {message}\n"

    return StreamingHttpResponse(
        text(),
        content_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="analysis-{pk}.log"'},
    )


def find_analysis(request: MemberRequest, pk: int) -> Analysis:
    """The analysis, if this member may see it; else it is not found."""
    analysis = visible_to(request.user).filter(pk=pk).first()
    if analysis is None:
        raise Http404(f"There is no analysis {pk}.")
    return analysis


def _initial(request: MemberRequest) -> dict[str, str]:
    source = request.GET.get("from", "")
    if not source:
        return default_values()
    if not (source.isascii() and source.isdigit() and len(source) < 19):
        raise Http404("There is no such analysis to start from.")
    analysis = find_analysis(request, int(source))
    values = values_of(analysis.request)
    if PRICE in analysis.assumed_by:  # of that GPU on that day; the form may ask for another
        values[PRICE] = ""
    if analysis.measured_gpu:
        values["gpu"] = local_gpu(analysis.measured_gpu)
    return with_changes(values, request.GET.dict())


def _context(
    request: MemberRequest, analysis: Analysis, now: Progress, seen: Progress = NOTHING
) -> dict[str, Any]:
    """What the page shows ``now``; of the log only the lines after those ``seen``."""
    verdict = verdict_of(analysis)
    is_adopted = analysis.adopted_at is not None
    new_lines = log_lines(analysis, after=seen.line).filter(pk__lte=now.line)
    lines = list(reversed(new_lines.order_by("-id")[: SHOWN_LOG_LINES + 1]))
    return {
        "analysis": analysis,
        "version": str(now),
        "state": state_of(analysis, timezone.now()),
        "may_cancel": not analysis.is_final and may_change(request.user, analysis),
        "may_delete": analysis.is_final and may_change(request.user, analysis),
        "may_adopt": can_be_adopted(analysis) and may_change(request.user, analysis),
        **answer_parts(analysis, verdict),
        "worth": verdict and worth_of(verdict.result, request.GET.dict(), adopted=is_adopted),
        "log_lines": lines[-SHOWN_LOG_LINES:],
        "has_log": now.line > 0,
        "log_is_cut": len(lines) > SHOWN_LOG_LINES,
        "environment": environment_rows(analysis, verdict),
        "has_advice": has_advice(analysis),
        "side_by_side": side_by_side(analysis) if verdict else None,
        **(_sharing(analysis) if verdict and may_share(request.user, analysis) else {}),
    }


def _sharing(analysis: Analysis) -> dict[str, Any]:
    return {"share_form": ShareForm(), "share_links": links_of(analysis)}


def answer_parts(analysis: Analysis, verdict: Verdict | None) -> dict[str, Any]:
    """The parts of the page that are about the question and the answer alone."""
    trials = list(analysis.trials.all())
    return {
        "verdict": verdict,
        # As they come while one watches; by size, with the limit in plain sight, once all are in.
        "trials": sorted(trials, key=lambda trial: trial.batch_size) if verdict else trials,
        "has_ranges": any(
            trial.device_used_low_bytes is not None or trial.step_seconds_low is not None
            for trial in trials
        ),
        "settings": settings_of(analysis.request, analysis.assumed_by),
        "command": command_of(analysis.request),
        "source_meanings": SOURCE_MEANINGS,
    }
