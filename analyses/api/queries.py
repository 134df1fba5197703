"""Queries: predictions and plans, which do not enter the history."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.status import HTTP_200_OK, HTTP_202_ACCEPTED
from rest_framework.viewsets import ViewSetMixin

from analyses import queries
from analyses.api.limits import ENGINE_COST
from analyses.api.recipes import Submission
from analyses.api.schema import WAIT, described
from analyses.api.serializers import EXAMPLE, RequestField, RequestSerializer
from analyses.api.views import ApiView, body_of, member_of, seconds_to_wait, wait_until
from analyses.models import Query, QueryKind, QueryStatus
from engine.core.errors import InvalidInput
from engine.interface.tokens import tokens_of


@extend_schema_serializer(component_name="LookupFailure")
class QueryFailureSerializer(serializers.Serializer[Any]):
    """Why a query has no answer."""

    code = serializers.CharField()
    reason = serializers.CharField()
    fields = serializers.DictField(  # type: ignore[assignment]  # a field, not the fields
        child=serializers.CharField(), help_text="What to do, by wrong field."
    )


@extend_schema_serializer(component_name="Lookup")
class QuerySerializer(serializers.ModelSerializer[Query]):
    """A prediction that takes seconds, with its answer."""

    url = serializers.HyperlinkedIdentityField(view_name="api:lookup-detail")
    ask = serializers.ChoiceField(QueryKind.choices, source="kind")
    status = serializers.ChoiceField(QueryStatus.choices)
    source = serializers.SerializerMethodField()  # type: ignore[assignment]  # a field, not its source
    request = RequestField()
    answer = serializers.DictField(
        allow_null=True,
        help_text="For predict: gpu, trial, software and caveats. For plan: the ladder of moves "
        "with what each would gain, other GPUs, and the room that is left.",
    )
    failure = QueryFailureSerializer(allow_null=True)
    tokens_per_sample = serializers.SerializerMethodField()

    class Meta:
        model = Query
        fields = (
            "id", "url", "ask", "status", "source", "created_at", "node", "progress", "request",
            "tokens_per_sample", "answer", "failure",
        )  # fmt: skip
        read_only_fields = fields

    def get_source(self, _query: Query) -> str:
        """Nothing is measured."""
        return "predicted"

    def get_tokens_per_sample(self, query: Query) -> int | None:
        """Its sequence length, of the source if it has a target; null unless all input is text."""
        tokens = tokens_of(query.request)
        return tokens.per_sample if tokens else None


class Queries(ViewSetMixin, ApiView[Query]):
    """The queries that a member has submitted; an admin reads everybody's."""

    queryset = Query.objects.none()  # for the schema; what is visible depends on the member
    serializer_class = QuerySerializer
    lookup_value_converter = "int"

    def get_queryset(self) -> QuerySet[Query]:
        return queries.visible_to(member_of(self.request))

    @described(parameters=[WAIT])
    def retrieve(self, request: Request, pk: int) -> Response:
        """Read a query that you have submitted; an admin reads everybody's."""
        seconds, query = seconds_to_wait(request), self.get_object()
        if not query.is_final:
            wait_until(lambda: _has_ended(query), seconds)
        return Response(self.get_serializer(query).data)


class _Submit(ApiView[Query]):
    serializer_class = QuerySerializer
    costs = MappingProxyType({"POST": ENGINE_COST})
    only_asks = True  # so a read-only token may do it
    kind: QueryKind
    default_wait_seconds: float

    def submit(self, request: Request) -> Response:
        """200 with the answer, or 202 if there is none yet; both with its ``Location``."""
        seconds = seconds_to_wait(request, self.default_wait_seconds)
        sent = Submission.of(body_of(request))
        try:
            asked = queries.predictable(sent.fields)
        except InvalidInput as error:
            raise sent.refusal(error) from error
        query = queries.submit(member_of(request), self.kind, asked)
        if not query.is_final:
            wait_until(lambda: _has_ended(query), seconds)
        if query.failure and query.failure["fields"]:
            raise sent.refusal(InvalidInput(query.failure["fields"]))
        body = sent.told(self.get_serializer(query).data)
        status = HTTP_200_OK if query.is_final else HTTP_202_ACCEPTED
        location = reverse("api:lookup-detail", args=[query.pk], request=request)
        return Response(body, status, headers={"Location": location})


_submits = described(
    request=RequestSerializer,
    parameters=[WAIT],
    responses={200: QuerySerializer, 202: QuerySerializer},
    examples=[EXAMPLE],
)


class Predict(_Submit):
    """One batch size on one GPU."""

    kind = QueryKind.PREDICT
    default_wait_seconds = 10.0

    @_submits
    def post(self, request: Request) -> Response:
        """Predict the memory and time of the current batch on the GPU. Waits 10 seconds by default.

        202 if there is no answer yet: read it at its `Location`.
        """
        return self.submit(request)


class Plan(_Submit):
    """Every GPU, and the ladder of moves."""

    kind = QueryKind.PLAN
    default_wait_seconds = 60.0

    @_submits
    def post(self, request: Request) -> Response:
        """Predict the ladder of moves for the workload, and the workload on every GPU.

        Waits 60 seconds by default. 202 if there is no answer yet: read it at its `Location`.
        """
        return self.submit(request)


def _has_ended(query: Query) -> bool:
    query.refresh_from_db()
    return query.is_final
