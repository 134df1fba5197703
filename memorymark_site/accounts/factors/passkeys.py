"""Where passkeys work.

A passkey belongs to the name under which the site was opened. Browsers have them on pages that come
over HTTPS, or from this very machine by the name ``localhost``, and never under an IP address.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from django.http import HttpRequest

THIS_MACHINE = "localhost"


def passkeys_work(request: HttpRequest) -> bool:
    """Whether browsers offer passkeys where the site was opened."""
    host = _opened_at(request).hostname or ""
    return host == THIS_MACHINE or (request.is_secure() and not _is_address(host))


def where_they_work(request: HttpRequest) -> str:
    """The same page where they work; empty where that takes a name and a certificate."""
    opened_at = _opened_at(request)
    host = opened_at.hostname or ""
    if not _is_address(host) or not ip_address(host).is_loopback:
        return ""
    port = f":{opened_at.port}" if opened_at.port else ""
    return f"http://{THIS_MACHINE}{port}{request.path}"


def _opened_at(request: HttpRequest) -> SplitResult:
    return urlsplit(f"//{request.get_host()}")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
