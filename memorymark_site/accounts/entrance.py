"""Getting in by a password: by one that was just chosen, and whether passwords sign in at all."""

from __future__ import annotations

from allauth.account.internal.flows.login import record_authentication
from allauth.account.utils import perform_login
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse


def enter(request: HttpRequest, user: User) -> HttpResponse:
    """Sign in, with all that a sign-in by password takes; returns where to go."""
    record_authentication(request, user, method="password")
    response: HttpResponse = perform_login(request, user, redirect_url="/")
    return response


def check_passwords_sign_in() -> None:
    """Whether a password is a way in.

    Raises:
        PermissionDenied: The lab signs in with its provider alone.
    """
    if not settings.PASSWORD_SIGN_IN:
        raise PermissionDenied("Nobody signs in with a password here. Go back and choose another.")
