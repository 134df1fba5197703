"""The browsers in which somebody is signed in: noted, listed, ended."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action, SignIn

_BROWSERS = ("Edg", "OPR", "Firefox", "Chromium", "Chrome", "Safari", "curl")
_NAMES = {"Edg": "Edge", "OPR": "Opera"}
_SYSTEMS = ("Android", "iPhone", "iPad", "Windows", "Macintosh", "Linux")
"""In the order in which they are looked for, since most browsers name several."""


def note_sign_in(sender: object, request: HttpRequest, user: User, **_signal: Any) -> None:
    """Note a sign-in; what is left of ended ones goes, and of those that were only begun."""
    Session.objects.filter(expire_date__lte=timezone.now()).delete()
    _living(SignIn.objects.filter(user=user), alive=False).delete()
    key = request.session.session_key
    if key:
        browser = browser_of(request.headers.get("User-Agent", ""))
        SignIn.objects.update_or_create(
            session_key=key, defaults={"user": user, "browser": browser}
        )


def note_new_key(user: User, old_key: str | None, new_key: str | None) -> None:
    """Follow the session that a new password gives another key."""
    SignIn.objects.filter(user=user, session_key=old_key or "").update(session_key=new_key)


def browser_of(user_agent: str) -> str:
    """What a browser calls itself, short enough to be recognised by a person."""
    browser = next((name for name in _BROWSERS if name in user_agent), "")
    system = next((name for name in _SYSTEMS if name in user_agent), "")
    known = [_NAMES.get(browser, browser), system]
    return " on ".join(word for word in known if word) or "an unknown browser"


def sessions_of(user: User) -> QuerySet[SignIn]:
    """Where somebody is signed in, the latest first."""
    return _living(SignIn.objects.filter(user=user))


def end(user: User, pk: int) -> bool:
    """End one of somebody's own sessions.

    Returns:
        Whether there was one.
    """
    return _end(user, sessions_of(user).filter(pk=pk)) > 0


def end_others(user: User, current_key: str | None) -> int:
    """End all of somebody's sessions but this one; returns how many."""
    return _end(user, sessions_of(user).exclude(session_key=current_key or ""))


def end_all(user: User, *, but: str | None = None) -> None:
    """End all of somebody's sessions, or all but one; the caller notes why."""
    _delete(SignIn.objects.filter(user=user).exclude(session_key=but or ""))


def _end(user: User, sign_ins: QuerySet[SignIn]) -> int:
    with transaction.atomic():
        ended = _delete(sign_ins)
        if ended:
            audit.note(user, Action.SESSIONS_ENDED, user.get_username(), before=ended, after=0)
    return ended


def _delete(sign_ins: QuerySet[SignIn]) -> int:
    keys = list(sign_ins.values_list("session_key", flat=True))
    Session.objects.filter(session_key__in=keys).delete()
    SignIn.objects.filter(session_key__in=keys).delete()
    return len(keys)


def _living(sign_ins: QuerySet[SignIn], *, alive: bool = True) -> QuerySet[SignIn]:
    living = Session.objects.filter(expire_date__gt=timezone.now()).values("session_key")
    chosen = sign_ins.filter(session_key__in=living)
    return chosen if alive else sign_ins.exclude(session_key__in=living)
