"""What the API says of an analysis. Sizes are bytes, times are seconds; nothing is rounded."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rest_framework import serializers

from analyses.history.labels import note_of
from analyses.lab.selectors import HeldPrice
from analyses.models import Analysis, Node, Tag, Trial, pushed_from
from engine.gpus import Gpu


class TrialSerializer(serializers.ModelSerializer[Trial]):
    """One batch size tried."""

    class Meta:
        model = Trial
        fields = (
            "batch_size", "fits", "source", "peak_allocated_bytes", "peak_reserved_bytes",
            "device_used_bytes", "device_used_low_bytes", "device_used_high_bytes",
            "step_seconds", "step_seconds_low", "step_seconds_high", "samples_per_second",
            "alloc_retries", "breakdown", "failure",
        )  # fmt: skip


class AnalysisSummarySerializer(serializers.ModelSerializer[Analysis]):
    """An analysis as lists show it."""

    url = serializers.HyperlinkedIdentityField(view_name="api:analysis-detail")
    owner = serializers.CharField(source="owner.username")
    adopted_by = serializers.CharField(source="adopted_by.username", default=None)
    failure = serializers.SerializerMethodField()
    pushed_from = serializers.SerializerMethodField()
    tags = serializers.SlugRelatedField[Tag](slug_field="name", many=True, read_only=True)

    class Meta:
        model = Analysis
        fields: tuple[str, ...] = (
            "id", "url", "owner", "status", "model", "gpu", "precision", "optimizer",
            "measured_gpu", "current_batch_size", "queued_at", "started_at", "finished_at", "node",
            "attempt", "answered_from", "pushed_from", "source",
            "largest_batch_size", "recommended_batch_size", "speedup", "usd_per_year",
            "gpu_hours_per_year", "adopted_at", "adopted_by", "failure", "tags",
        )  # fmt: skip
        read_only_fields = fields

    def get_failure(self, analysis: Analysis) -> dict[str, str] | None:
        """Code and reason; nothing where it has not failed."""
        if not analysis.failure_code:
            return None
        return {"code": analysis.failure_code, "reason": analysis.failure_reason}

    def get_pushed_from(self, analysis: Analysis) -> str | None:
        """The host that it ran on outside the lab; nothing where the lab has run it."""
        return pushed_from(analysis)


class AnalysisSerializer(AnalysisSummarySerializer):
    """An analysis whole: the question, every trial and the result."""

    trials = TrialSerializer(many=True)
    note = serializers.SerializerMethodField()

    class Meta(AnalysisSummarySerializer.Meta):
        fields = (
            *AnalysisSummarySerializer.Meta.fields,
            "note",
            "request",
            "assumed_by",
            "trials",
            "result",
        )
        read_only_fields = fields

    def get_note(self, analysis: Analysis) -> str | None:
        """What members have written about it."""
        return note_of(analysis)


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
