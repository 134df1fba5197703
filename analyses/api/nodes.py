"""The lab's nodes, and ``/health``: whether an analysis submitted now would be worked on.

``/health`` needs no login, and shows those without a token states and counts only.
:mod:`memorymark_site.probes` reports whether this one process can serve.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import asdict
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
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe
from rest_framework import serializers
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from analyses.api.schema import described, results_of
from analyses.api.views import ApiView
from analyses.gpus.self_checks import Shown, shown
from analyses.jobs import lab_state
from analyses.jobs.keys import WRONG_KEY, problem_of
from analyses.models import Analysis, CheckState, Node, Status
from memorymark_site.accounts.tokens import TokenAuthentication
from memorymark_site.environment import START_WORKER
from memorymark_site.operations.data_folder import not_writable
from memorymark_site.operations.database import need_response
from memorymark_site.operations.prometheus import has_metrics_token

logger = logging.getLogger(__name__)


class NodeGpuSerializer(serializers.Serializer[Any]):
    """The GPU of a node, as its driver reports it."""

    name = serializers.CharField()
    total_bytes = serializers.IntegerField(allow_null=True)
    driver = serializers.CharField()


class SelfCheckProblemSerializer(serializers.Serializer[Any]):
    """Something that does not run on a node, or could not be measured."""

    what = serializers.CharField()
    reason = serializers.CharField(help_text="In one line.")
    advice = serializers.CharField(help_text="What to do.")


class SelfCheckSerializer(serializers.Serializer[Any]):
    """A node's measurements of itself, used in predictions for its GPU."""

    state = serializers.ChoiceField([f"{state}" for state in CheckState])
    sentence = serializers.CharField(help_text="How far its predictions are right.")
    checked_at = serializers.DateTimeField(allow_null=True)
    memory_error = serializers.FloatField(
        allow_null=True, help_text="The largest error of predicted memory, as a share."
    )
    time_error = serializers.FloatField(
        allow_null=True, help_text="The same of predicted step times."
    )
    context_bytes = serializers.IntegerField(
        allow_null=True, help_text="Of the CUDA context and cuBLAS, measured."
    )
    launch_seconds = serializers.FloatField(
        allow_null=True, help_text="To launch an operation of a training step, measured."
    )
    problems = SelfCheckProblemSerializer(many=True)


class NodeSerializer(serializers.Serializer[Any]):
    """A machine whose worker runs analyses."""

    name = serializers.CharField()
    heartbeat_at = serializers.DateTimeField(help_text="Its last heartbeat.")
    gpu = NodeGpuSerializer(allow_null=True)
    memory_bytes = serializers.IntegerField(allow_null=True)
    versions = serializers.DictField(help_text="Of the software on it, by name.")
    environments = serializers.DictField(
        child=serializers.DictField(child=serializers.CharField()),
        help_text="Other software that it offers: values of the field `software`, and versions.",
    )
    draining = serializers.BooleanField(help_text="Whether it takes no new work.")
    problem = serializers.CharField(help_text="Why it cannot work; empty if it can.")
    self_check = SelfCheckSerializer()
    analyses = serializers.ListField(
        child=serializers.IntegerField(), help_text="The ids of those it is working on."
    )


class NodeList(ApiView[Node]):
    """The machines whose workers run analyses."""

    serializer_class = NodeSerializer

    @described(responses=results_of(NodeSerializer, "Nodes"))
    def get(self, _request: Request) -> Response:
        """List the lab's nodes, those online first, with their hardware and current work."""
        facts = [_node_facts(node, at_work) for node, at_work in lab_state.nodes()]
        return Response({"results": self.get_serializer(facts, many=True).data})


def _node_facts(node: Node, at_work: Iterable[Analysis] = ()) -> dict[str, Any]:
    gpu = {"name": node.gpu_name, "total_bytes": node.gpu_total_bytes, "driver": node.driver}
    return {
        "name": node.name,
        "heartbeat_at": node.heartbeat_at.isoformat(),
        "gpu": gpu if node.gpu_name else None,
        "memory_bytes": node.memory_bytes,
        "versions": node.versions,
        "environments": node.environments,
        "draining": node.draining,
        "problem": problem_of(node),
        "self_check": _self_check_facts(shown(node)),
        "analyses": [analysis.pk for analysis in at_work],
    }


def _self_check_facts(found: Shown) -> dict[str, Any]:
    check = found.check
    return {
        "state": f"{found.state}",
        "sentence": found.sentence,
        "checked_at": check and check.when,
        "memory_error": check and check.memory_error,
        "time_error": check and check.time_error,
        "context_bytes": check and check.context_bytes,
        "launch_seconds": check and check.step_launch_seconds,
        "problems": [asdict(problem) for problem in found.problems],
    }


class QueueSerializer(serializers.Serializer[Any]):
    """The analyses that are waiting and running."""

    waiting = serializers.IntegerField()
    running = serializers.IntegerField()
    oldest_waiting_seconds = serializers.FloatField(allow_null=True)
    stands_still = serializers.BooleanField(
        help_text="Whether work is waiting and no worker takes it."
    )


