"""The page that Prometheus reads."""

from __future__ import annotations

import logging

from django import db
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from memorymark_site.operations.metrics import requests
from memorymark_site.operations.metrics.lab import LabCollector

logger = logging.getLogger(__name__)


@login_not_required
@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """All figures, for who has the token; there is no such page while none is set."""
    if not settings.METRICS_TOKEN:
        raise Http404
    given = request.headers.get("Authorization", "")
    if not constant_time_compare(given, f"Bearer {settings.METRICS_TOKEN}"):
        return HttpResponse(
            "Send the header: Authorization: Bearer MEMORYMARK_METRICS_TOKEN\n",
            status=401,
            content_type="text/plain",
            headers={"WWW-Authenticate": "Bearer"},
        )
    registry = CollectorRegistry(auto_describe=False)
    requests.register_in(registry)
    try:
        registry.register(LabCollector())
        body = generate_latest(registry)
    except db.Error:
        logger.exception("metrics: the database does not answer")
        connection.close()
        return HttpResponse(
            "The database does not answer.\n", status=503, content_type="text/plain"
        )
    return HttpResponse(body, content_type=CONTENT_TYPE_LATEST)
