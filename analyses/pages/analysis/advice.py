"""The requests of a page for its ladder: to start it, and to hear of what is found."""

from __future__ import annotations

from contextlib import suppress

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods
from django_htmx.http import reswap, retarget

from analyses import queries
from analyses.jobs.plans import plan_request
from analyses.models import QueryKind
from analyses.pages.access import MemberRequest, find_analysis
from analyses.pages.analysis.ladder import Ladder, ladder_of
from analyses.pages.analysis.views import context_of, gpus_of
from analyses.pages.long_poll import hear
from engine.core.errors import InvalidInput


@require_http_methods(["GET", "HEAD", "POST"])
def advice(request: MemberRequest, pk: int) -> HttpResponse:
    """Show the ladder as far as it is known; ``POST`` starts it.

    A page that waits gets the rungs as they are found, and its whole answer anew at the end.
    """
    analysis = find_analysis(request, pk)
    if request.method == "POST":
        with suppress(InvalidInput):  # the section says why
            queries.submit(request.user, QueryKind.PLAN, plan_request(analysis), for_page=True)
        if not request.htmx:
            return redirect("analyses:advice", pk=pk)
    wanted, seen = request.GET.get("rung", ""), request.GET.get("seen")
    ladder = ladder_of(request.user, analysis, wanted)
    if ladder.query is not None:
        queries.keep_alive(ladder.query)
    if not request.htmx:
        gpus = gpus_of(analysis, None, ladder)
        context = {"analysis": analysis, "ladder": ladder, "gpus": gpus}
        return render(request, "advice/advice.html", context)
    if seen is not None:
        if not hear(lambda: _state_of(ladder) != seen):
            return HttpResponse(status=204)
        ladder = ladder_of(request.user, find_analysis(request, pk), wanted)
    if not ladder.is_final:
        return render(request, "advice/_ladder.html", {"analysis": analysis, "ladder": ladder})
    analysis = find_analysis(request, pk)  # with the decision that the plan has brought
    whole = render(request, "advice/_ended.html", context_of(request, analysis, wanted))
    return reswap(retarget(whole, "#analysis"), "outerHTML")


def _state_of(ladder: Ladder) -> str:
    """A ladder's state as a page shows it, by its query alone: reading rows takes longer."""
    if ladder.query is not None:
        ladder.query.refresh_from_db(fields=["status", "rungs", "progress"])
    return ladder.seen
