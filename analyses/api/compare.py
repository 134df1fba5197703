"""Analyses side by side, computed as for the comparison page."""

from __future__ import annotations

from typing import Any

from django.http import QueryDict
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from analyses import selectors
from analyses.api.schema import described
from analyses.api.serializers import serializer_of
from analyses.api.views import ApiView, member_of
from analyses.pages.compare.columns import MAX_ANALYSES, MIN_ANALYSES, Choice, Column, columns_of
from analyses.pages.compare.releases import ReleaseChange, release_change
from analyses.pages.compare.rows import Cell, answer_rows, setting_rows
from analyses.pages.compare.verdict import verdict

CellSerializer = serializer_of(Cell)
ReleaseChangeSerializer = serializer_of(ReleaseChange)


class ColumnSerializer(serializers.Serializer[Any]):
    """An analysis in the comparison."""

    id = serializers.IntegerField()
    url = serializers.URLField()
    label = serializers.CharField(  # type: ignore[assignment]  # a field, not its label
        help_text="What distinguishes it from the others, in a few words."
    )


class ComparedRowSerializer(serializers.Serializer[Any]):
    """A row of the comparison, with a cell for each analysis."""

    key = serializers.CharField(help_text="Of the number; empty for a setting, which is text.")
    label = serializers.CharField()  # type: ignore[assignment]  # a field, not its label
    unit = serializers.CharField(help_text="Of the values; empty for counts and ratios.")
    differs = serializers.BooleanField(help_text="Whether the analyses differ in it.")
    cells = CellSerializer(many=True)


class ComparedSerializer(serializers.Serializer[Any]):
    """Two to 24 analyses with their settings and results."""

    base = serializers.IntegerField(help_text="The baseline.")
    verdict = serializers.CharField(
        help_text="The best of them and its lead in one sentence; empty while fewer than two have "
        "an answer."
    )
    analyses = ColumnSerializer(many=True)
    changed = ReleaseChangeSerializer(
        allow_null=True,
        help_text="Parts of a step that differ between two sets of versions: where two or more "
        "analyses differ from the baseline in software only, those of the neighbouring releases "
        "that differ most. Else null.",
    )
    asked = ComparedRowSerializer(many=True, help_text="The settings.")
    answered = ComparedRowSerializer(many=True, help_text="The results.")


class Compare(ApiView[Any]):
    """Analyses side by side."""

    serializer_class = ComparedSerializer

    @described(
        parameters=[
            OpenApiParameter(
                "ids",
                OpenApiTypes.STR,
                required=True,
                description="The ids of the analyses, separated by commas.",
            ),
            OpenApiParameter(
                "base",
                OpenApiTypes.INT,
                description="The id of the baseline; the first if left out.",
            ),
            OpenApiParameter(
                "diff",
                OpenApiTypes.INT,
                enum=[0, 1],
                description="1 sends only the rows that differ.",
            ),
        ]
    )
    def get(self, request: Request) -> Response:
        """Compare two to 24 analyses; each number with its source and difference."""
        choice, columns = self._chosen(request)
        asked, answered = setting_rows(columns), answer_rows(columns, choice.base)
        only_differences = request.query_params.get("diff") == "1"
        body = {
            "base": choice.base,
            "verdict": verdict(columns, choice.base),
            "changed": release_change(columns, choice.base),
            "analyses": [_head(column, request) for column in columns],
            "asked": [row for row in asked if row.differs or not only_differences],
            "answered": [row for row in answered if row.differs or not only_differences],
        }
        return Response(self.get_serializer(body).data)

    def _chosen(self, request: Request) -> tuple[Choice, list[Column]]:
        """Return what the query selects; unlike on the page, every problem is an error."""
        query = request.query_params
        choice = Choice.read(_only(query, "ids"))
        visible = selectors.visible_to(member_of(request))
        found = visible.select_related("owner").in_bulk(choice.ids)
        choice = choice.of_those_found(found)
        problems = list(choice.problems)
        if not problems and len(choice.ids) < MIN_ANALYSES:
            problems = [f"select {MIN_ANALYSES} to {MAX_ANALYSES} analyses, such as ids=3,5"]
        if problems:
            raise ValidationError({"ids": problems})
        based = Choice.read(_only(query, "ids", "base"))
        if based.problems:
            raise ValidationError({"base": list(based.problems)})
        if query.get("diff", "") not in ("", "0", "1"):
            raise ValidationError({"diff": ["enter 1 for only the rows that differ, or 0"]})
        return based, columns_of([found[pk] for pk in based.ids])


def _only(query: QueryDict, *names: str) -> QueryDict:
    taken = QueryDict(mutable=True)
    for name in names:
        taken.setlist(name, query.getlist(name))
    return taken


def _head(column: Column, request: Request) -> dict[str, object]:
    url = reverse("api:analysis-detail", args=[column.pk], request=request)
    return {"id": column.pk, "url": url, "label": column.label}
