"""The changes that would save most, with whom to ask, as on the savings page."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from analyses.api.schema import described
from analyses.api.views import ApiView, member_of
from analyses.formatting import gpu_of
from analyses.models import Analysis
from analyses.overview.changes import changes_worth_most
from analyses.selectors import savings_visible_to


class MentionSerializer(serializers.Serializer[Any]):
    """A mention of a change to its owner."""

    by = serializers.CharField(source="by.username", help_text="Who mentioned it.")
    change = serializers.CharField()
    usd_per_year = serializers.FloatField(
        help_text="What it saves, at the assumed hours, runs and price."
    )
    at = serializers.DateTimeField()


class ChangeSerializer(serializers.Serializer[Any]):
    """The decision of one analysis, as a change."""

    analysis = serializers.IntegerField(source="analysis.pk", help_text="The analysis's id.")
    owner = serializers.CharField(source="analysis.owner.username", help_text="Whom to ask.")
    model = serializers.CharField(source="analysis.model")
    gpu = serializers.SerializerMethodField()
    change = serializers.CharField(help_text="What to do: `batch 16 to 128`, or `bf16, batch 200`.")
    usd_per_year = serializers.FloatField(
        help_text="What it saves, at the assumed hours, runs and price; predicted or measured."
    )
    gpu_hours_per_year = serializers.FloatField(help_text="As above.")
    at_low_end = serializers.BooleanField(
        help_text="Whether both are the low end of the range, as the lab's totals count an outlier."
    )
    mentioned = MentionSerializer(
        allow_null=True, help_text="The latest mention within a week; null if there is none."
    )

    def get_gpu(self, change: Any) -> str:
        """As its vendor writes it."""
        analysis: Analysis = change.analysis
        return gpu_of(analysis)


class ChangesSerializer(serializers.Serializer[Any]):
    """The changes worth most, those of one owner together."""

    usd_per_year = serializers.FloatField(help_text="Of all of them.")
    results = ChangeSerializer(many=True)


class Changes(ApiView[Any]):
    """The changes worth most."""

    serializer_class = ChangesSerializer

    @described(responses={200: ChangesSerializer})
    def get(self, request: Request) -> Response:
        """List the five changes that would save the lab most, and whom to ask."""
        found = changes_worth_most(savings_visible_to(member_of(request)))
        results = [change for _, changes in found.by_owner for change in changes]
        body = {"usd_per_year": found.usd_per_year, "results": results}
        return Response(self.get_serializer(body).data)
