"""The page of a new analysis, and the panel that predicts what the typed settings need."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from analyses import queries, services
from analyses.figures.settings import asked_fields
from analyses.formatting import local_gpu
from analyses.lab.settings import PRICE
from analyses.models import Analysis, Query, QueryKind, QueryStatus
from analyses.pages.access import MemberRequest, find_analysis
from analyses.pages.new.form import PROJECT, AnalysisForm
from analyses.pages.new.preview import Preview, preview_of
from analyses.pages.new.questions import TRAINING_PRESETS, Question, with_preset
from analyses.pages.new.recipe import filled_in, form_of_upload
from analyses.pages.new.sweep import chosen_to_compare
from analyses.pages.new.upload import with_upload
from analyses.pages.new.values import default_values, values_of, with_changes
from analyses.queries import predictable
from engine.core.errors import InvalidInput
from engine.gpus import LOCAL
from engine.interface.program import NEVER_RUN, run_elsewhere, stored_program
from memorymark_site.accounts.roles import Role, needs

SHORT_WAIT_SECONDS = 0.3
"""A prediction from stored traces takes less, so the panel changes once and does not flicker."""

MAX_UNCLAIMED_SECONDS = 10
"""Time after which a page says that no worker has taken its query yet."""

READY = "The settings are complete. Select {}."


class WaitState(StrEnum):
    """The states of a panel that waits, in the address that it polls."""

    PREDICTING = "predicting"
    NOT_TAKEN = "not-taken"


_HEADLINES = {
    WaitState.PREDICTING: "Predicting…",
    WaitState.NOT_TAKEN: "Predicting… The workers are busy with other requests. You can still "
    "select Analyze.",
}


@needs(Role.MEMBER)
@require_http_methods(["GET", "HEAD", "POST"])
def new(request: MemberRequest) -> HttpResponse:
    filled = None
    if request.method == "POST" and (read := form_of_upload(request.POST, request.FILES)):
        form, filled = read
    elif request.method == "POST":
        form = form_of(request)
        if form.is_valid() and (analyses := form.submit(request.user)):
            return _answer_to(request, analyses)
        form.focus_first_error()
        filled = filled_in(form)
    else:
        values = _initial(request)
        form = AnalysisForm(initial={**chosen_to_compare(values), **values})
    context = {
        "form": form,
        "filled_in": filled,
        "questions": list(Question),
        "presets": list(TRAINING_PRESETS.values()),
        "nav": "new",
    }
    return render(request, "new/new.html", context)


def form_of(request: HttpRequest) -> AnalysisForm:
    """The form as sent."""
    fields, mistake = with_upload(request.POST, request.FILES)
    return AnalysisForm(fields, mistake=mistake)


def _answer_to(request: MemberRequest, analyses: list[Analysis]) -> HttpResponse:
    """The page of one analysis; of several, their comparison."""
    if len(analyses) == 1:
        return redirect("analyses:detail", pk=analyses[0].pk)
    tag = f"comparison-{analyses[0].pk}"
    messages.success(
        request,
        format_html(
            '{} analyses submitted, all with the tag <a href="{}?tag={}">{}</a>.',
            len(analyses), reverse("analyses:list"), tag, tag,
        ),
    )  # fmt: skip
    ids = ",".join(str(analysis.pk) for analysis in analyses)
    return redirect(f"{reverse('analyses:compare')}?ids={ids}")


def _initial(request: MemberRequest) -> dict[str, str]:
    """The values that the form starts with: those of an earlier analysis, a link and a preset."""
    values = with_changes(_earlier(request), request.GET.dict())
    return with_preset(values, request.GET.get("preset", ""))


def _earlier(request: MemberRequest) -> dict[str, str]:
    source = request.GET.get("from", "")
    if not source:
        return default_values()
    if not (source.isascii() and source.isdigit() and len(source) < 19):
        raise Http404("The analysis to duplicate no longer exists.")
    analysis = find_analysis(request, int(source))
    if analysis.program_hash:
        program = stored_program(asked_fields(analysis))
        why = run_elsewhere(program) if program else NEVER_RUN
        messages.warning(request, f"#{source} is not duplicated here: {why}.")
        return default_values()
    values = values_of(analysis.request)
    if PRICE in analysis.assumed_by:  # it was of that GPU on that day; the form may choose another
        values[PRICE] = ""
    if analysis.project:
        values[PROJECT] = analysis.project.name
    if analysis.measured_gpu:
        values["gpu"] = local_gpu(analysis.measured_gpu)
    return values


@require_POST
def preview(request: MemberRequest) -> HttpResponse:
    """Show what the settings in the form need, or what is wrong with them."""
    form = form_of(request)
    if not form.is_valid():  # its inputs are all text, such as one with a NUL
        return _wrong(request, form)
    if form.question is Question.COMPARE:
        return render(request, "new/_sweep.html", {"sweep": form.sweep()})
    fields = form.raw_fields()
    try:
        if form.question not in (Question.BATCH, Question.FIT):
            services.checked(fields)
            return _panel(request, Preview(headline=READY.format(form.question.button)))
        wanted = predictable(fields)
    except InvalidInput as error:
        form.add_messages(error)
        return _wrong(request, form)
    query = queries.submit(request.user, QueryKind.PREDICT, wanted, for_page=True)
    queries.wait_for(query, SHORT_WAIT_SECONDS)
    gpu = str(fields["gpu"])
    measured = gpu.removeprefix(f"{LOCAL}:") if gpu.startswith(LOCAL) else ""
    return _state(request, query, Wait(None, int(time.time()), measured))


@require_safe
def preview_state(request: MemberRequest, pk: int) -> HttpResponse:
    """The state of the panel's query; 204 while the page shows it already."""
    query = queries.visible_to(request.user).filter(pk=pk, kind=QueryKind.PREDICT).first()
    if query is None:
        raise Http404("There is no such query.")
    queries.keep_alive(query)
    return _state(request, query, Wait.of(request))


