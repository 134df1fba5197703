"""Browsers that have signed in to an account before, known by a signed cookie.

Someone guessing at an account is stopped without stopping its owner, who has such a cookie
(the "device cookies" of OWASP's *Slow down online guessing attacks*). It signs nobody in.
"""

from __future__ import annotations

import secrets

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare, salted_hmac

from memorymark_site.accounts.members import folded

COOKIE = "memorymark_device"
KEPT_SECONDS = 180 * 24 * 3600
_SALT = "memorymark.device"


def remember(request: HttpRequest, response: HttpResponse, name: str) -> None:
    """Make the browser known as one that has signed in to this account."""
    device = known_device(request, name) or secrets.token_hex(16)
    response.set_signed_cookie(
        COOKIE,
        f"{_account(name)}:{device}",
        salt=_SALT,
        max_age=KEPT_SECONDS,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


def known_device(request: HttpRequest, name: str) -> str:
    """The number of a browser that has signed in to this account; empty for any other."""
    held = str(request.get_signed_cookie(COOKIE, "", salt=_SALT, max_age=KEPT_SECONDS))
    account, _, device = held.partition(":")
    return device if constant_time_compare(account, _account(name)) else ""


def _account(name: str) -> str:
    return salted_hmac(_SALT, folded(name), algorithm="sha256").hexdigest()[:20]