class HealthSerializer(serializers.Serializer[Any]):
    """Whether an analysis submitted now would be worked on, and by what."""

    status = serializers.ChoiceField(["ok", "failing"])
    problems = serializers.ListField(child=serializers.CharField())
    time = serializers.DateTimeField(help_text="Of the server.")
    database = serializers.ChoiceField(["ok", "down"])
    queue = QueueSerializer(required=False)
    nodes_online = serializers.IntegerField(
        required=False, help_text="Nodes with a live worker and the site's SECRET_KEY."
    )
    nodes_with_wrong_key = serializers.IntegerField(
        required=False, help_text="Nodes with a live worker and another SECRET_KEY."
    )
    nodes = NodeSerializer(
        many=True, required=False, help_text="Both; only with a token, as GPU and memory."
    )
    nodes_with_gpu = serializers.IntegerField(required=False)
    gpu_available = serializers.BooleanField(
        required=False, help_text="Whether something can be measured on a GPU now."
    )
    gpu_name = serializers.CharField(
        required=False, allow_null=True, help_text="Of the first online node that has one."
    )
    gpu_total_bytes = serializers.IntegerField(required=False, allow_null=True)
    device = serializers.ChoiceField(
        ["cuda", "cpu"], required=False, help_text="What the lab can measure on."
    )


@csrf_exempt  # it changes nothing: another method is a 405, not a form that has expired
@login_not_required
@never_cache
@require_safe
def health(request: HttpRequest) -> JsonResponse:
    body, status = _report(request)
    return JsonResponse(body, status=status)


class Health(APIView):
    """The same for scripts, described in the schema."""

    authentication_classes = ()
    permission_classes = ()
    throttle_classes = ()

    @described(responses={200: HealthSerializer, 503: HealthSerializer}, auth=[])
    def get(self, request: Request) -> Response:
        """Report whether an analysis submitted now would be worked on. No token is needed.

        With 503, `problems` says what is missing. With a member's token, or the one for metrics,
        it also has the nodes and the GPU.
        """
        body, status = _report(request._request)
        response = Response(body, status)
        add_never_cache_headers(response)
        return response


def _report(request: HttpRequest) -> tuple[dict[str, Any], int]:
    problems: list[str] = []
    body: dict[str, Any] = {"time": timezone.now().isoformat(), "database": "ok"}
    try:
        need_response(connection)
        body |= _lab(is_trusted=_is_trusted(request))
    except db.Error:
        logger.exception("health: the database does not respond")
        connection.close()
        body["database"] = "down"
        problems.append("the database does not respond")
    else:
        if not body["nodes_online"]:
            problems.append(_why_none(body))
        elif body["queue"]["stands_still"]:
            problems.append("no worker takes waiting work; if this lasts a minute, restart them")
    if why := not_writable():
        problems.append(f"the data folder cannot be written to: {why}")
    body = {"status": "failing" if problems else "ok", "problems": problems} | body
    return body, 503 if problems else 200


def _why_none(body: dict[str, Any]) -> str:
    """Why no node can be counted on; names are for those with a token."""
    if not body["nodes_with_wrong_key"]:
        return f"no worker is online; start one with: {START_WORKER}"
    named = [node["name"] for node in body.get("nodes", ()) if node["problem"] == WRONG_KEY]
    who = f": {', '.join(named)}" if named else ""
    return f"no worker with the site's SECRET_KEY is online, but one with another is{who}"


def _is_trusted(request: HttpRequest) -> bool:
    """Whether a token came along, of a member or for metrics; no session is read for this."""
    try:
        return has_metrics_token(request) or bool(TokenAuthentication().authenticate(request))
    except AuthenticationFailed:
        return False


def _lab(*, is_trusted: bool) -> dict[str, Any]:
    waiting = Analysis.objects.filter(status=Status.QUEUED)
    oldest: datetime | None = waiting.aggregate(oldest=Min("queued_at"))["oldest"]
    nodes = [_node_facts(node) for node in lab_state.nodes_alive()]
    online = [node for node in nodes if node["problem"] != WRONG_KEY]
    gpus = [node["gpu"] for node in online if node["gpu"] is not None]
    named = {
        "nodes": nodes,
        "gpu_name": gpus[0]["name"] if gpus else None,
        "gpu_total_bytes": gpus[0]["total_bytes"] if gpus else None,
    }
    return {
        "queue": {
            "waiting": waiting.count(),
            "running": Analysis.objects.filter(status=Status.RUNNING).count(),
            "oldest_waiting_seconds": (timezone.now() - oldest).total_seconds() if oldest else None,
            "stands_still": lab_state.queue_stands_still(),
        },
        "nodes_online": len(online),
        "nodes_with_wrong_key": len(nodes) - len(online),
        "nodes_with_gpu": len(gpus),
        "gpu_available": bool(gpus),
        "device": "cuda" if gpus else "cpu",
        **(named if is_trusted else {}),
    }
