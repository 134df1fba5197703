"""What there is to choose from: models, GPUs, and the lab's nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from analyses import selectors
from analyses.api.dataclass_serializers import serializer_of
from analyses.api.schema import described, results_of
from analyses.api.views import ApiView
from analyses.lab.selectors import HeldPrice, prices
from analyses.models import Analysis, Node
from engine.gpus import GPUS, Gpu
from engine.models.presets import PRESETS, Preset


class NodeGpuSerializer(serializers.Serializer[Any]):
    """The GPU of a node, as its driver tells it."""

    name = serializers.CharField()
    total_bytes = serializers.IntegerField(allow_null=True)
    driver = serializers.CharField()


class NodeSerializer(serializers.Serializer[Any]):
    """A machine whose worker runs analyses."""

    name = serializers.CharField()
    heartbeat_at = serializers.DateTimeField(help_text="Its last sign of life.")
    gpu = NodeGpuSerializer(allow_null=True)
    memory_bytes = serializers.IntegerField(allow_null=True)
    versions = serializers.DictField(help_text="What runs there.")
    draining = serializers.BooleanField(help_text="It takes nothing new.")
    problem = serializers.CharField(help_text="What keeps it from working; empty if nothing does.")
    analyses = serializers.ListField(
        child=serializers.IntegerField(), help_text="The ids of those it is working on."
    )


class NodeList(ApiView[Node]):
    """The lab's nodes: machines whose workers run analyses."""

    serializer_class = NodeSerializer

    @described(responses=results_of(NodeSerializer, "Nodes"))
    def get(self, _request: Request) -> Response:
        """List the lab's nodes, those online first, with what each has and does."""
        facts = [node_facts(node, at_work) for node, at_work in selectors.nodes()]
        return Response({"results": self.get_serializer(facts, many=True).data})


ModelSerializer = serializer_of(Preset, name="Model")


class ModelList(ApiView[Any]):
    """The models that can be analysed by name."""

    serializer_class = ModelSerializer

    @described(responses=results_of(ModelSerializer, "Models"))
    def get(self, _request: Request) -> Response:
        """List the models that go by a name. Any other goes by its hub id or its config."""
        return Response({"results": self.get_serializer(list(PRESETS.values()), many=True).data})


class GpuSerializer(serializer_of(Gpu)):  # type: ignore[misc]  # made from a data class
    """A kind of GPU, each figure with its source, and what it costs."""

    catalogue_price_per_hour_usd = serializers.FloatField(
        help_text="The catalogue's own, where an admin has set another."
    )


class GpuList(ApiView[Any]):
    """The GPUs that can be predicted for."""

    serializer_class = GpuSerializer

    @described(responses=results_of(GpuSerializer, "Gpus"))
    def get(self, _request: Request) -> Response:
        """List the catalogue of GPUs, each figure with its source, and the price that holds."""
        held = prices(GPUS)
        facts = [gpu_facts(gpu, held[gpu.name]) for gpu in GPUS.values()]
        return Response({"results": self.get_serializer(facts, many=True).data})


def node_facts(node: Node, at_work: Iterable[Analysis] = ()) -> dict[str, Any]:
    """A node as the API and ``/health`` show it."""
    gpu = {"name": node.gpu_name, "total_bytes": node.gpu_total_bytes, "driver": node.driver}
    return {
        "name": node.name,
        "heartbeat_at": node.heartbeat_at.isoformat(),
        "gpu": gpu if node.gpu_name else None,
        "memory_bytes": node.memory_bytes,
        "versions": node.versions,
        "draining": node.draining,
        "problem": node.problem,
        "analyses": [analysis.pk for analysis in at_work],
    }


def gpu_facts(gpu: Gpu, price: HeldPrice) -> dict[str, Any]:
    """A GPU of the catalogue as the API shows it, with the price that holds in the lab."""
    facts = asdict(gpu)
    if price.is_the_labs:
        facts["sources"]["price_per_hour_usd"] = "assumed: set by an admin of the lab"
    return facts | {
        "price_per_hour_usd": price.usd,
        "catalogue_price_per_hour_usd": price.catalogue_usd,
    }
