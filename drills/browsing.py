"""Requests a lab's pages and times them, in a process with the lab's settings."""

from __future__ import annotations

from itertools import islice
from time import perf_counter
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpResponseBase
from django.test import Client
from django.urls import reverse

from analyses.models import Analysis, Status

_PER_PAGE, _PER_API_PAGE = 25, 50
_FIRST_LINES = 20


def seconds(pages: dict[str, tuple[str, str]], times: int) -> dict[str, list[float]]:
    """Time each page several times, after one request to warm up.

    Args:
        pages: View name and query string by page. ``{last}`` and ``{last_of_api}`` stand for the
            number of the last page, ``{two}`` and ``{ten}`` for that many analysis ids.
        times: Timed requests per page.
    """
    browser = Client(SERVER_NAME="localhost")
    browser.force_login(User.objects.get(username="member-0"))
    addresses = _addresses(pages)
    return {
        name: [_seconds(browser, address) for _ in range(times + 1)][1:]
        for name, address in addresses.items()
    }


def downloads(files: dict[str, tuple[str, str]]) -> dict[str, dict[str, float]]:
    """Measure how long each whole file takes (seconds), and its size (bytes)."""
    browser = Client(SERVER_NAME="localhost")
    browser.force_login(User.objects.get(username="member-0"))
    found = {}
    for name, address in _addresses(files).items():
        begun = perf_counter()
        response: HttpResponseBase = browser.get(address)
        size = sum(len(part) for part in response)
        found[name] = {"seconds": perf_counter() - begun, "bytes": size}
    return found


def _addresses(pages: dict[str, tuple[str, str]]) -> dict[str, str]:
    count = Analysis.objects.count()
    answered = Analysis.objects.filter(status=Status.SUCCEEDED, pk__gt=count // 2)
    some = list(answered.order_by("pk").values_list("pk", flat=True)[:10])
    values = {
        "last": -(-count // _PER_PAGE),
        "last_of_api": -(-count // _PER_API_PAGE),
        "two": ",".join(map(str, some[:2])),
        "ten": ",".join(map(str, some)),
    }
    addresses = {}
    for name, (page, query) in pages.items():
        arguments: list[Any] = some[:1] if page.endswith("detail") else []
        addresses[name] = f"{reverse(page, args=arguments)}?{query.format(**values)}"
    return addresses


def _seconds(browser: Client, address: str) -> float:
    begun = perf_counter()
    response: HttpResponseBase = browser.get(address)
    if response.streaming:
        list(islice(response, _FIRST_LINES))
    taken = perf_counter() - begun
    response.close()
    if response.status_code != 200:
        raise RuntimeError(f"{address} answered {response.status_code}")
    return taken
