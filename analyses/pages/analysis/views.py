"""The page of an analysis: its progress while it runs, its answer or its failure at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import prefetch_related_objects
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.views.decorators.http import require_POST, require_safe

from analyses import services
from analyses.figures.chips import chips
from analyses.formatting import duration
from analyses.models import Analysis, LogLine, Status
from analyses.notifications import inbox
from analyses.overview.changes import can_mention
from analyses.pages.access import MemberRequest, find_analysis
from analyses.pages.analysis.answer import ShownAnswer, answer_parts, environment_rows, verdict_of
from analyses.pages.analysis.compared import Compared
from analyses.pages.analysis.gpu_rows import GpuComparison, offers_of
from analyses.pages.analysis.host_memory import beside_nodes
from analyses.pages.analysis.ladder import Ladder, ladder_of
from analyses.pages.analysis.no_fit import no_fit_of
from analyses.pages.analysis.past_errors import past_errors
from analyses.pages.analysis.sharing import ShareForm, links_of, may_share
from analyses.pages.analysis.stages import stages_of
from analyses.pages.analysis.training_runs import Reporting
from analyses.pages.history.labels import LabelsForm, labels_of
from analyses.pages.long_poll import hear
from analyses.permissions import may_change
from analyses.queries import has_advice
from analyses.results.decided import is_as_it_is, own_result
from analyses.savings.estimate import estimate_of
from analyses.selectors import can_be_adopted
from analyses.training_runs.side_by_side import last_reported, side_by_side
from engine.core.errors import InvalidInput
from engine.versions.software import format_versions, parse

SHOWN_LOG_LINES = 200
SHOWN_MENTIONS = 3
LONG_WAIT_SECONDS = 15.0
"""After this long in the queue the page hints that no worker may be running."""

_VERSION = re.compile(r"([a-z]+)-(\d{1,18})-(\d{1,18})-([01])", re.ASCII)


@dataclass(frozen=True)
class State:
    """The time an analysis has taken; the page counts on while ``ticks``.

    Attributes:
        preposition: Stands between the status and the time: ``Failed after 3 s``.
        hint: Shown if it takes unusually long; mostly empty.
    """

    preposition: str
    elapsed_seconds: float
    elapsed: str
    ticks: bool
    hint: str = ""


@dataclass(frozen=True)
class Progress:
    """The state of the changing part of the page.

    As text it goes to the browser, which sends it back to request what is newer.

    Attributes:
        status: Empty where nothing has been shown yet.
        trial: The id of the last trial; 0 without one.
        line: The id of the log's last line; 0 without one.
        is_late: Whether the page shows the hint of a long wait.
    """

    status: str = ""
    trial: int = 0
    line: int = 0
    is_late: bool = False

    def __str__(self) -> str:
        return f"{self.status}-{self.trial}-{self.line}-{int(self.is_late)}"

    @classmethod
    def parse(cls, text: str) -> Progress:
        """Read what ``str`` has written; anything else counts as nothing shown."""
        found = _VERSION.fullmatch(text)
        if not found:
            return cls()
        status, trial, line, is_late = found.groups()
        return cls(status, int(trial), int(line), is_late == "1")


NOTHING = Progress()


@require_safe
def detail(request: MemberRequest, pk: int) -> HttpResponse:
    """The whole page."""
    analysis = find_analysis(request, pk)
    prefetch_related_objects([analysis], "tags", "note__author")
    inbox.seen(request.user, analysis)
    context = context_of(request, analysis, request.GET.get("rung", ""))
    context["labels_form"] = LabelsForm.of(labels_of(analysis))
    context["mentions"] = analysis.mentions.select_related("by")[:SHOWN_MENTIONS]
    return render(request, "analyses/detail.html", context)


@require_safe
def live(request: MemberRequest, pk: int) -> HttpResponse:
    """The changing part of the page, as soon as it changes; 204 if it does not for a while."""
    seen = Progress.parse(request.GET.get("seen", ""))
    if not hear(lambda: progress_of(find_analysis(request, pk)) != seen):
        return HttpResponse(status=204)
    analysis = find_analysis(request, pk)
    now = progress_of(analysis)
    if analysis.is_final:
        inbox.seen(request.user, analysis)
    context = context_of(request, analysis, request.GET.get("rung", ""), now, seen)
    # Sent only when it changes: a screen reader repeats a live region that is replaced.
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


@require_POST
def cancel(request: MemberRequest, pk: int) -> HttpResponse:
    analysis = find_analysis(request, pk)
    if not may_change(request.user, analysis):
        raise PermissionDenied("Only the analysis's owner or an admin can cancel it.")
    if not services.cancel(analysis, request.user):
        messages.warning(request, f"Analysis {pk} has already finished.")
    return redirect("analyses:detail", pk=pk)


@require_POST
def run_again(request: MemberRequest, pk: int) -> HttpResponse:
    """Submit the same settings again; the browser goes to the new analysis."""
    analysis = find_analysis(request, pk)
    if not analysis.is_final:
        messages.warning(request, f"Analysis {pk} has not finished yet.")
        return redirect("analyses:detail", pk=pk)
    try:
        again = services.run_again(analysis, request.user)
    except InvalidInput as error:
        reasons = "; ".join(error.fields.values())
        messages.warning(request, f"Analysis {pk} cannot be run again: {reasons}.")
        return redirect("analyses:detail", pk=pk)
    messages.success(request, f"This is a rerun of analysis {pk}.")
    return redirect("analyses:detail", pk=again.pk)


def state_of(analysis: Analysis, now: datetime) -> State:
    begun = analysis.started_at or analysis.queued_at
    if analysis.is_final:
        seconds = ((analysis.finished_at or now) - begun).total_seconds()
        preposition = "in" if analysis.status == Status.SUCCEEDED else "after"
        if analysis.does_not_fit:
            preposition = "answered in"
        return State(preposition, seconds, duration(seconds), ticks=False)
    seconds = (now - begun).total_seconds()
    hint = ""
    if analysis.status == Status.QUEUED and seconds > LONG_WAIT_SECONDS:
        with_software = (
            f" with {format_versions(parse(analysis.software))}" if analysis.software else ""
        )
        hint = (
            f"No worker{with_software} has picked it up yet. It will start as soon as one is free."
        )
    return State("for", seconds, duration(seconds), ticks=True, hint=hint)


def progress_of(analysis: Analysis) -> Progress:
    return Progress(
        status=analysis.status,
        trial=analysis.trials.order_by("-id").values_list("id", flat=True).first() or 0,
        line=analysis.log_lines.order_by("-id").values_list("id", flat=True).first() or 0,
        is_late=state_of(analysis, timezone.now()).hint != "",
    )


def context_of(
    request: MemberRequest,
    analysis: Analysis,
    rung: str = "",
    now: Progress | None = None,
    seen: Progress = NOTHING,
) -> dict[str, Any]:
    """The template variables of the page.

    Args:
        request: The reader's request.
        analysis: The page's analysis.
        rung: The row of the ladder to show, from the address.
        now: The progress to show; of the log only lines until then that were not ``seen``.
        seen: The progress that the browser has.
    """
    now = now or progress_of(analysis)
    ladder = ladder_of(request.user, analysis, rung) if has_advice(analysis) else None
    compared, instead = Compared.of(analysis, ladder), ladder.result if ladder else None
    is_own = may_change(request.user, analysis)
    may_report = is_own and analysis.has_answer
    verdict = verdict_of(analysis, instead, may_report=may_report)
    is_adopted = analysis.adopted_at is not None and compared is None
    new_lines = analysis.log_lines.filter(pk__gt=seen.line, pk__lte=now.line)
    gpus = gpus_of(analysis, verdict, ladder)
    lines = list(reversed(new_lines.order_by("-id")[: SHOWN_LOG_LINES + 1]))
    context = {
        "analysis": analysis,
        "chips": compared.chips if compared else chips(analysis),
        "compared": compared,
        "version": str(now),
        "state": state_of(analysis, timezone.now()),
        "may_cancel": not analysis.is_final and is_own,
        "may_delete": analysis.is_final and is_own,
        "may_adopt": _may_adopt(request, analysis, ladder),
        "can_mention": SimpleLazyObject(lambda: can_mention(analysis, request.user)),
        **answer_parts(analysis, verdict),
        "estimate": verdict and estimate_of(verdict.result, request.GET.dict(), adopted=is_adopted),
        "log_lines": lines[-SHOWN_LOG_LINES:],
        "has_log": now.line > 0,
        "stages": [] if analysis.is_final else stages_of(analysis, ladder is not None),
        "log_is_cut": len(lines) > SHOWN_LOG_LINES,
        "environment": environment_rows(analysis, verdict),
        "ladder": ladder,
        "gpus": gpus,
        "no_fit": no_fit_of(analysis, gpus) if analysis.does_not_fit and not verdict else None,
        "past_errors": past_errors(analysis, verdict.result) if verdict else None,
        "side_by_side": side_by_side(analysis, instead) if verdict else None,
        "runs": last_reported(analysis) if analysis.ended_without_answer else [],
        "host_of_nodes": beside_nodes(verdict.result, analysis.gpu) if verdict else "",
        "reporting": Reporting.of(request) if verdict and may_report else None,
    }
    if analysis.result and may_share(request.user, analysis):
        context |= {"share_form": ShareForm(), "share_links": links_of(analysis)}
    return context


def gpus_of(
    analysis: Analysis, verdict: ShownAnswer | None, ladder: Ladder | None
) -> GpuComparison | None:
    """The GPUs to compare: those among which the answer chose, else those of the plan."""
    if ladder and ladder.is_pushed:
        own = own_result(analysis)
        compared = offers_of(own, analysis) if own else None
        return compared and replace(compared, is_chosen=False)
    chosen_among = offers_of(verdict.result, analysis) if verdict else None
    return chosen_among or (ladder.advice.gpus if ladder and ladder.advice else None)


def _may_adopt(request: MemberRequest, analysis: Analysis, ladder: Ladder | None) -> bool:
    """Whether what the page shows can be marked as adopted, and by this member."""
    shown = ladder and ladder.result  # another answer than the stored one
    changes = can_be_adopted(analysis)
    if shown and ladder and ladder.shown:
        stays = shown.recommended_batch_size == shown.current_batch_size
        changes = not (is_as_it_is(ladder.shown.rung) and stays)
    return bool(analysis.result) and changes and may_change(request.user, analysis)
