"""The pages of savings, and the buttons by which they become realised."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from analyses import services
from analyses.models import Analysis
from analyses.selectors import may_change
from analyses.views import MemberRequest, find_analysis


@require_POST
def adopt(request: MemberRequest, pk: int) -> HttpResponse:
    """Mark the recommendation of an analysis of one's own as adopted."""
    if not services.adopt(_own(request, pk), request.user):
        messages.warning(request, f"Analysis {pk} has nothing to adopt, or is adopted already.")
    return redirect("analyses:detail", pk=pk)


@require_POST
def take_back(request: MemberRequest, pk: int) -> HttpResponse:
    """Take back that it was adopted."""
    if not services.take_back(_own(request, pk)):
        messages.warning(request, f"Analysis {pk} was not adopted.")
    return redirect("analyses:detail", pk=pk)


def _own(request: MemberRequest, pk: int) -> Analysis:
    analysis = find_analysis(request, pk)
    if not may_change(request.user, analysis):
        raise PermissionDenied("Only who has asked for an analysis, or an admin, may adopt it.")
    return analysis
