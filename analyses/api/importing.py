"""Takes analyses that ran elsewhere."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.status import HTTP_200_OK, HTTP_201_CREATED

from analyses import selectors
from analyses.api.asking import fields_of, member_of, refusal
from analyses.api.problems import Conflict
from analyses.api.schema import described
from analyses.api.serializers import AnalysisSerializer, QuestionField, ResultField
from analyses.api.views import ApiView
from analyses.importing.document import SCHEMA_VERSION, read_document
from analyses.importing.services import IdTaken, store_pushed
from analyses.models import Analysis
from engine.errors import InvalidInput


class OriginSerializer(serializers.Serializer[Any]):
    """Where it ran."""

    host = serializers.CharField(max_length=200, help_text="What that machine calls itself.")
    ran = serializers.CharField(max_length=200, help_text="What ran there.")


class DocumentSerializer(serializers.Serializer[Any]):
    """An analysis that ran elsewhere, whole."""

    schema_version = serializers.ChoiceField([SCHEMA_VERSION], help_text="Of this form.")
    id = serializers.UUIDField(help_text="Yours, the same in each try: the lab keeps it once.")
    request = QuestionField(help_text="What was asked; gpu is local for what was measured.")
    result = ResultField(help_text="What came out, with every trial.")
    started_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField()
    origin = OriginSerializer()
    environment = serializers.DictField(
        child=serializers.CharField(), help_text="Versions that it ran with, by name."
    )


class AnalysisImport(ApiView[Analysis]):
    """Analyses that ran elsewhere."""

    serializer_class = AnalysisSerializer

    @described(
        request=DocumentSerializer,
        responses={200: AnalysisSerializer, 201: AnalysisSerializer, 409: None},
    )
    def post(self, request: Request) -> Response:
        """Put an analysis that ran elsewhere into the history, as one of one's own.

        200 where the lab has it already, 409 where the id is that of another. What does not follow
        from its trials is refused; savings are computed anew by the lab's assumptions.
        """
        member = member_of(request)
        try:
            stored, is_new = store_pushed(member, read_document(fields_of(request)))
        except InvalidInput as error:
            raise refusal(error) from error
        except IdTaken as error:
            raise Conflict(f"{error}.") from error
        body = self.get_serializer(selectors.detail(member).get(pk=stored.pk)).data
        status = HTTP_201_CREATED if is_new else HTTP_200_OK
        return Response(body, status, headers={"Location": str(body["url"])})
