"""The pages of a list."""

from __future__ import annotations

from typing import Any, cast

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import PageNumberPagination
from rest_framework.request import Request

from analyses.models import Analysis


class PagesByIds(Paginator[Analysis]):
    """Finds the ids of a page first, so that skipped rows, long with their JSON, are not read.

    Those of the second half are found from the end: no page skips more than half of the ids.
    """

    def page(self, number: int | str) -> Page[Analysis]:
        """One page; :exc:`~django.core.paginator.InvalidPage` where there is none."""
        valid = self.validate_number(number)
        analyses = cast("QuerySet[Analysis]", self.object_list)
        first = (valid - 1) * self.per_page
        end = min(first + self.per_page, self.count)
        ids = analyses.values_list("pk", flat=True)
        if first > self.count // 2:
            ids, first, end = ids.reverse(), self.count - end, self.count - first
        return Page(analyses.filter(pk__in=list(ids[first:end])), valid, self)


class Pages(PageNumberPagination):
    """Pages of 50, or as many as ``page_size`` says."""

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200

    def get_page_size(self, request: Request) -> int | None:
        """How many to a page.

        Raises:
            ValidationError: The address asks for something else than 1 to 200.
        """
        text = request.query_params.get("page_size")
        if text is None:
            return self.page_size
        if text.isascii() and text.isdigit() and len(text) < 9:
            size = int(text)
            if 1 <= size <= self.max_page_size:
                return size
        raise ValidationError({"page_size": [f"give a number from 1 to {self.max_page_size}"]})

    def get_schema_operation_parameters(self, _view: object) -> list[dict[str, Any]]:
        """None: views name :data:`PAGE`, which says more."""
        return []


PAGE = (
    OpenApiParameter("page", OpenApiTypes.INT, description="The number of the page, from 1."),
    OpenApiParameter(
        "page_size",
        {"type": "integer", "minimum": 1, "maximum": Pages.max_page_size},
        description="How many to a page; 50 if left out.",
    ),
)


class AnalysisPages(Pages):
    """The same of analyses."""

    django_paginator_class = PagesByIds
