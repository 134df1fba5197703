"""What there is to choose from: models, GPUs, and the lab's nodes."""

from __future__ import annotations

from dataclasses import asdict

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from analyses import selectors
from analyses.api.serializers import gpu_facts, node_facts
from analyses.lab.selectors import prices
from engine.gpus import GPUS
from engine.models.presets import PRESETS


class NodeList(APIView):
    """``GET``: the lab's nodes, with what each has and does."""

    def get(self, _request: Request) -> Response:
        """All that there have been, those online first."""
        return Response(
            {"results": [node_facts(node, at_work) for node, at_work in selectors.nodes()]}
        )


class ModelList(APIView):
    """``GET``: the models that can be analysed."""

    def get(self, _request: Request) -> Response:
        """All presets."""
        return Response({"results": [asdict(preset) for preset in PRESETS.values()]})


class GpuList(APIView):
    """``GET``: the GPUs of the catalogue, with the sources of their figures and what they cost."""

    def get(self, _request: Request) -> Response:
        """The whole catalogue."""
        held = prices(GPUS)
        return Response({"results": [gpu_facts(gpu, held[gpu.name]) for gpu in GPUS.values()]})
