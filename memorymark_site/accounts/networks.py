"""The network that a request comes from, and those that members have signed in from.

Someone guessing at an account from many networks is stopped without stopping its owner on a new
browser in the lab. Stored as keyed digests, which are no addresses.
"""

from __future__ import annotations

import re
from datetime import timedelta
from ipaddress import IPv6Address, ip_address, ip_network

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import salted_hmac

from memorymark_site.accounts.models import KnownNetwork

KEPT = timedelta(days=180)

_WITH_PORT = re.compile(r"([\d.]+|\[[^\]]*\]):\d+")


def remember(request: HttpRequest) -> None:
    """Make the network known as one that a member has signed in from."""
    now = timezone.now()
    KnownNetwork.objects.filter(at__lte=now - KEPT).delete()
    KnownNetwork.objects.update_or_create(digest=_digest(address_of(request)), defaults={"at": now})


def is_known(network: str) -> bool:
    """Whether a member has signed in from it within :data:`KEPT`."""
    since = timezone.now() - KEPT
    return KnownNetwork.objects.filter(digest=_digest(network), at__gt=since).exists()


def address_of(request: HttpRequest) -> str:
    """The network that a request comes from: an IPv4 address, or the /64 of an IPv6 one.

    Behind the proxy that ``MEMORYMARK_HTTPS`` trusts, it is the last address in X-Forwarded-For,
    which the proxy saw itself; the client may have invented those before it.
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
        if address.ipv4_mapped:  # IPv4, as seen by a server that listens on ::
            return str(address.ipv4_mapped)
        return str(ip_network((int(address), 64), strict=False))
    return str(address)


def _digest(network: str) -> str:
    return salted_hmac("memorymark.network", network, algorithm="sha256").hexdigest()
