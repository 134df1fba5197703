"""The page on which admins manage the members: list, roles, invitations, leaving."""

from __future__ import annotations

from typing import cast

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from analyses.notifications.channels import sends_email
from memorymark_site.accounts import invitations, mail, members, reset_links
from memorymark_site.accounts.forms import InviteForm, RoleForm
from memorymark_site.accounts.models import Invitation
from memorymark_site.accounts.roles import Role, needs, role_of
from memorymark_site.addresses import passed_on

LAST_ADMIN = "This is the lab's last admin: make somebody else admin first."
OWN_FACTORS = "Your own second factors are removed on the page Account."
_GONE = "This invitation has been accepted or revoked meanwhile."


@needs(Role.ADMIN)
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def member_list(request: HttpRequest) -> HttpResponse:
    """Everybody, and the form of an invitation; its link is in the answer to the form alone."""
    form = InviteForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        role, email = Role(form.cleaned_data["role"]), form.cleaned_data["email"]
        return _link(request, *invitations.invite(_admin(request), role, email))
    context = {
        "form": form,
        "members": [(user, role_of(user) or "") for user in members.everybody()],
        "roles": Role.choices,
        "invitations": invitations.listed(),
        "sends_email": sends_email(),
        "nav": "members",
    }
    return render(request, "accounts/members.html", context)


@needs(Role.ADMIN)
@never_cache
@require_POST
def renew_invitation(request: HttpRequest, pk: int) -> HttpResponse:
    """A new link in place of the old one."""
    invitation = get_object_or_404(Invitation, pk=pk)
    try:
        key = invitations.renew(_admin(request), invitation)
    except invitations.InvitationEnded:
        messages.warning(request, _GONE)
        return redirect("accounts:members")
    invitation.refresh_from_db()
    return _link(request, invitation, key)


@needs(Role.ADMIN)
@require_POST
def revoke_invitation(request: HttpRequest, pk: int) -> HttpResponse:
    """End an invitation."""
    if invitations.revoke(_admin(request), get_object_or_404(Invitation, pk=pk)):
        messages.success(request, "The invitation is revoked: its link no longer works.")
    else:
        messages.warning(request, _GONE)
    return redirect("accounts:members")


@needs(Role.ADMIN)
@require_POST
def change_role(request: HttpRequest, pk: int) -> HttpResponse:
    """Let a member be something else."""
    user, form = _member(pk), RoleForm(request.POST)
    if not form.is_valid():
        raise Http404("There is no such role.")
    role = Role(form.cleaned_data["role"])
    try:
        if members.set_role(_admin(request), user, role):
            messages.success(request, f"{user.username} is {role.label.lower()} from now on.")
    except members.LastAdmin:
        messages.error(request, LAST_ADMIN)
    except members.Inactive:
        messages.warning(request, f"Reactivate {user.username} first.")
    own = user.pk == request.user.pk
    return redirect("analyses:overview" if own and role is not Role.ADMIN else "accounts:members")


@needs(Role.ADMIN)
@require_POST
def deactivate(request: HttpRequest, pk: int) -> HttpResponse:
    """Lock a member out."""
    user = _member(pk)
    try:
        if members.deactivate(_admin(request), user):
            messages.success(request, f"{user.username} is locked out; what they made stays.")
    except members.LastAdmin:
        messages.error(request, LAST_ADMIN)
    return redirect("accounts:members")


@needs(Role.ADMIN)
@require_POST
def reactivate(request: HttpRequest, pk: int) -> HttpResponse:
    """Let a member in again."""
    user = _member(pk)
    if members.reactivate(_admin(request), user):
        messages.success(request, f"{user.username} may sign in again.")
    return redirect("accounts:members")


@needs(Role.ADMIN)
@require_POST
def remove_factors(request: HttpRequest, pk: int) -> HttpResponse:
    """Take a member's second factors away; one's own go on the page of one's account alone."""
    user = _member(pk)
    if user.pk == request.user.pk:
        messages.error(request, OWN_FACTORS)
    elif members.remove_factors(_admin(request), user):
        messages.success(
            request, f"The password alone signs {user.username} in now. Make sure that it is them."
        )
    return redirect("accounts:members")


@needs(Role.ADMIN)
@never_cache
@require_POST
def reset_link(request: HttpRequest, pk: int) -> HttpResponse:
    """A link with which a member sets a new password; shown this once."""
    user = _member(pk)
    try:
        path = reset_links.make(_admin(request), user)
    except members.Inactive:
        messages.warning(request, f"Reactivate {user.username} first.")
        return redirect("accounts:members")
    hours = settings.PASSWORD_RESET_TIMEOUT // 3600
    context = {
        "address": passed_on(request, path),
        "heading": f"A new password for {user.username}",
        "works": f"It works once, within {hours} hours, until {user.username} signs in, while "
        "you are an admin.",
        "nav": "members",
    }
    return render(request, "accounts/link.html", context)


def _link(request: HttpRequest, invitation: Invitation, key: str) -> HttpResponse:
    """Show the link of an invitation, and send it if there is where to."""
    address = passed_on(request, reverse("accounts:accept", args=[key]))
    role = Role(invitation.role).label.lower()
    context = {
        "address": address,
        "heading": "Here is the invitation",
        "works": f"Whoever opens it first becomes {role}. It works once, until "
        f"{invitation.expires_at:%Y-%m-%d %H:%M} UTC, or until you revoke it.",
        "sent": _send(request, invitation, address),
        "nav": "members",
    }
    return render(request, "accounts/link.html", context)


def _send(request: HttpRequest, invitation: Invitation, address: str) -> str:
    """Send the link by e-mail; returns what became of that, in words."""
    if not invitation.email:
        return ""
    if not sends_email():
        return "No e-mail was sent: this site sends none. Pass the link on yourself."
    context = {"address": address, "invitation": invitation, "by": request.user}
    text = render_to_string("accounts/invitation.txt", context)
    try:
        mail.send("Join our lab on MemoryMark", text, invitation.email)
    except mail.NotSent as why:
        return f"It could not be sent: {why}. Pass the link on yourself."
    return f"It is on its way to {invitation.email}."


def _member(pk: int) -> User:
    return get_object_or_404(User, pk=pk)


def _admin(request: HttpRequest) -> User:
    return cast(User, request.user)  # nobody else gets past needs()
