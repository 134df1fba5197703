"""How often one may try a password or a code: per account and per address, counted in the database.

Each attempt is written down before the password is looked at, so that many at once count too, and
forgotten where it was right. What is stored is a keyed digest: neither names nor addresses, nor
the password somebody has typed into the wrong field.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv6Address, ip_address, ip_network

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import salted_hmac

from memorymark_site.accounts.models import Attempt
from memorymark_site.accounts.names import folded

WINDOW = timedelta(minutes=15)

_WITH_PORT = re.compile(r"([\d.]+|\[[^\]]*\]):\d+")


@dataclass(frozen=True)
class Limit:
    """At most so many attempts of one key within :data:`WINDOW`.

    Attributes:
        key: Whose attempts; what :func:`_key` makes.
        most: How many.
    """

    key: str
    most: int


def of_sign_in(request: HttpRequest, name: str) -> list[Limit]:
    """Ten for the account that somebody names, thirty for the address they come from."""
    return [of_account(name), Limit(_key("address", address_of(request)), 30)]


def of_account(name: str) -> Limit:
    """The limit of one account, however its name is typed."""
    return Limit(_key("account", folded(name)), 10)


def of_second_factor(user: User) -> list[Limit]:
    """Five codes for one account: who gets to guess them knows its password."""
    return [Limit(_key("factor", str(user.pk)), 5)]


def of_code(user: User, code: str) -> Limit:
    """Once for each code, written as it is compared: it is shown for less than :data:`WINDOW`."""
    return Limit(_key("code", f"{user.pk}:{code}"), 1)


def of_beginning(request: HttpRequest) -> list[Limit]:
    """150 sign-ins by passkey or single sign-on begun from one address: each leaves a session."""
    return [Limit(_key("beginning", address_of(request)), 150)]


def of_forgotten(request: HttpRequest) -> list[Limit]:
    """Five e-mails for a new password for one address."""
    return [Limit(_key("forgotten", address_of(request)), 5)]


def of_new_address(user: User) -> Limit:
    """Five e-mails to addresses that an account wants for its own."""
    return Limit(_key("new address", str(user.pk)), 5)


def take(limits: Sequence[Limit]) -> int:
    """Count an attempt, unless it is one too many for one of the limits.

    It is stored before it is counted, not in one transaction with that: in PostgreSQL, many at once
    would not see each other, and all go on.

    Returns:
        Seconds until there may be another; 0 where this one may go on.
    """
    now = timezone.now()
    Attempt.objects.filter(at__lte=now - WINDOW).delete()
    made = Attempt.objects.bulk_create(Attempt(key=limit.key, at=now) for limit in limits)
    wait = max(_wait_seconds(limit) for limit in limits)
    if wait:  # what is refused does not count: else who goes on trying would wait for ever
        Attempt.objects.filter(pk__in=[attempt.pk for attempt in made]).delete()
    return wait


def was_right(limits: Sequence[Limit]) -> None:
    """Take back the attempt that was just counted, since the password was right.

    The count of the account starts anew. That of the address does not: else who has one account
    could try as many passwords of others as they like, with their own in between.
    """
    account, *others = limits
    forget(account)
    for limit in others:
        latest = Attempt.objects.filter(key=limit.key).order_by("-at", "-pk").first()
        if latest:
            latest.delete()


def forget(limit: Limit) -> None:
    """Start counting anew."""
    Attempt.objects.filter(key=limit.key).delete()


def address_of(request: HttpRequest) -> str:
    """The network that a request comes from: an IPv4 address, or the /64 of an IPv6 one.

    Behind the proxy that ``MEMORYMARK_HTTPS`` trusts, it is what the proxy itself has seen, which
    it puts last; what stands before that may be anybody's invention.
    """
    seen = str(request.META.get("REMOTE_ADDR", ""))
    if settings.SECURE_PROXY_SSL_HEADER:
        seen = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip() or seen
    if with_port := _WITH_PORT.fullmatch(seen):  # some proxies write it; it changes
        seen = with_port[1].strip("[]")
    try:
        address = ip_address(seen)
    except ValueError:
        return seen
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:  # how a server that listens on :: sees who comes by IPv4
            return str(address.ipv4_mapped)
        return str(ip_network((int(address), 64), strict=False))
    return str(address)


def _wait_seconds(limit: Limit) -> int:
    """Until the oldest of the attempts that fill the limit is out of the window."""
    attempts = Attempt.objects.filter(key=limit.key).order_by("-at", "-pk")
    times = list(attempts.values_list("at", flat=True)[: limit.most + 1])
    if len(times) <= limit.most:
        return 0
    return max(1, math.ceil((times[-1] + WINDOW - timezone.now()).total_seconds()))


def _key(kind: str, who: str) -> str:
    digest = salted_hmac("memorymark.throttle", f"{kind}:{who}", algorithm="sha256").hexdigest()
    return digest[:40]
