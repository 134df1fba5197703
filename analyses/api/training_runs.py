"""Training runs: their reports are stored and listed."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.status import HTTP_200_OK, HTTP_201_CREATED
from rest_framework.viewsets import ViewSetMixin

from analyses.api.problems import Conflict
from analyses.api.schema import described
from analyses.api.serializers import stored_serializer
from analyses.api.views import PAGE, ApiView, Pages, body_of, member_of, refusal
from analyses.bodies import IdTaken
from analyses.models import TrainingRun
from analyses.permissions import may_administer
from analyses.training_runs.services import ReportBody, store_report
from engine.core.errors import InvalidInput
from engine.interface.tokens import tokens_per_second
from engine.recording import TrainingRecord


@extend_schema_field(stored_serializer(TrainingRecord))
class RecordField(serializers.JSONField):
    """A record as it is stored."""


class TrainingSerializer(serializers.ModelSerializer[TrainingRun]):
    """A training run as it was reported, and whether it verifies its analysis."""

    owner = serializers.CharField(source="owner.username")
    record = RecordField()
    tokens_per_second = serializers.SerializerMethodField()

    class Meta:
        model = TrainingRun
        fields = (
            "id", "owner", "analysis", "host", "verifies", "received_at", "record",
            "tokens_per_second",
        )  # fmt: skip
        read_only_fields = fields
        extra_kwargs = {  # noqa: RUF012  # as Django REST framework has it
            "host": {"help_text": "That machine's host name."},
            "verifies": {"help_text": "Whether it ran as its analysis recommends."},
        }

    def get_tokens_per_second(self, run: TrainingRun) -> float | None:
        """Speed in tokens, by its analysis; null without one, or if samples are not text."""
        trained = run.analysis.request if run.analysis else None
        return tokens_per_second(trained, run.samples_per_second)


class TrainingRuns(ViewSetMixin, ListModelMixin, ApiView[TrainingRun]):
    """The reports of training runs."""

    queryset = TrainingRun.objects.none()  # for the schema; what is visible depends on the member
    serializer_class = TrainingSerializer
    pagination_class = Pages

    def get_queryset(self) -> QuerySet[TrainingRun]:
        """Their own; an admin sees the lab's."""
        member = member_of(self.request)
        every = TrainingRun.objects.select_related("owner", "analysis").defer("analysis__result")
        return every if may_administer(member) else every.filter(owner=member)

    @described(parameters=[*PAGE])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List your training runs, the newest first; an admin reads everybody's."""
        return super().list(request, *args, **kwargs)

    @described(
        request=ReportBody,
        responses={200: TrainingSerializer, 201: TrainingSerializer, 409: None},
    )
    def create(self, request: Request) -> Response:
        """Report what a training run used; one that ran as recommended verifies its analysis.

        200 if the lab has it already, 409 if the id belongs to another report.
        """
        try:
            run, is_new = store_report(member_of(request), body_of(request))
        except InvalidInput as error:
            raise refusal(error) from error
        except IdTaken as error:
            raise Conflict(f"{error}.") from error
        status = HTTP_201_CREATED if is_new else HTTP_200_OK
        return Response(self.get_serializer(run).data, status)
