"""Share links: one analysis, shown to people without an account.

Anyone with the address sees the page, so a link is a key. Its token has 256 random bits and only
its hash is stored; it always expires, and anyone who may change the analysis can revoke it. It also
stops working when its creator's account is deactivated: a member who leaves keeps no access.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from analyses.figures.chips import chips, name_of
from analyses.formatting import model_name
from analyses.lab.settings import lab_settings
from analyses.models import WITH_ANSWER, Analysis, ShareLink
from analyses.pages.access import MemberRequest, find_analysis
from analyses.pages.analysis.answer import answer_parts, verdict_of
from analyses.permissions import may_change
from analyses.results.stored import result_of, text_result_of
from analyses.savings.estimate import estimate_of
from memorymark_site.accounts import audit
from memorymark_site.accounts.links import passed_on
from memorymark_site.accounts.models import Action

LIFETIMES_DAYS = (1, 7, 30, 90)
"""Lifetimes to choose from, in days; every link expires."""

_TOKEN_BYTES = 32
_HEADERS = {
    "Referrer-Policy": "no-referrer",  # the address is the key; no other site may see it
    "X-Robots-Tag": "noindex, nofollow",
    "Cache-Control": "no-store",
}


class ShareForm(forms.Form):
    """The lifetime of a new link."""

    days = forms.TypedChoiceField(
        label="Expires after",
        coerce=int,
        choices=[(days, f"{days} day{'' if days == 1 else 's'}") for days in LIFETIMES_DAYS],
        initial=7,
    )


@require_POST
@never_cache
def share(request: MemberRequest, pk: int) -> HttpResponse:
    """Create a link, and show its address this once."""
    analysis = _sharable(request, pk)
    form = ShareForm(request.POST)
    if not (analysis.has_answer and (result_of(analysis) or text_result_of(analysis))):
        messages.warning(request, f"Analysis {pk} has no answer to share.")
    elif not form.is_valid():
        messages.warning(request, "No link was created. Choose when it expires.")
    else:
        link, token = create_link(analysis, request.user, form.cleaned_data["days"])
        address = passed_on(request, reverse("analyses:shared", args=[token]))
        return render(request, "sharing/made.html", {"link": link, "address": address})
    return redirect("analyses:detail", pk=pk)


@require_POST
def revoke(request: MemberRequest, pk: int) -> HttpResponse:
    link = get_object_or_404(ShareLink, pk=pk)
    analysis = _sharable(request, link.analysis_id)
    if revoke_link(link, request.user):
        messages.success(request, "Link revoked.")
    else:
        messages.warning(request, "That link had already expired or been revoked.")
    return redirect(f"{reverse('analyses:detail', args=[analysis.pk])}#share")


@login_not_required
@require_safe
def shared(request: HttpRequest, token: str) -> HttpResponse:
    """Render a shared answer; the same 404 if the link is expired, revoked or never existed."""
    link = find_link(token)
    answer = _answer(link) if link else None
    if link is None or answer is None:
        response = render(request, "sharing/gone.html", status=404)
    else:
        count_view(link)
        response = render(request, "sharing/shared.html", answer)
    for name, value in _HEADERS.items():
        response[name] = value
    return response


def sharing_allowed() -> bool:
    """Whether there are share links at all: by this instance's settings and the lab's."""
    return bool(settings.SHARE_LINKS and lab_settings().sharing_allowed)


def may_share(user: User | AnonymousUser, analysis: Analysis) -> bool:
    """Whether this user may create and revoke links: the analysis's owner may, and an admin."""
    return sharing_allowed() and analysis.has_answer and may_change(user, analysis)


def create_link(analysis: Analysis, member: User, days: int) -> tuple[ShareLink, str]:
    """Create a link; the caller has checked that the member may.

    Returns:
        The link and its token, which is not stored and cannot be shown again.

    Raises:
        ValueError: ``days`` is none of :data:`LIFETIMES_DAYS`, or there is no answer to share.
    """
    if days not in LIFETIMES_DAYS or not analysis.has_answer:
        raise ValueError(f"no link of {days} days to {analysis}, which is {analysis.status}")
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    with transaction.atomic():
        link = ShareLink.objects.create(
            analysis=analysis,
            digest=_digest(token),
            created_by=member,
            expires_at=timezone.now() + timedelta(days=days),
        )
        audit.note(member, Action.SHARE_LINK_MADE, str(analysis), after=f"for {days} days")
    return link, token


def revoke_link(link: ShareLink, member: User) -> bool:
    """Revoke a link; returns whether it was live."""
    with transaction.atomic():
        changed = bool(live_links().filter(pk=link.pk).update(revoked_at=Now()))
        if changed:
            audit.note(member, Action.SHARE_LINK_REVOKED, str(link.analysis))
    return changed


def live_links() -> QuerySet[ShareLink]:
    """The links that still work, by the database's clock."""
    return ShareLink.objects.filter(
        revoked_at__isnull=True,
        expires_at__gt=Now(),
        created_by__is_active=True,
        analysis__in=Analysis.objects.filter(WITH_ANSWER),
    )


def links_of(analysis: Analysis) -> QuerySet[ShareLink]:
    """The live links of one analysis, the one that expires first at the top."""
    return live_links().filter(analysis=analysis).select_related("created_by")


def find_link(token: str) -> ShareLink | None:
    """The live link with this token, with its analysis."""
    if not sharing_allowed():
        return None
    return live_links().filter(digest=_digest(token)).select_related("analysis__decided").first()


def count_view(link: ShareLink) -> None:
    seen = ShareLink.objects.filter(pk=link.pk)
    seen.update(times_seen=F("times_seen") + 1, last_seen_at=Now())


def _answer(link: ShareLink) -> dict[str, object] | None:
    """The template variables; the analysis itself is not among them, since it names its owner."""
    analysis = link.analysis
    verdict = verdict_of(analysis)
    parts = answer_parts(analysis, verdict)
    if verdict is None and parts["texts"] is None:
        return None
    return {
        **parts,
        "model": model_name(analysis.model),
        "chips": chips(analysis),
        "name": name_of(analysis),
        "estimate": verdict
        and estimate_of(verdict.result, {}, adopted=analysis.adopted_at is not None),
        "answered_at": analysis.finished_at,
        "expires_at": link.expires_at,
    }


def _sharable(request: MemberRequest, pk: int) -> Analysis:
    if not sharing_allowed():
        raise Http404("Sharing is turned off here.")
    analysis = find_analysis(request, pk)
    if not may_change(request.user, analysis):
        raise PermissionDenied("Only the analysis's owner or an admin can share it.")
    return analysis


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
