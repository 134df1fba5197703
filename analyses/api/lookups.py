"""Lookups: ask, wait a little, read. Nothing enters the history."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.status import HTTP_200_OK, HTTP_202_ACCEPTED

from analyses.api.asking import fields_of, member_of, refusal
from analyses.api.rates import ENGINE_COST
from analyses.api.request import ASKED, QuestionSerializer
from analyses.api.schema import WAIT, described
from analyses.api.serializers import QuestionField
from analyses.api.views import ApiView
from analyses.api.waiting import seconds_of, wait_until
from analyses.lookups import selectors, services
from analyses.lookups.questions import predictable
from analyses.models import Ask, Lookup, LookupStatus
from engine.errors import InvalidInput


class LookupFailureSerializer(serializers.Serializer[Any]):
    """Why a lookup has no answer."""

    code = serializers.CharField()
    reason = serializers.CharField()
    fields = serializers.DictField(  # type: ignore[assignment]  # a field, not the fields
        child=serializers.CharField(), help_text="By wrong field, what to do."
    )


class LookupSerializer(serializers.ModelSerializer[Lookup]):
    """A question that takes seconds, and its answer: predicted."""

    url = serializers.HyperlinkedIdentityField(view_name="api:lookup-detail")
    ask = serializers.ChoiceField(Ask.choices)
    status = serializers.ChoiceField(LookupStatus.choices)
    source = serializers.SerializerMethodField()  # type: ignore[assignment]  # a field, not its source
    request = QuestionField()
    answer = serializers.DictField(
        allow_null=True,
        help_text="Of predict: gpu, trial and caveats. Of plan: changes to the workload and GPUs "
        "for it, each with what it would bring.",
    )
    failure = LookupFailureSerializer(allow_null=True)

    class Meta:
        model = Lookup
        fields = (
            "id", "url", "ask", "status", "source", "created_at", "node", "progress", "request",
            "answer", "failure",
        )  # fmt: skip
        read_only_fields = fields

    def get_source(self, _lookup: Lookup) -> str:
        """Nothing is measured."""
        return "predicted"


class _Put(ApiView[Lookup]):
    serializer_class = LookupSerializer
    costs = MappingProxyType({"POST": ENGINE_COST})
    only_asks = True  # so a token to read may do it
    ask: Ask
    usual_wait_seconds: float

    def answer(self, request: Request) -> Response:
        """Ask; 200 with the answer, 202 with its ``Location`` where there is none yet."""
        seconds = seconds_of(request, self.usual_wait_seconds)
        try:
            asked = predictable(fields_of(request))
        except InvalidInput as error:
            raise refusal(error) from error
        lookup = services.put(member_of(request), self.ask, asked)
        if not lookup.is_final:
            wait_until(lambda: _has_ended(lookup), seconds)
        if lookup.failure and lookup.failure["fields"]:
            raise refusal(InvalidInput(lookup.failure["fields"]))
        body = self.get_serializer(lookup).data
        status = HTTP_200_OK if lookup.is_final else HTTP_202_ACCEPTED
        location = reverse("api:lookup-detail", args=[lookup.pk], request=request)
        return Response(body, status, headers={"Location": location})


_asked = described(
    request=QuestionSerializer,
    parameters=[WAIT],
    responses={200: LookupSerializer, 202: LookupSerializer},
    examples=[ASKED],
)


class Predict(_Put):
    """One batch size on one GPU."""

    ask = Ask.PREDICT
    usual_wait_seconds = 10.0

    @_asked
    def post(self, request: Request) -> Response:
        """Predict what the current batch takes on the GPU. Without `wait`, it waits 10 seconds.

        202 where there is no answer yet: read it at its `Location`.
        """
        return self.answer(request)


class Plan(_Put):
    """Every GPU, and what changes would buy."""

    ask = Ask.PLAN
    usual_wait_seconds = 60.0

    @_asked
    def post(self, request: Request) -> Response:
        """Predict every GPU of the catalogue for it, and what changes to it would buy.

        Without `wait`, it waits 60 seconds. 202 where there is no answer yet: read it at its
        `Location`.
        """
        return self.answer(request)


class LookupDetail(ApiView[Lookup]):
    """A lookup."""

    queryset = Lookup.objects.none()  # for the schema; what is seen depends on who asks
    serializer_class = LookupSerializer

    def get_queryset(self) -> QuerySet[Lookup]:
        """Those that this member has asked for; an admin sees everybody's."""
        return selectors.visible_to(member_of(self.request))

    @described(parameters=[WAIT])
    def get(self, request: Request, pk: int) -> Response:
        """Read a lookup that one has asked for; an admin reads everybody's."""
        seconds, lookup = seconds_of(request), self.get_object()
        if not lookup.is_final:
            wait_until(lambda: _has_ended(lookup), seconds)
        return Response(self.get_serializer(lookup).data)


def _has_ended(lookup: Lookup) -> bool:
    lookup.refresh_from_db()
    return lookup.is_final
