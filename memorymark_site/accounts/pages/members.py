"""The members page: list, roles, invitations, deactivation."""

from __future__ import annotations

from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from memorymark_site.accounts import invitations, links, mail, members
from memorymark_site.accounts.forms import InviteForm, MemberSearch, RoleForm
from memorymark_site.accounts.links import passed_on
from memorymark_site.accounts.models import Invitation
from memorymark_site.accounts.roles import Role, member, needs, role_of

LAST_ADMIN = "This is the lab's last admin. Make someone else an admin first."
OWN_FACTORS = "Remove your own second factors on your account page."
PAGE_SIZE = 25
_GONE = "This invitation has already been accepted or revoked."


@needs(Role.ADMIN)
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def member_list(request: HttpRequest) -> HttpResponse:
    """The members and the invitation form. A new link is shown in the answer to the form only."""
    form = InviteForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        role, email = Role(form.cleaned_data["role"]), form.cleaned_data["email"]
        return _link(request, *invitations.invite(member(request), role, email))
    search = MemberSearch(request.GET)
    wanted = search.cleaned_data["q"] if search.is_valid() else ""
    page = Paginator(members.all_members(wanted), PAGE_SIZE).get_page(request.GET.get("page"))
    context = {
        "form": form,
        "search": search,
        "wanted": wanted,
        "page": page,
        "query": urlencode({"q": wanted}) if wanted else "",
        "here": f"?{request.GET.urlencode()}" if request.GET else "",
        "members": [(user, role_of(user) or "") for user in page],
        "roles": Role.choices,
        "invitations": invitations.listed(),
        "sends_email": mail.sends_email(),
        "nav": "members",
    }
    return render(request, "accounts/members.html", context)


@needs(Role.ADMIN)
@never_cache
@require_POST
def renew_invitation(request: HttpRequest, pk: int) -> HttpResponse:
    """Replace the link of an invitation."""
    invitation = get_object_or_404(Invitation, pk=pk)
    try:
        key = invitations.renew(member(request), invitation)
    except invitations.InvitationEnded:
        messages.warning(request, _GONE)
        return redirect("accounts:members")
    invitation.refresh_from_db()
    return _link(request, invitation, key)


@needs(Role.ADMIN)
@require_POST
def revoke_invitation(request: HttpRequest, pk: int) -> HttpResponse:
    if invitations.revoke(member(request), get_object_or_404(Invitation, pk=pk)):
        messages.success(request, "The invitation was revoked. Its link no longer works.")
    else:
        messages.warning(request, _GONE)
    return redirect("accounts:members")


@needs(Role.ADMIN)
@require_POST
def change_role(request: HttpRequest, pk: int) -> HttpResponse:
    user, form = _member(pk), RoleForm(request.POST)
    if not form.is_valid():
        raise Http404("Unknown role.")
    role = Role(form.cleaned_data["role"])
    try:
        if members.set_role(member(request), user, role):
            messages.success(request, f"{user.username} is now {role.label.lower()}.")
    except members.LastAdmin:
        messages.error(request, LAST_ADMIN)
    except members.Inactive:
        messages.warning(request, f"Reactivate {user.username} first.")
    own = user.pk == request.user.pk
    if own and role is not Role.ADMIN:
        return redirect("analyses:overview")
    return _back(request)


@needs(Role.ADMIN)
@require_POST
def reactivate(request: HttpRequest, pk: int) -> HttpResponse:
    user = _member(pk)
    if members.reactivate(member(request), user):
        messages.success(request, f"{user.username} can sign in again.")
    return _back(request)


@needs(Role.ADMIN)
@require_POST
def remove_factors(request: HttpRequest, pk: int) -> HttpResponse:
    """Remove another member's second factors; yours are on your account page."""
    user = _member(pk)
    if user.pk == request.user.pk:
        messages.error(request, OWN_FACTORS)
    elif members.remove_factors(member(request), user):
        messages.success(
            request,
            f"{user.username} now signs in with the password only. "
            "Make sure that the request really came from them.",
        )
    return _back(request)


@needs(Role.ADMIN)
@never_cache
@require_POST
def reset_link(request: HttpRequest, pk: int) -> HttpResponse:
    """Create a password reset link; it is shown only once."""
    user = _member(pk)
    try:
        path = links.reset_path(member(request), user)
    except members.Inactive:
        messages.warning(request, f"Reactivate {user.username} first.")
        return _back(request)
    hours = settings.PASSWORD_RESET_TIMEOUT // 3600
    context = {
        "address": passed_on(request, path),
        "heading": f"Password reset for {user.username}",
        "works": f"It works once and expires after {hours} hours, or as soon as {user.username} "
        "signs in or you are no longer an admin.",
        "nav": "members",
    }
    return render(request, "accounts/link.html", context)


def _link(request: HttpRequest, invitation: Invitation, key: str) -> HttpResponse:
    """Show the link of an invitation, and send it if there is where to."""
    address = passed_on(request, reverse("accounts:accept", args=[key]))
    role = Role(invitation.role).label.lower()
    context = {
        "address": address,
        "heading": "New invitation",
        "works": f"The first person to open it joins as {role}. It works once and expires on "
        f"{invitation.expires_at:%Y-%m-%d %H:%M} UTC, or when you revoke it.",
        "sent": _send(request, invitation, address),
        "nav": "members",
    }
    return render(request, "accounts/link.html", context)


def _send(request: HttpRequest, invitation: Invitation, address: str) -> str:
    """Send the link by e-mail; returns a sentence about the outcome."""
    if not invitation.email:
        return ""
    if not mail.sends_email():
        return "E-mail isn't set up here, so send the link yourself."
    context = {"address": address, "invitation": invitation, "by": request.user}
    text = render_to_string("accounts/invitation.txt", context)
    try:
        mail.send("Join our lab on MemoryMark", text, invitation.email)
    except mail.NotSent as why:
        return f"The e-mail could not be sent: {why}. Send the link yourself."
    return f"We e-mailed it to {invitation.email}."


def _back(request: HttpRequest) -> HttpResponse:
    """Back to the members that were listed: a form's address has the search and the page."""
    shown = {name: request.GET[name] for name in ("q", "page") if name in request.GET}
    return redirect(reverse("accounts:members", query=shown or None))


def _member(pk: int) -> User:
    return get_object_or_404(User, pk=pk)
