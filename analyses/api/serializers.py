"""What the API says of an analysis. Sizes are bytes, times are seconds; nothing is rounded."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from analyses.api.dataclass_serializers import serializer_of
from analyses.api.request import QuestionSerializer
from analyses.history.labels import note_of
from analyses.models import Analysis, Status, Tag, pushed_from
from engine.result import AnalysisResult, Source, Trial

TrialSerializer = serializer_of(Trial)
ResultSerializer = serializer_of(AnalysisResult, required=False)
"""None of its fields is certain: a result stays as the version that found it has stored it."""


class FailureSerializer(serializers.Serializer[Any]):
    """Why an analysis has no answer."""

    code = serializers.CharField(help_text="A stable word for programs, such as does_not_fit.")
    reason = serializers.CharField(help_text="What happened, for a person.")


class AnalysisSummarySerializer(serializers.ModelSerializer[Analysis]):
    """An analysis as lists show it."""

    url = serializers.HyperlinkedIdentityField(view_name="api:analysis-detail")
    owner = serializers.CharField(source="owner.username")
    status = serializers.ChoiceField(Status.choices)
    adopted_by = serializers.CharField(
        source="adopted_by.username", default=None, allow_null=True, read_only=True
    )
    source = serializers.ChoiceField(  # type: ignore[assignment]  # a field, not its source
        [(one.value, one.name) for one in Source],
        allow_blank=True,
        help_text="Whether the answer was measured or predicted; empty without one.",
    )
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
        extra_kwargs = {  # noqa: RUF012  # as Django REST framework has it
            "measured_gpu": {"help_text": "The GPU it is measured on; empty for a prediction."},
            "attempt": {"help_text": "How many workers have taken it so far."},
            "answered_from": {"help_text": "The earlier analysis whose answer this is, if any."},
            "speedup": {
                "help_text": "Samples per second at the recommended batch over those at the "
                "current batch."
            },
            "usd_per_year": {"help_text": "Savings, with assumed hours, runs and price."},
            "gpu_hours_per_year": {"help_text": "Savings, with assumed hours and runs."},
        }

    @extend_schema_field(FailureSerializer(allow_null=True))
    def get_failure(self, analysis: Analysis) -> dict[str, str] | None:
        """Code and reason; nothing where it has not failed."""
        if not analysis.failure_code:
            return None
        return {"code": analysis.failure_code, "reason": analysis.failure_reason}

    def get_pushed_from(self, analysis: Analysis) -> str | None:
        """The host that it ran on outside the lab; nothing where the lab has run it."""
        return pushed_from(analysis)


@extend_schema_field(QuestionSerializer)
class QuestionField(serializers.JSONField):
    """A question as it is stored."""


@extend_schema_field(ResultSerializer)
class ResultField(serializers.JSONField):
    """A result as it is stored."""


class AnalysisSerializer(AnalysisSummarySerializer):
    """An analysis whole: the question, every trial and the result."""

    trials = TrialSerializer(many=True)
    note = serializers.SerializerMethodField()
    request = QuestionField()
    result = ResultField(allow_null=True)
    assumed_by = serializers.DictField(
        child=serializers.CharField(),
        help_text="By name of an assumption, whose it is: lab or catalogue; else the asker's own.",
    )

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
