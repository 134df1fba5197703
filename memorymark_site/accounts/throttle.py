"""Limits on attempts to guess a password or code: per account and network, and per network.

Someone who guesses at a member's password from elsewhere must not keep the member out. So a browser
that has signed in to the account before has limits of its own, and other browsers are stopped in
the network that the guesses come from. Guesses from many networks stop them everywhere but where
members sign in from: those networks have a count of their own (see :mod:`.networks`).

Attempts are counted in the database, before the password is checked, so that parallel ones count
too; a right one is not counted. Keys are stored as keyed digests: no names, no addresses, and no
password that someone typed into the wrong field.

Not allauth's rate limits on Django's database cache: that cache drops entries by the order of
their keys once it is full (300 by default), so in a trial 400 wrong passwords for made-up names
reopened an account that was locked. It also stores addresses in the clear, and cannot say how long
to wait.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.crypto import salted_hmac

from memorymark_site.accounts import networks
from memorymark_site.accounts.devices import known_device
from memorymark_site.accounts.members import folded
from memorymark_site.accounts.models import Attempt
from memorymark_site.operations.prometheus import count_sign_in_failure

WINDOW = timedelta(minutes=15)

_ELSEWHERE, _FROM_KNOWN = "0" * 20, "1" * 20
"""End the keys of an account's attempts from all unknown networks, and from all known ones."""


@dataclass(frozen=True)
class Limit:
    """Limit of ``most`` attempts with one key (see :func:`_key`) within :data:`WINDOW`."""

    key: str
    most: int


def of_sign_in(request: HttpRequest, name: str) -> list[Limit]:
    """Ten for a browser that has signed in to the account before.

    For all others those of :func:`of_account`, and thirty per network.
    """
    if device := known_device(request, name):
        return [Limit(_key("device", device), 10)]
    network = networks.address_of(request)
    return [*of_account(name, network), Limit(_key("address", network), 30)]


def of_account(name: str, network: str) -> list[Limit]:
    """Ten from one network and a hundred from all of its kind, however the name is typed.

    A network is known whichever member has signed in from it, so the answer does not tell whose
    account exists.
    """
    account = _account(name)
    kind = _FROM_KNOWN if networks.is_known(network) else _ELSEWHERE
    return [Limit(account + _key("network", network)[:20], 10), Limit(account + kind, 100)]


def of_second_factor(user: User) -> list[Limit]:
    """Five codes per account: anyone who gets this far knows the password."""
    return [Limit(_key("factor", str(user.pk)), 5)]


def of_code(user: User, code: str) -> Limit:
    """Each code works once: an app shows it for less than :data:`WINDOW`."""
    return Limit(_key("code", f"{user.pk}:{code}"), 1)


def of_beginning(request: HttpRequest) -> list[Limit]:
    """150 sign-ins by passkey or single sign-on started per address: each creates a session."""
    return [Limit(_key("beginning", networks.address_of(request)), 150)]


def of_forgotten(request: HttpRequest) -> list[Limit]:
    """Five password reset e-mails per address."""
    return [Limit(_key("forgotten", networks.address_of(request)), 5)]


def of_new_address(user: User) -> Limit:
    """Five confirmation e-mails per account."""
    return Limit(_key("new address", str(user.pk)), 5)


def take(limits: Sequence[Limit]) -> int:
    """Count an attempt, unless it exceeds one of the limits.

    It is stored before it is counted, not in the same transaction: in PostgreSQL, parallel attempts
    would not see each other, and all would pass.

    Returns:
        Seconds until the next attempt is allowed; 0 if this one is.
    """
    now = timezone.now()
    Attempt.objects.filter(at__lte=now - WINDOW).delete()
    made = Attempt.objects.bulk_create(Attempt(key=limit.key, at=now) for limit in limits)
    wait = max(_wait_seconds(limit) for limit in limits)
    if wait:  # refused attempts do not count: or someone who keeps trying would wait forever
        Attempt.objects.filter(pk__in=[attempt.pk for attempt in made]).delete()
    return wait


def was_right(limits: Sequence[Limit]) -> None:
    """Undo the attempt just counted, since the password was right.

    The first count restarts: of the account and network, or of the device. The others do not:
    otherwise anyone with an account could guess other members' passwords forever, signing in to
    their own in between.
    """
    first, *others = limits
    Attempt.objects.filter(key=first.key).delete()
    for limit in others:
        latest = Attempt.objects.filter(key=limit.key).order_by("-at", "-pk").first()
        if latest:
            latest.delete()


def forget(name: str) -> None:
    """Forget the wrong passwords of an account, from every network."""
    Attempt.objects.filter(key__startswith=_account(name)).delete()


def is_full(limit: Limit) -> bool:
    """Whether the next attempt would exceed it."""
    return Attempt.objects.filter(key=limit.key).count() >= limit.most


def _wait_seconds(limit: Limit) -> int:
    """Until the oldest attempt that fills the limit leaves the window."""
    attempts = Attempt.objects.filter(key=limit.key).order_by("-at", "-pk")
    times = list(attempts.values_list("at", flat=True)[: limit.most + 1])
    if len(times) <= limit.most:
        return 0
    return max(1, math.ceil((times[-1] + WINDOW - timezone.now()).total_seconds()))


def _account(name: str) -> str:
    """The prefix of the keys of an account's attempts."""
    return _key("account", folded(name))[:20]


def _key(kind: str, who: str) -> str:
    digest = salted_hmac("memorymark.throttle", f"{kind}:{who}", algorithm="sha256").hexdigest()
    return digest[:40]


class BoundedGuesses(ABC):
    """Mixin before a form view that checks a password or code: each attempt counts.

    Attributes:
        wrong: The metrics' name for a wrong guess.
    """

    request: HttpRequest
    wrong = "wrong_password"

    @abstractmethod
    def limits(self) -> Sequence[Limit]:
        """The limits that apply; the first restarts at a right guess."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Check the guess, unless there have been too many wrong ones."""
        if seconds := take(self.limits()):
            count_sign_in_failure("too_many")
            return too_many(request, seconds)
        response: HttpResponse = super().post(request, *args, **kwargs)  # type: ignore[misc]  # of the view
        return response

    def form_invalid(self, form: Any) -> HttpResponse:
        count_sign_in_failure(self.wrong)
        response: HttpResponse = super().form_invalid(form)  # type: ignore[misc]  # of the view
        return response

    def form_valid(self, form: Any) -> HttpResponse:
        was_right(self.limits())
        response: HttpResponse = super().form_valid(form)  # type: ignore[misc]  # of the view
        return response


def too_many(request: HttpRequest, seconds: int) -> HttpResponse:
    """Refuse with the time to wait."""
    response = render(request, "accounts/too_many.html", {"minutes": -(-seconds // 60)}, status=429)
    response["Retry-After"] = str(seconds)
    return response
