"""The addresses to which trainings report, and at which their reports are read."""

from __future__ import annotations

from collections.abc import Mapping

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.pagination import PageNumberPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.status import HTTP_200_OK, HTTP_201_CREATED

from analyses.api import member_of, refusal
from analyses.importing.api import Conflict
from analyses.models import Training
from analyses.trainings.services import IdTaken, store_training
from engine.errors import InvalidInput


class TrainingSerializer(serializers.ModelSerializer[Training]):
    """A training as it was reported, and whether it verifies its analysis."""

    owner = serializers.CharField(source="owner.username")

    class Meta:
        model = Training
        fields = ("id", "owner", "analysis", "host", "verifies", "received_at", "record")


class TrainingList(ListAPIView[Training]):
    """``POST``: what a training used. ``GET``: one's own trainings, an admin's all, newest first.

    201 with the training; 200 for the same report again; 400 with messages by field; 409 where the
    id is that of another report.
    """

    serializer_class = TrainingSerializer
    pagination_class = PageNumberPagination

    def get_queryset(self) -> QuerySet[Training]:
        """What this member may see."""
        member = member_of(self.request)
        every = Training.objects.select_related("owner")
        return every if member.is_staff else every.filter(owner=member)

    def post(self, request: Request) -> Response:
        """Store it as a training of the token's member."""
        if not isinstance(request.data, Mapping):
            raise ValidationError({"non_field_errors": ["give one JSON object"]})
        try:
            training, is_new = store_training(member_of(request), request.data)
        except InvalidInput as error:
            raise refusal(error) from error
        except IdTaken as error:
            raise Conflict(f"{error}.") from error
        status = HTTP_201_CREATED if is_new else HTTP_200_OK
        return Response(TrainingSerializer(training).data, status)
