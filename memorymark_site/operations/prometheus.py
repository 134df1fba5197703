"""``/metrics``: numbers about requests and the lab, as Prometheus reads them.

Each process counts requests in files of a shared folder, which
:mod:`memorymark_site.gunicorn_conf` creates at each start. Without it, as in a test, one process
counts for itself. The lab's numbers come from the collectors in ``METRICS_COLLECTORS``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from time import perf_counter

from django import db
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import MiddlewareNotUsed
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.utils.crypto import constant_time_compare
from django.utils.module_loading import import_string
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

logger = logging.getLogger(__name__)

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder; prometheus-client reads it when it is imported."""

SECONDS = Histogram(
    "memorymark_http_request_seconds",
    "Time to answer a request, by the class of its status",
    ["status"],
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    registry=None,
)


VIEW_SECONDS = Histogram(
    "memorymark_view_seconds",
    "Time to answer a request, by the name of its view",
    ["view"],
    buckets=(0.1, 0.3, 1, 3, 10),
    registry=None,
)
SIGN_IN_FAILURES = Counter(
    "memorymark_sign_in_failures",
    "Sign-ins and confirmations that failed: something was wrong, or there were too many",
    ["reason"],
    registry=None,
)
_OF_ALL_PROCESSES = (SECONDS, VIEW_SECONDS, SIGN_IN_FAILURES)


class RequestMetricsMiddleware:
    """Counts and times responses; comes first, and only if metrics are on."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        if not settings.METRICS_TOKEN:
            raise MiddlewareNotUsed
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        begun = perf_counter()
        response = self.get_response(request)
        seconds = perf_counter() - begun
        SECONDS.labels(f"{response.status_code // 100}xx").observe(seconds)
        found = request.resolver_match  # none for static files and unknown addresses
        VIEW_SECONDS.labels(found.view_name if found else "none").observe(seconds)
        return response


def count_sign_in_failure(reason: str) -> None:
    """Count one, if metrics are on.

    Args:
        reason: ``wrong_password``, ``wrong_code``, ``wrong_passkey`` or ``too_many``.
    """
    if settings.METRICS_TOKEN:
        SIGN_IN_FAILURES.labels(reason).inc()


def register_in(registry: CollectorRegistry) -> None:
    """Add the counts of all processes."""
    if FOLDER in os.environ:
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # prometheus_client has no annotation there
    else:
        for metric in _OF_ALL_PROCESSES:
            registry.register(metric)


def has_metrics_token(request: HttpRequest) -> bool:
    """Whether a request proves to come from what watches the site."""
    given = request.headers.get("Authorization", "")
    wanted = f"Bearer {settings.METRICS_TOKEN}"
    return bool(settings.METRICS_TOKEN) and constant_time_compare(given, wanted)


@csrf_exempt  # it changes nothing: another method is a 405, not a form that has expired
@login_not_required
@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """All metrics, for requests with the token; without one set, the page does not exist."""
    if not settings.METRICS_TOKEN:
        raise Http404
    if not has_metrics_token(request):
        return HttpResponse(
            "Send the header: Authorization: Bearer MEMORYMARK_METRICS_TOKEN\n",
            status=401,
            content_type="text/plain",
            headers={"WWW-Authenticate": "Bearer"},
        )
    registry = CollectorRegistry(auto_describe=False)
    register_in(registry)
    try:
        for path in settings.METRICS_COLLECTORS:
            registry.register(import_string(path)())
        body = generate_latest(registry)
    except db.Error:
        logger.exception("metrics: the database does not answer")
        connection.close()
        return HttpResponse(
            "The database does not answer.\n", status=503, content_type="text/plain"
        )
    return HttpResponse(body, content_type=CONTENT_TYPE_LATEST)
