"""What else would help: a section on the page of an analysis, and a page of its own."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from analyses.lookups import selectors, services
from analyses.lookups.advice import advice_of
from analyses.lookups.questions import plan_request
from analyses.models import Analysis, Ask, Lookup, LookupStatus
from analyses.views import MemberRequest, find_analysis
from engine.errors import InvalidInput

NOTHING = "nothing"
"""What a page has seen that has not asked yet."""


@require_http_methods(["GET", "HEAD", "POST"])
def advice(request: MemberRequest, pk: int) -> HttpResponse:
    """What other settings and GPUs would do for an analysis; ``POST`` has it worked out."""
    analysis = find_analysis(request, pk)
    try:
        asked = plan_request(analysis)
    except InvalidInput as error:
        reason = "; ".join(error.fields.values())
        return _advice(request, analysis, None, reason)
    if request.method == "POST":
        lookup = services.put(request.user, Ask.PLAN, asked, for_page=True)
        if not request.htmx:
            return redirect("analyses:advice", pk=pk)
    else:
        found = selectors.latest(request.user, Ask.PLAN, asked)
        if found is None or found.status == LookupStatus.DROPPED:
            if request.GET.get("seen") == NOTHING:
                return HttpResponse(status=204)
            return _advice(request, analysis, None)
        lookup = found
        services.still_wanted(lookup)
        if not lookup.is_final and request.GET.get("seen") == _seen(lookup):
            return HttpResponse(status=204)
    return _advice(request, analysis, lookup)


def _advice(
    request: MemberRequest, analysis: Analysis, lookup: Lookup | None, refused: str = ""
) -> HttpResponse:
    answered = lookup is not None and lookup.status == LookupStatus.ANSWERED
    context = {
        "analysis": analysis,
        "lookup": lookup,
        "seen": lookup and _seen(lookup),
        "advice": advice_of(lookup, analysis) if lookup and answered else None,
        "refused": refused,
        "nobody_works": lookup is not None
        and lookup.status == LookupStatus.WAITING
        and not selectors.somebody_works(),
    }
    template = "lookups/_advice.html" if request.htmx else "lookups/advice.html"
    return render(request, template, context)


def _seen(lookup: Lookup) -> str:
    """A word that changes when a waiting section does."""
    return f"{lookup.status} {lookup.progress}"
