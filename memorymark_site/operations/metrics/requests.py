"""How many requests are answered and how long that takes, added up over the site's processes.

Each process counts in files of its own in a folder that they share (prometheus-client's way), which
:mod:`memorymark_site.gunicorn_conf` makes for one start of the site. Without the folder, as in a
test, one process counts for itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter

from django.conf import settings
from django.core.exceptions import MiddlewareNotUsed
from django.http import HttpRequest, HttpResponseBase
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder; prometheus-client reads it when it is imported."""

SECONDS = Histogram(
    "memorymark_http_request_seconds",
    "Time to answer a request, by the class of its status",
    ["status"],
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    registry=None,
)


class RequestMetricsMiddleware:
    """Counts and times what the site answers; stands first, and only where metrics are on."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        if not settings.METRICS_TOKEN:
            raise MiddlewareNotUsed
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The response, unchanged."""
        begun = perf_counter()
        response = self.get_response(request)
        SECONDS.labels(f"{response.status_code // 100}xx").observe(perf_counter() - begun)
        return response


def register_in(registry: CollectorRegistry) -> None:
    """Add what all processes have counted."""
    if FOLDER in os.environ:
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # prometheus_client has no annotation there
    else:
        registry.register(SECONDS)
