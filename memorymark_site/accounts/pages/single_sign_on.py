"""Single sign-on pages: to the provider and back; linking and unlinking an identity."""

from __future__ import annotations

import logging
import secrets
from typing import Any

from allauth.account.decorators import reauthentication_required
from allauth.account.utils import get_next_redirect_url
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.providers.base.constants import AuthError, AuthProcess
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from requests import RequestException

from memorymark_site.accounts import identities, invitations, throttle
from memorymark_site.accounts.identities import AlreadyLinked, Identity
from memorymark_site.accounts.oidc import Callback, Client
from memorymark_site.accounts.roles import Role, member, needs
from memorymark_site.accounts.second_factors import factors_of
from memorymark_site.accounts.throttle import too_many
from memorymark_site.environment import OidcSettings

logger = logging.getLogger(__name__)

_WRONG = (ImproperlyConfigured, KeyError, OAuth2Error, RequestException, TypeError, ValueError)
"""Raised when the provider does not answer, or answers nonsense."""


@login_not_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def start(request: HttpRequest) -> HttpResponse:
    """Send the browser to the provider, which asks signed-in members to sign in again."""
    oidc = _oidc()
    next_url = get_next_redirect_url(request)
    if request.method != "POST":
        return render(request, "accounts/sso.html", {"oidc": oidc, "next": next_url})
    if seconds := throttle.take(throttle.of_beginning(request)):
        return too_many(request, seconds)
    return _leave(request, oidc, next_url=next_url, anew=request.user.is_authenticated)


@login_not_required
@never_cache
@require_safe
def callback(request: HttpRequest) -> HttpResponse:
    """Receive the browser back, and sign in; see :class:`.adapters.SignOnAdapter`."""
    oidc = _oidc()
    try:
        response: HttpResponse = Callback.adapter_view(Client(request, oidc.issuer))(request)
    except _WRONG as error:
        return failed(request, exception=error)
    return response


@login_not_required
@never_cache
@sensitive_variables("key")
@require_POST
def join(request: HttpRequest, key: str) -> HttpResponse:
    """Send an invited person to the provider, to come back as a member."""
    oidc = _oidc()
    invitation = invitations.find(key)
    if invitation is None:
        return refused(request, identities.ENDED)
    if seconds := throttle.take(throttle.of_beginning(request)):
        return too_many(request, seconds)
    return _leave(request, oidc, invitation=invitation.digest)


@needs(Role.VIEWER)
@require_POST
@reauthentication_required(app="allauth.socialaccount")  # type: ignore[untyped-decorator]  # allauth has no types
def link(request: HttpRequest) -> HttpResponse:
    """Send the browser to the provider, to link the identity there to this account."""
    return _leave(request, _oidc(), member=request.user.pk)


def finish_link(request: HttpRequest, identity: Identity, pk: int) -> HttpResponse:
    """Link the identity to the account that started this in the same browser."""
    name = _oidc().name
    if not isinstance(request.user, User) or request.user.pk != pk:
        return refused(request, "Someone else has signed in here since. Sign in and link again.")
    try:
        identities.link(request.user, identity, how="on the Account page")
    except AlreadyLinked:
        messages.error(request, f"This {name} account is linked to another account here.")
    else:
        messages.success(request, f"You can now sign in with {name}.")
    return redirect("accounts:account")


@needs(Role.VIEWER)
@require_POST
@reauthentication_required(app="allauth.socialaccount")  # type: ignore[untyped-decorator]  # allauth has no types
def unlink(request: HttpRequest) -> HttpResponse:
    """Unlink the provider, unless it is the only way to sign in."""
    user = member(request)
    by_password = settings.PASSWORD_SIGN_IN and user.has_usable_password()
    if not by_password and not any(
        passkey.wrap().is_passwordless for passkey in factors_of(user).passkeys
    ):
        messages.error(
            request,
            "This is your only way to sign in. Add a passkey that works without a password first.",
        )
    elif identities.unlink(user):
        messages.success(request, "Single sign-on was unlinked from your account.")
    return redirect("accounts:account")


def refused(request: HttpRequest, why: str) -> HttpResponse:
    """Explain why an identity is not let in."""
    return render(request, "accounts/sso_failed.html", {"why": why}, status=403)


def failed(
    request: HttpRequest, *, error: str = AuthError.UNKNOWN, exception: Exception | None = None
) -> HttpResponse:
    """Explain what went wrong at the provider; the log has the details."""
    name = _oidc().name
    logger.warning("single sign-on: %s: %s", error, str(exception or "")[:300])
    if error == AuthError.CANCELLED:
        why = f"{name} refused the sign-in, or you cancelled it."
    elif isinstance(exception, RequestException):
        why = f"{name} is not responding. Try again later."
    elif exception is not None:
        why = f"{name} sent an invalid answer. Try again. If it happens again, tell an admin."
    elif "error" in request.GET:
        why = f"{name} refused the sign-in. Try again. If it happens again, tell a lab admin."
    else:
        why = "This sign-in expired or was started in another browser. Start again."
    status = 502 if exception is not None else 401
    return render(request, "accounts/sso_failed.html", {"why": why}, status=status)


def _leave(
    request: HttpRequest, oidc: OidcSettings, *, next_url: str | None = None, anew: bool = False,
    **noted: Any,
) -> HttpResponse:  # fmt: skip
    """A page that leads on to the provider.

    The Content-Security-Policy forbids redirecting a form to another site, and the provider's
    address for signing in is not known before it is fetched.
    """
    nonce = secrets.token_urlsafe(24)
    asked = {"nonce": nonce} | ({"prompt": "login", "max_age": "0"} if anew else {})
    try:
        response = get_adapter().get_provider(request, oidc.issuer).redirect(
            request, AuthProcess.LOGIN, next_url, auth_params=asked, nonce=nonce, anew=anew, **noted
        )  # fmt: skip
    except _WRONG as error:
        return failed(request, exception=error)
    if "Location" not in response:  # allauth has already explained what is wrong
        return HttpResponse(response.content, status=response.status_code)
    return render(request, "accounts/sso_leave.html", {"oidc": oidc, "url": response["Location"]})


def _oidc() -> OidcSettings:
    oidc = identities.provider()
    if oidc is None:
        raise Http404("Single sign-on isn't set up here.")
    return oidc