@dataclass(frozen=True)
class Wait:
    """A waiting panel: the state that it shows, start in Unix time, and GPU to measure on."""

    shown: WaitState | None
    since: int
    measured: str

    @classmethod
    def of(cls, request: HttpRequest) -> Wait:
        since = request.GET.get("since", "")
        known = since.isascii() and since.isdigit() and len(since) < 12
        shown = request.GET.get("shown", "")
        return cls(
            next((state for state in WaitState if state == shown), None),
            int(since) if known else 0,
            request.GET.get("gpu", ""),
        )

    @property
    def is_over(self) -> bool:
        return time.time() - self.since > MAX_UNCLAIMED_SECONDS


def _state(request: MemberRequest, query: Query, wait: Wait) -> HttpResponse:
    """The panel for a query; it polls until the query has ended."""
    if query.is_final:
        return _panel(request, preview_of(query, wait.measured))
    is_waiting = query.status == QueryStatus.WAITING
    if is_waiting and not queries.worker_is_online():
        return _panel(request, Preview(headline=queries.NO_WORKER))
    state = WaitState.NOT_TAKEN if is_waiting and wait.is_over else WaitState.PREDICTING
    if state == wait.shown:
        return HttpResponse(status=204)
    shown = {"shown": state, "since": wait.since, "gpu": wait.measured}
    address = reverse("analyses:preview-state", args=[query.pk])
    return _panel(request, Preview(headline=_HEADLINES[state]), f"{address}?{urlencode(shown)}")


def _panel(request: MemberRequest, shown: Preview, poll_address: str = "") -> HttpResponse:
    return render(request, "new/_preview.html", {"preview": shown, "poll_address": poll_address})


def _wrong(request: MemberRequest, form: AnalysisForm) -> HttpResponse:
    """The panel for a form with errors."""
    shown = Preview(problems=_problems(form))
    return render(request, "new/_preview.html", {"preview": shown, "form": form})


def _problems(form: AnalysisForm) -> list[tuple[str, str]]:
    """The messages of a form, each with the label of its field."""
    labels = {name: str(form[name].label) for name in form.fields}
    return [
        (labels.get(name, ""), str(message))
        for name, messages in form.errors.items()
        for message in messages
    ]
