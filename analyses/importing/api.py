"""The address that takes pushed analyses."""

from __future__ import annotations

from collections.abc import Mapping

from rest_framework.exceptions import APIException, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.status import HTTP_200_OK, HTTP_201_CREATED, HTTP_409_CONFLICT
from rest_framework.views import APIView

from analyses import selectors
from analyses.api import member_of, refusal
from analyses.importing.document import read_document
from analyses.importing.services import IdTaken, store_pushed
from analyses.serializers import AnalysisSerializer
from engine.errors import InvalidInput


class Conflict(APIException):
    """What is sent contradicts what is stored; it would be refused again."""

    status_code = HTTP_409_CONFLICT
    default_code = "conflict"


class AnalysisImport(APIView):
    """``POST``: an analysis that ran elsewhere, for the history; ``docs/client.md`` has its form.

    201 with the analysis and its ``Location``; 200 for the same push again; 400 with messages by
    field; 409 where the id is that of another push.
    """

    def post(self, request: Request) -> Response:
        """Store it as a succeeded analysis of the token's member."""
        if not isinstance(request.data, Mapping):
            raise ValidationError({"non_field_errors": ["give one JSON object"]})
        member = member_of(request)
        try:
            stored, is_new = store_pushed(member, read_document(request.data))
        except InvalidInput as error:
            raise refusal(error) from error
        except IdTaken as error:
            raise Conflict(f"{error}.") from error
        analysis = selectors.detail(member).get(pk=stored.pk)
        body = AnalysisSerializer(analysis, context={"request": request}).data
        status = HTTP_201_CREATED if is_new else HTTP_200_OK
        return Response(body, status, headers={"Location": str(body["url"])})
