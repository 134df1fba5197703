"""The pages of share links: making and ending them, and what they show to everybody."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from analyses.models import Analysis, ShareLink
from analyses.permissions import may_change
from analyses.presentation import verdict_of
from analyses.question import gpu_of, model_name
from analyses.savings.worth import worth_of
from analyses.sharing import links
from analyses.sharing.forms import ShareForm
from analyses.stored_result import result_of
from analyses.views import MemberRequest, answer_parts, find_analysis
from memorymark_site.addresses import passed_on

_HEADERS = {
    "Referrer-Policy": "no-referrer",  # the address is the key; no other site is to see it
    "X-Robots-Tag": "noindex, nofollow",
    "Cache-Control": "no-store",
}


@require_POST
@never_cache
def share(request: MemberRequest, pk: int) -> HttpResponse:
    """Make a link to an analysis of one's own, and show its address this once."""
    analysis = _own(request, pk)
    form = ShareForm(request.POST)
    if not links.can_be_shared(analysis) or result_of(analysis) is None:
        messages.warning(request, f"Analysis {pk} has no answer that could be shared.")
    elif not form.is_valid():
        messages.warning(request, "No link was made: choose how long it works.")
    else:
        link, token = links.make(analysis, request.user, form.cleaned_data["days"])
        address = passed_on(request, reverse("analyses:shared", args=[token]))
        return render(request, "sharing/made.html", {"link": link, "address": address})
    return redirect("analyses:detail", pk=pk)


@require_POST
def revoke(request: MemberRequest, pk: int) -> HttpResponse:
    """End a link to an analysis of one's own."""
    link = get_object_or_404(ShareLink, pk=pk)
    analysis = _own(request, link.analysis_id)
    if links.revoke(link, request.user):
        messages.success(request, "The link is revoked: it shows nothing any more.")
    else:
        messages.warning(request, "That link had ended already.")
    return redirect(f"{reverse('analyses:detail', args=[analysis.pk])}#share")


@login_not_required
@require_safe
def shared(request: HttpRequest, token: str) -> HttpResponse:
    """What a link shows, to anybody; the very same 404 for whatever reason it shows nothing."""
    link = links.find(token)
    answer = _answer(link) if link else None
    if link is None or answer is None:
        response = render(request, "sharing/gone.html", status=404)
    else:
        links.note_seen(link)
        response = render(request, "sharing/shared.html", answer)
    for name, value in _HEADERS.items():
        response[name] = value
    return response


def _answer(link: ShareLink) -> dict[str, object] | None:
    """What the page shows; the analysis itself, which knows its owner, stays out of it."""
    analysis = link.analysis
    verdict = verdict_of(analysis)
    if verdict is None:
        return None
    return {
        **answer_parts(analysis, verdict),
        "model": model_name(analysis.model),
        "gpu": gpu_of(analysis),
        "worth": worth_of(verdict.result, {}, adopted=analysis.adopted_at is not None),
        "answered_at": analysis.finished_at,
        "expires_at": link.expires_at,
    }


def _own(request: MemberRequest, pk: int) -> Analysis:
    if not links.sharing_allowed():
        raise Http404("Nothing is shared from here.")
    analysis = find_analysis(request, pk)
    if not may_change(request.user, analysis):
        raise PermissionDenied("Only who has asked for an analysis, or an admin, may share it.")
    return analysis
