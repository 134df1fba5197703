"""``/health``: is everything there that an analysis needs? Answers without login, no secrets."""

import logging
from datetime import datetime
from typing import Any

from django import db
from django.contrib.auth.decorators import login_not_required
from django.db import connection
from django.db.models import Min
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from analyses import selectors
from analyses.api.catalogue import node_facts
from analyses.models import Analysis, Status

logger = logging.getLogger(__name__)


@login_not_required
@never_cache
@require_safe
def health(_request: HttpRequest) -> JsonResponse:
    """200 if an analysis submitted now would be worked on; 503, and what is missing, if not."""
    problems: list[str] = []
    body: dict[str, Any] = {"database": "ok"}
    try:
        body |= _lab()
    except db.Error:
        logger.exception("health: the database does not answer")
        connection.close()
        body["database"] = "down"
        problems.append("the database does not answer")
    else:
        if not body["nodes"]:
            problems.append("no worker is alive; start one with: make worker")
        elif body["queue"]["stands_still"]:
            problems.append("no worker takes what waits; if this lasts a minute, restart them")
    body = {"status": "failing" if problems else "ok", "problems": problems} | body
    return JsonResponse(body, status=503 if problems else 200)


def _lab() -> dict[str, Any]:
    waiting = Analysis.objects.filter(status=Status.QUEUED)
    oldest: datetime | None = waiting.aggregate(oldest=Min("queued_at"))["oldest"]
    nodes = [node_facts(node) for node in selectors.nodes_online()]
    return {
        "queue": {
            "waiting": waiting.count(),
            "running": Analysis.objects.filter(status=Status.RUNNING).count(),
            "oldest_waiting_seconds": (timezone.now() - oldest).total_seconds() if oldest else None,
            "stands_still": selectors.queue_stands_still(),
        },
        "nodes": nodes,
        "nodes_with_gpu": sum(node["gpu"] is not None for node in nodes),
    }
