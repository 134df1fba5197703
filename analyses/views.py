"""The pages. Who is not signed in never gets here: the login middleware stands before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib.auth.models import User
from django.core.paginator import Page, Paginator
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    StreamingHttpResponse,
)
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe
from django_htmx.middleware import HtmxDetails

from analyses.forms import AnalysisForm, default_values, values_of, with_upload
from analyses.models import Analysis, LogLine
from analyses.presentation import SOURCE_MEANINGS, state_of, verdict_of
from analyses.question import command_of, settings_of
from analyses.selectors import visible_to

PAGE_SIZE = 25
SHOWN_LOG_LINES = 200


class MemberRequest(HttpRequest):
    """A request as it arrives here: of a member, with htmx's headers read."""

    user: User
    htmx: HtmxDetails


@require_safe
def history(request: MemberRequest) -> HttpResponse:
    """All analyses, newest first; the rows alone when htmx asks whether they changed."""
    analyses = visible_to(request.user).defer("result")
    page = Paginator(analyses, PAGE_SIZE).get_page(request.GET.get("page"))
    version = _rows_version(page)
    if request.htmx and request.GET.get("seen") == version:
        return HttpResponse(status=204)
    template = "analyses/_rows.html" if request.htmx else "analyses/list.html"
    refresh = any(not analysis.is_final for analysis in page)
    context = {"page": page, "version": version, "refresh": refresh, "nav": "list"}
    return render(request, template, context)


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
    analysis = _analysis(request, pk)
    return render(request, "analyses/detail.html", _context(analysis, _version(analysis)))


@require_safe
def live(request: MemberRequest, pk: int) -> HttpResponse:
    """The changing part of the page; 204 if it is still as the browser has seen it."""
    analysis = _analysis(request, pk)
    version = _version(analysis)
    if request.GET.get("seen") == version:
        return HttpResponse(status=204)
    context = _context(analysis, version)
    # Sent only when it changes: a screen reader says a live region again that is written again.
    context["new_status"] = not request.GET.get("seen", "").startswith(f"{analysis.status}-")
    return render(request, "analyses/_live.html", context)


@require_safe
def log(request: MemberRequest, pk: int) -> HttpResponseBase:
    """The whole log as plain text."""
    lines = LogLine.objects.filter(analysis=_analysis(request, pk))

    def text() -> Iterator[str]:
        for created_at, message in lines.values_list("created_at", "message").iterator():
            yield f"{created_at:%Y-%m-%d %H:%M:%S} {message}\n"

    return StreamingHttpResponse(text(), content_type="text/plain; charset=utf-8")


def _analysis(request: MemberRequest, pk: int) -> Analysis:
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
    return values_of(_analysis(request, int(source)).request)


def _version(analysis: Analysis) -> str:
    """A word that changes when the live part of the page does."""
    trial = analysis.trials.order_by("-id").values_list("id", flat=True).first() or 0
    line = analysis.log_lines.order_by("-id").values_list("id", flat=True).first() or 0
    waited = state_of(analysis, timezone.now()).hint != ""
    return f"{analysis.status}-{trial}-{line}-{int(waited)}"


def _rows_version(page: Page[Analysis]) -> str:
    """A word that changes when an analysis of the page is added or changes its status."""
    return "-".join(f"{analysis.pk}{analysis.status[0]}" for analysis in page)


def _context(analysis: Analysis, version: str) -> dict[str, Any]:
    trials = list(analysis.trials.all())
    verdict = verdict_of(analysis)
    lines = list(reversed(analysis.log_lines.order_by("-id")[: SHOWN_LOG_LINES + 1]))
    return {
        "analysis": analysis,
        "version": version,
        "state": state_of(analysis, timezone.now()),
        "verdict": verdict,
        # As they come while one watches; by size, with the limit in plain sight, once all are in.
        "trials": sorted(trials, key=lambda trial: trial.batch_size) if verdict else trials,
        "has_ranges": any(
            trial.device_used_low_bytes is not None or trial.step_seconds_low is not None
            for trial in trials
        ),
        "log_lines": lines[-SHOWN_LOG_LINES:],
        "log_is_cut": len(lines) > SHOWN_LOG_LINES,
        "settings": settings_of(analysis.request),
        "command": command_of(analysis.request),
        "source_meanings": SOURCE_MEANINGS,
    }
