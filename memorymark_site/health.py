"""Health: is everything there that an analysis needs? Answers without login, no secrets.

Whether this one process lives and can serve is another question: :mod:`memorymark_site.probes`.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from django import db
from django.contrib.auth.decorators import login_not_required
from django.db import connection
from django.db.models import Min
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.utils.cache import add_never_cache_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from analyses import selectors
from analyses.api.catalogue import NodeSerializer, node_facts
from analyses.api.schema import described
from analyses.models import Analysis, Status

logger = logging.getLogger(__name__)


class QueueSerializer(serializers.Serializer[Any]):
    """The analyses that wait and run."""

    waiting = serializers.IntegerField()
    running = serializers.IntegerField()
    oldest_waiting_seconds = serializers.FloatField(allow_null=True)
    stands_still = serializers.BooleanField(help_text="Whether nobody takes what waits.")


class HealthSerializer(serializers.Serializer[Any]):
    """Whether an analysis submitted now would be worked on, and by what."""

    status = serializers.ChoiceField(["ok", "failing"])
    problems = serializers.ListField(child=serializers.CharField())
    time = serializers.DateTimeField(help_text="Of the server.")
    database = serializers.ChoiceField(["ok", "down"])
    queue = QueueSerializer(required=False)
    nodes = NodeSerializer(many=True, required=False, help_text="Those online.")
    nodes_with_gpu = serializers.IntegerField(required=False)
    gpu_available = serializers.BooleanField(
        required=False, help_text="Whether something can be measured on a GPU now."
    )
    gpu_name = serializers.CharField(
        required=False, allow_null=True, help_text="Of the first node online that has one."
    )
    gpu_total_bytes = serializers.IntegerField(required=False, allow_null=True)
    device = serializers.ChoiceField(
        ["cuda", "cpu"], required=False, help_text="What the lab can measure on."
    )


@login_not_required
@never_cache
@require_safe
def health(_request: HttpRequest) -> JsonResponse:
    """200 if an analysis submitted now would be worked on; 503, and what is missing, if not."""
    body, status = _report()
    return JsonResponse(body, status=status)


class Health(APIView):
    """The same for scripts, described in the schema."""

    authentication_classes = ()
    permission_classes = ()
    throttle_classes = ()

    @described(responses={200: HealthSerializer, 503: HealthSerializer}, auth=[])
    def get(self, _request: Request) -> Response:
        """Say whether an analysis submitted now would be worked on. Open to all, without a token.

        503 says in `problems` what is missing.
        """
        body, status = _report()
        response = Response(body, status)
        add_never_cache_headers(response)
        return response


def _report() -> tuple[dict[str, Any], int]:
    problems: list[str] = []
    body: dict[str, Any] = {"time": timezone.now().isoformat(), "database": "ok"}
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
    return body, 503 if problems else 200


def _lab() -> dict[str, Any]:
    waiting = Analysis.objects.filter(status=Status.QUEUED)
    oldest: datetime | None = waiting.aggregate(oldest=Min("queued_at"))["oldest"]
    nodes = [node_facts(node) for node in selectors.nodes_online()]
    gpus = [node["gpu"] for node in nodes if node["gpu"] is not None]
    return {
        "queue": {
            "waiting": waiting.count(),
            "running": Analysis.objects.filter(status=Status.RUNNING).count(),
            "oldest_waiting_seconds": (timezone.now() - oldest).total_seconds() if oldest else None,
            "stands_still": selectors.queue_stands_still(),
        },
        "nodes": nodes,
        "nodes_with_gpu": len(gpus),
        "gpu_available": bool(gpus),
        "gpu_name": gpus[0]["name"] if gpus else None,
        "gpu_total_bytes": gpus[0]["total_bytes"] if gpus else None,
        "device": "cuda" if gpus else "cpu",
    }
