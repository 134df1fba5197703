"""The browsers a member is signed in with: recorded, listed, ended.

Not allauth's user sessions: at each sign-in they read all of the account's sessions again, with
three queries each. In a trial, signing in to an account with 2,000 open sessions, as a script that
signs in every ten minutes leaves within two weeks, took 6,032 queries and 6 s. They also store IP
addresses, and end the others only all at once.
"""

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
"""Systems in the order of search, since most browsers name several."""


def note_sign_in(sender: object, request: HttpRequest, user: User, **_signal: Any) -> None:
    """Record a sign-in, and remove what is left of ended and unfinished ones."""
    Session.objects.filter(expire_date__lte=timezone.now()).delete()
    _living(SignIn.objects.filter(user=user), alive=False).delete()
    key = request.session.session_key
    if key:
        browser = browser_of(request.headers.get("User-Agent", ""))
        SignIn.objects.update_or_create(
            session_key=key, defaults={"user": user, "browser": browser}
        )


def note_new_key(user: User, old_key: str | None, new_key: str | None) -> None:
    """Follow a session whose key a new password changed."""
    SignIn.objects.filter(user=user, session_key=old_key or "").update(session_key=new_key)


def browser_of(user_agent: str) -> str:
    """A short name of a browser that its owner recognises."""
    browser = next((name for name in _BROWSERS if name in user_agent), "")
    system = next((name for name in _SYSTEMS if name in user_agent), "")
    known = [_NAMES.get(browser, browser), system]
    return " on ".join(word for word in known if word) or "an unknown browser"


def sessions_of(user: User) -> QuerySet[SignIn]:
    """The member's open sessions, latest first."""
    return _living(SignIn.objects.filter(user=user))


def end(user: User, pk: int) -> bool:
    """End one of the member's own sessions; returns whether it existed."""
    return _end(user, sessions_of(user).filter(pk=pk)) > 0


def end_others(user: User, current_key: str | None) -> int:
    """End all of the member's sessions but this one; returns how many."""
    return _end(user, sessions_of(user).exclude(session_key=current_key or ""))


def end_all(user: User, *, but: str | None = None) -> None:
    """End all of the member's sessions, or all but one; the caller audits why."""
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
