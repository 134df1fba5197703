"""Your own account: sessions, password, e-mail address and API tokens."""

from __future__ import annotations

import logging
from typing import Any

from allauth.account.decorators import reauthentication_required
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import views as auth
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse, reverse_lazy
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from memorymark_site.accounts import (
    audit,
    identities,
    mail,
    sessions,
    throttle,
    tokens,
)
from memorymark_site.accounts.forms import AddressForm, TokenForm
from memorymark_site.accounts.models import Action
from memorymark_site.accounts.pages.entrance import link_ended
from memorymark_site.accounts.roles import Role, member, needs
from memorymark_site.accounts.second_factors import factors_of, lacks_factor, needs_no_factor
from memorymark_site.accounts.throttle import BoundedGuesses, too_many


@needs_no_factor
@needs(Role.VIEWER)
@never_cache
@require_safe
def account(request: HttpRequest) -> HttpResponse:
    """The account page: role, address, password, second factors, sessions."""
    context = {
        "sessions": sessions.sessions_of(member(request)),
        "current_key": request.session.session_key,
        "factors": factors_of(member(request)),
        "lacks_factor": lacks_factor(request.user),
        "oidc": identities.provider(),
        "linked": identities.linked(member(request)),
        "nav": "account",
    }
    return render(request, "accounts/account.html", context)


@needs_no_factor
@needs(Role.VIEWER)
@require_POST
def end_session(request: HttpRequest, pk: int) -> HttpResponse:
    if sessions.end(member(request), pk):
        messages.success(request, "Signed out that browser.")
    else:
        messages.warning(request, "That session had already ended.")
    return redirect("accounts:account")


@needs_no_factor
@needs(Role.VIEWER)
@require_POST
def end_other_sessions(request: HttpRequest) -> HttpResponse:
    count = sessions.end_others(member(request), request.session.session_key)
    messages.success(request, f"{count} other session{'' if count == 1 else 's'} ended.")
    return redirect("accounts:account")


class PasswordChange(BoundedGuesses, auth.PasswordChangeView):
    """Change the password; this signs out all other browsers."""

    template_name = "accounts/password.html"
    success_url = reverse_lazy("accounts:account")

    def limits(self) -> list[throttle.Limit]:
        """As at sign-in: the old password can be guessed here too."""
        return throttle.of_sign_in(self.request, member(self.request).username)

    def form_valid(self, form: Any) -> HttpResponse:
        """Store it."""
        user, old_key = member(self.request), self.request.session.session_key
        with transaction.atomic():
            response = super().form_valid(form)
            sessions.note_new_key(user, old_key, self.request.session.session_key)
            sessions.end_all(user, but=self.request.session.session_key)
            audit.note(user, Action.PASSWORD_CHANGED, user.username)
        messages.success(self.request, "Your password was changed. Other browsers were signed out.")
        return response


logger = logging.getLogger(__name__)

_ADDRESS_LINK_ENDED = (
    "This link has expired, was already used, or belongs to another account. Request a new one on "
    "your account page."
)


@needs_no_factor
@needs(Role.VIEWER)
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@reauthentication_required  # type: ignore[untyped-decorator]  # allauth has no types
def change_address(request: HttpRequest) -> HttpResponse:
    """Send a confirmation link to a new address; an empty one removes the address at once."""
    user = member(request)
    form = AddressForm(user, request.POST if request.method == "POST" else None)
    if request.method == "POST" and mail.sends_email() and form.is_valid():
        return _asked(request, user, form)
    return _page(request, form)


@needs_no_factor
@needs(Role.VIEWER)
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def confirm_address(request: HttpRequest, token: str) -> HttpResponse:
    """The target of the confirmation link: shows the new address, and sets it."""
    user = member(request)
    try:
        new = mail.read_address_token(token, user)
        if request.method != "POST":
            context = {"new": new, "nav": "account"}
            return render(request, "accounts/confirm_address.html", context)
        before = mail.change_address(token, user)
    except mail.LinkEnded:
        return link_ended(request, _ADDRESS_LINK_ENDED)
    _tell_the_old_one(user, before, new)
    messages.success(request, f"Your e-mail address is now {new}.")
    return redirect("accounts:account")


def _page(request: HttpRequest, form: AddressForm) -> HttpResponse:
    context = {"form": form, "sends_email": mail.sends_email(), "nav": "account"}
    return render(request, "accounts/address.html", context)


def _asked(request: HttpRequest, user: User, form: AddressForm) -> HttpResponse:
    new, before = form.cleaned_data["email"], user.email
    if not new:
        mail.remove_address(user)
        _tell_the_old_one(user, before, "none")
        messages.success(request, "Your e-mail address was removed.")
        return redirect("accounts:account")
    if seconds := throttle.take([throttle.of_new_address(user)]):
        return too_many(request, seconds)
    path = reverse("accounts:confirm-address", args=[mail.address_token(user, new)])
    context = {"user": user, "new": new, "address": settings.PUBLIC_URL + path}
    text = render_to_string("accounts/address.txt", context)
    try:
        mail.send("Your e-mail address on MemoryMark", text, new)
    except mail.NotSent as why:
        form.add_error(None, f"The mail server refused the message: {why}. Nothing has changed.")
        return _page(request, form)
    messages.success(request, f"We sent a link to {new}. Open it to confirm the new address.")
    return redirect("accounts:account")


def _tell_the_old_one(user: User, before: str, new: str) -> None:
    """Notify the old address, so that its owner learns of a change they did not make."""
    if not before:
        return
    text = render_to_string("accounts/address_changed.txt", {"user": user, "new": new})
    try:
        mail.send("Your e-mail address on MemoryMark has changed", text, before)
    except mail.NotSent as why:
        logger.warning("the old e-mail address could not be notified of the change: %s", why)


@needs(Role.VIEWER)
@never_cache  # it shows a new token
@sensitive_variables("token")
@require_http_methods(["GET", "HEAD", "POST"])
def tokens_page(request: HttpRequest) -> HttpResponse:
    """Your tokens, and the form for a new one.

    The response to the form shows the new token; a redirect would have to store it. Sent twice,
    the form is refused, because the name is then taken.
    """
    user = member(request)
    form = TokenForm(user, request.POST if request.method == "POST" else None)
    token = form.create() if form.is_bound and form.is_valid() else None
    context = {
        "form": TokenForm(user) if token else form,
        "token": token,
        "tokens": tokens.tokens_of(user),
        "now": timezone.now(),
        "nav": "tokens",
    }
    return render(request, "accounts/tokens.html", context)


@needs(Role.VIEWER)
@require_POST
def revoke_token(request: HttpRequest, token_key: str) -> HttpResponse:
    if tokens.revoke(member(request), token_key):
        messages.success(request, f"The token {token_key}… is revoked and no longer works.")
    else:
        messages.warning(request, f"You have no token {token_key}….")
    return redirect("accounts:tokens")
