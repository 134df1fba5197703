"""The panel beside the form of a new analysis: what is typed is worked out at once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from analyses.form_values import with_upload
from analyses.forms import AnalysisForm
from analyses.lookups import selectors, services
from analyses.lookups.preview import Preview, preview_of
from analyses.lookups.questions import predictable
from analyses.models import Ask, Lookup, LookupStatus
from analyses.views import MemberRequest
from engine.errors import InvalidInput
from engine.gpus import LOCAL

SHORT_WAIT_SECONDS = 0.3
"""A prediction from traces at hand comes sooner, so the panel changes once and does not flicker."""

PATIENCE_SECONDS = 10
"""So long a page waits for a desk to take its question."""

NOT_TAKEN = "No worker has answered yet; Analyze works all the same."


@require_POST
def preview(request: MemberRequest) -> HttpResponse:
    """What the settings in the form would take, or what is still missing in them."""
    form = AnalysisForm(with_upload(request.POST, request.FILES))
    form.is_valid()  # its fields are all texts; the engine judges them
    fields = form.raw_fields()
    try:
        asked = predictable(fields)
    except InvalidInput as error:
        form.add_messages(error)
        return _panel(request, Preview(problems=_problems(form)))
    lookup = services.put(request.user, Ask.PREDICT, asked, for_page=True)
    selectors.wait_for(lookup, SHORT_WAIT_SECONDS)
    gpu = str(fields["gpu"])
    measured = gpu.removeprefix(f"{LOCAL}:") if gpu.startswith(LOCAL) else ""
    return _state(request, lookup, Wait("", int(time.time()), measured))


@require_safe
def preview_state(request: MemberRequest, pk: int) -> HttpResponse:
    """What has become of a question of the panel; 204 while that is what the page shows."""
    lookup = selectors.visible_to(request.user).filter(pk=pk, ask=Ask.PREDICT).first()
    if lookup is None:
        raise Http404("There is no such question.")
    services.still_wanted(lookup)
    return _state(request, lookup, Wait.of(request))


@dataclass(frozen=True)
class Wait:
    """What a waiting panel knows: the status it shows, since when, and the GPU measured on."""

    seen: str
    since: int
    measured: str

    @classmethod
    def of(cls, request: HttpRequest) -> Wait:
        """As it stands in the address."""
        since = request.GET.get("since", "")
        known = since.isascii() and since.isdigit() and len(since) < 12
        return cls(
            request.GET.get("seen", ""), int(since) if known else 0, request.GET.get("gpu", "")
        )

    @property
    def is_over(self) -> bool:
        """Whether nobody should wait any longer for a desk."""
        return time.time() - self.since > PATIENCE_SECONDS


def _state(request: MemberRequest, lookup: Lookup, wait: Wait) -> HttpResponse:
    """The panel for a lookup; it asks again until there is nothing more to come."""
    if lookup.is_final:
        return _panel(request, preview_of(lookup, wait.measured))
    if lookup.status == LookupStatus.WAITING:
        if not selectors.somebody_works():
            return _panel(request, Preview(headline=selectors.NOBODY_WORKS))
        if wait.is_over:
            return _panel(request, Preview(headline=NOT_TAKEN))
    if lookup.status == wait.seen:
        return HttpResponse(status=204)
    asked = {"seen": lookup.status, "since": wait.since, "gpu": wait.measured}
    address = reverse("analyses:preview-state", args=[lookup.pk])
    return _panel(request, Preview(), f"{address}?{urlencode(asked)}")


def _panel(request: MemberRequest, shown: Preview, ask_again: str = "") -> HttpResponse:
    return render(request, "lookups/_preview.html", {"preview": shown, "ask_again": ask_again})


def _problems(form: AnalysisForm) -> list[tuple[str, str]]:
    """The messages of a form, each with the label of its field."""
    labels = {name: str(form[name].label) for name in form.fields}
    return [
        (labels.get(name, ""), str(message))
        for name, messages in form.errors.items()
        for message in messages
    ]
