"""The page that confirms a member's leaving, with what the member has and who takes it over."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from analyses.leaving import heirs_of, holdings_of, leave
from analyses.pages.access import MemberRequest
from memorymark_site.accounts.members import LastAdmin
from memorymark_site.accounts.pages.members import LAST_ADMIN
from memorymark_site.accounts.roles import Role, needs

HEIR = "heir"
SHOWN = 20
"""Analyses that are listed; the others are counted."""


@needs(Role.ADMIN)
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def deactivate(request: MemberRequest, pk: int) -> HttpResponse:
    """Ask first; then lock the member out, and hand over what needs a decision."""
    member = get_object_or_404(User, pk=pk)
    if not member.is_active:
        messages.warning(request, f"{member.username} is deactivated already.")
        return redirect("accounts:members")
    if request.method == "POST":
        return _leave(request, member)
    found = holdings_of(member)
    context = {
        "person": member,
        "holdings": found,
        "undecided_count": found.undecided.count(),
        "listed": found.undecided[:SHOWN],
        "heirs": heirs_of(member),
        "nav": "members",
    }
    return render(request, "members/deactivate.html", context)


def _leave(request: MemberRequest, member: User) -> HttpResponse:
    wanted, heir = request.POST.get(HEIR, ""), None
    if wanted:
        heirs = heirs_of(member)
        known = wanted.isascii() and wanted.isdigit() and len(wanted) < 10
        heir = heirs.filter(pk=int(wanted)).first() if known else None
        if heir is None:
            messages.error(request, "Choose another member to hand over to.")
            return redirect("analyses:deactivate", pk=member.pk)
    try:
        leave(request.user, member, heir)
    except LastAdmin:
        messages.error(request, LAST_ADMIN)
    else:
        kept = "Their analyses are kept."
        if heir is not None:
            kept = f"What needs a decision is now {heir.username}'s; the rest is kept."
        messages.success(request, f"{member.username} was deactivated. {kept}")
    return redirect("accounts:members")
