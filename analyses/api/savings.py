"""What the lab saves, as its page adds it up."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from analyses.api.asking import member_of, refusal
from analyses.api.dataclass_serializers import serializer_of
from analyses.api.paging import PAGE, Pages
from analyses.api.schema import described
from analyses.api.views import ApiView
from analyses.savings.selection import Selection, label_of, value_of
from analyses.savings.totals import DIMENSIONS, KINDS, Total, Totals, totals_by, totals_of
from analyses.selectors import savings_visible_to
from engine.errors import InvalidInput

TotalSerializer = serializer_of(Total)

_TEXT = {"type": "string", "pattern": r"^[^\x00]*$"}
"""No database looks for a NUL."""


class SavingsRowSerializer(serializers.Serializer[Any]):
    """The totals of one member, model, GPU or month."""

    value = serializers.CharField(help_text="As the address takes it.")
    label = serializers.CharField(  # type: ignore[assignment]  # a field, not its label
        help_text="As people know it."
    )
    realised = TotalSerializer()
    potential = TotalSerializer()


class LabSavingsSerializer(serializers.Serializer[Any]):
    """The totals, whole and taken apart; the hours, runs and prices in them are assumed."""

    by = serializers.ChoiceField(list(DIMENSIONS))
    totals = serializer_of(Totals)(help_text="Realised and potential, apart; they never overlap.")
    count = serializers.IntegerField(help_text="Of the rows, over all pages.")
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = SavingsRowSerializer(many=True)


class Savings(ApiView[Any]):
    """What following the recommendations saves in a year."""

    serializer_class = LabSavingsSerializer

    @described(
        parameters=[
            OpenApiParameter("by", OpenApiTypes.STR, enum=list(DIMENSIONS), default="member"),
            OpenApiParameter("kind", OpenApiTypes.STR, enum=list(KINDS)),
            OpenApiParameter("member", _TEXT, description="The owner's name."),
            OpenApiParameter("model", _TEXT),
            OpenApiParameter(
                "gpu", _TEXT, description="Of the catalogue, or `local:NAME` of a node."
            ),
            OpenApiParameter(
                "month",
                {"type": "string", "pattern": r"^[12][0-9]{3}-(0[1-9]|1[0-2])$"},
                description="In which it was adopted, or else answered, such as 2026-03.",
            ),
            *PAGE,
        ]
    )
    def get(self, request: Request) -> Response:
        """Add up what is selected, whole and by member, model, GPU or month."""
        try:
            selection = Selection.parse(request.query_params.dict())
        except InvalidInput as error:
            raise refusal(error) from error
        counted = selection.of(savings_visible_to(member_of(request)))
        rows, pages = totals_by(counted, selection.by), Pages()
        shown = [
            {"value": value, "label": label_of(selection.by, value), **vars(row.totals)}
            for row in pages.paginate_queryset(rows, request) or []
            for value in [value_of(selection.by, row.key)]
        ]
        body = pages.get_paginated_response(shown).data
        body |= {"by": selection.by, "totals": totals_of(rows)}
        return Response(self.get_serializer(body).data)
