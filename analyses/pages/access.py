"""A member's request, and the analysis it is about."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.http import Http404, HttpRequest
from django_htmx.middleware import HtmxDetails

from analyses.models import Analysis
from analyses.selectors import visible_to


class MemberRequest(HttpRequest):
    """A request that has passed the login middleware: it has a member, and htmx's headers."""

    user: User
    htmx: HtmxDetails


def find_analysis(request: MemberRequest, pk: int) -> Analysis:
    """The analysis, if this member may see it.

    Raises:
        Http404: There is none, or none that the member may see.
    """
    analysis = visible_to(request.user).filter(pk=pk).first()
    if analysis is None:
        raise Http404(f"There is no analysis {pk}.")
    return analysis
