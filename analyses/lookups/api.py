"""Lookups over the REST API: ask, wait a little, read."""

from __future__ import annotations

from collections.abc import Mapping
from threading import BoundedSemaphore
from typing import Any

from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.status import HTTP_200_OK, HTTP_202_ACCEPTED
from rest_framework.views import APIView

from analyses.api import member_of, refusal
from analyses.lookups import selectors, services
from analyses.lookups.questions import predictable
from analyses.models import Ask, Lookup
from engine.errors import InvalidInput

LONGEST_WAIT_SECONDS = 60.0

_waiting = BoundedSemaphore(2)
"""So many of a process's threads may wait for scripts; the others serve pages."""


class _Put(APIView):
    ask: Ask
    usual_wait_seconds: float
    only_asks = True  # so a token to read may do it

    def post(self, request: Request) -> Response:
        """Ask; 200 with the answer, 202 with its ``Location`` where there is none yet."""
        seconds = _seconds(request.query_params.get("wait"), self.usual_wait_seconds)
        if not isinstance(request.data, Mapping):
            raise ValidationError({"non_field_errors": ["give one JSON object with the fields"]})
        try:
            asked = predictable(request.data)
        except InvalidInput as error:
            raise refusal(error) from error
        lookup = services.put(member_of(request), self.ask, asked)
        if not lookup.is_final and _waiting.acquire(blocking=False):
            try:
                selectors.wait_for(lookup, seconds)
            finally:
                _waiting.release()
        if lookup.failure and lookup.failure["fields"]:
            raise refusal(InvalidInput(lookup.failure["fields"]))
        body = _body(lookup, request)
        status = HTTP_200_OK if lookup.is_final else HTTP_202_ACCEPTED
        return Response(body, status, headers={"Location": body["url"]})


class Predict(_Put):
    """``POST``: what one batch size takes on one GPU, predicted; fields as of an analysis."""

    ask = Ask.PREDICT
    usual_wait_seconds = 10.0


class Plan(_Put):
    """``POST``: every GPU of the catalogue, and what changes would buy, predicted."""

    ask = Ask.PLAN
    usual_wait_seconds = 60.0


class LookupDetail(APIView):
    """``GET``: a lookup that one has asked for; an admin reads everybody's."""

    def get(self, request: Request, pk: int) -> Response:
        """Its status, and its answer or failure."""
        lookup = selectors.visible_to(member_of(request)).filter(pk=pk).first()
        if lookup is None:
            raise NotFound
        return Response(_body(lookup, request))


def _seconds(text: str | None, usual: float) -> float:
    """How long to wait, as the address says."""
    try:
        seconds = usual if text is None else float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_WAIT_SECONDS:
        raise ValidationError({"wait": [f"give seconds from 0 to {LONGEST_WAIT_SECONDS:.0f}"]})
    return seconds


def _body(lookup: Lookup, request: Request) -> dict[str, Any]:
    return {
        "id": lookup.pk,
        "url": reverse("api:lookup-detail", args=[lookup.pk], request=request),
        "ask": lookup.ask,
        "status": lookup.status,
        "source": "predicted",
        "created_at": lookup.created_at,
        "node": lookup.node,
        "progress": lookup.progress,
        "request": lookup.request,
        "answer": lookup.answer,
        "failure": lookup.failure,
    }
