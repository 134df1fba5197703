"""Trainings report what they used, and their reports are read."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.status import HTTP_200_OK, HTTP_201_CREATED

from analyses.api.asking import fields_of, member_of, refusal
from analyses.api.dataclass_serializers import serializer_of
from analyses.api.paging import PAGE, Pages
from analyses.api.problems import Conflict
from analyses.api.schema import described
from analyses.api.views import ApiView
from analyses.models import Training
from analyses.permissions import may_administer
from analyses.trainings.services import IdTaken, store_training
from engine.errors import InvalidInput
from engine.recording import TrainingRecord

RecordSerializer = serializer_of(TrainingRecord, required=False)


@extend_schema_field(RecordSerializer)
class RecordField(serializers.JSONField):
    """A record as it is stored."""


class TrainingSerializer(serializers.ModelSerializer[Training]):
    """A training as it was reported, and whether it verifies its analysis."""

    owner = serializers.CharField(source="owner.username")
    record = RecordField()

    class Meta:
        model = Training
        fields = ("id", "owner", "analysis", "host", "verifies", "received_at", "record")
        read_only_fields = fields
        extra_kwargs = {  # noqa: RUF012  # as Django REST framework has it
            "host": {"help_text": "What that machine calls itself."},
            "verifies": {"help_text": "Whether it trained as its analysis recommends."},
        }


class ReportSerializer(serializers.Serializer[Any]):
    """What a training has to say."""

    id = serializers.UUIDField(help_text="Yours, the same in each try: the lab keeps it once.")
    host = serializers.CharField(max_length=200)
    record = RecordField(help_text="With the id of an analysis of yours, if it belongs to one.")


class TrainingList(ListModelMixin, ApiView[Training]):
    """One's own trainings; an admin's are the lab's."""

    queryset = Training.objects.none()  # for the schema; what is seen depends on who asks
    serializer_class = TrainingSerializer
    pagination_class = Pages

    def get_queryset(self) -> QuerySet[Training]:
        """What this member may see."""
        member = member_of(self.request)
        every = Training.objects.select_related("owner")
        return every if may_administer(member) else every.filter(owner=member)

    @described(parameters=[*PAGE])
    def get(self, request: Request) -> Response:
        """One's own trainings, the newest first; an admin reads everybody's."""
        return self.list(request)

    @described(
        request=ReportSerializer,
        responses={200: TrainingSerializer, 201: TrainingSerializer, 409: None},
    )
    def post(self, request: Request) -> Response:
        """Report what a training used; one that ran as recommended verifies its analysis.

        200 where the lab has it already, 409 where the id is that of another.
        """
        try:
            training, is_new = store_training(member_of(request), fields_of(request))
        except InvalidInput as error:
            raise refusal(error) from error
        except IdTaken as error:
            raise Conflict(f"{error}.") from error
        status = HTTP_201_CREATED if is_new else HTTP_200_OK
        return Response(self.get_serializer(training).data, status)
