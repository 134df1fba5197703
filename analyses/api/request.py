"""The fields of a question in the schema. The engine judges them; this only says what they are."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers

from analyses.api.dataclass_serializers import fields_of
from engine.request import AnalysisRequest, Assumptions
from engine.workload import Workload

_NESTED = ("workload", "assumptions")

ASKED = OpenApiExample(
    "BERT on an A10",
    {"model": "bert", "gpu": "a10", "current_batch_size": 16, "precision": "bf16-mixed"},
    request_only=True,
)


class QuestionSerializer(serializers.Serializer[Any]):
    """The question: a workload, a GPU, the batch size used today, and what time costs.

    What is left out, empty or null takes its default. Numbers may be text.
    """

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Those of the engine's three data classes, side by side."""
        found = {
            name: field
            for kind in (Workload, AnalysisRequest, Assumptions)
            for name, field in fields_of(kind, required=False).items()
            if name not in _NESTED
        }
        for name, field in found.items():
            field.allow_null = True
            field.required = name == "gpu"
            if isinstance(field, serializers.CharField):
                field.allow_blank = True
        return found
