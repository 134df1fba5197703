"""The REST API: enough for a script to ask, wait and read."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import cast

from django.contrib.auth.models import User
from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.generics import GenericAPIView, ListAPIView, RetrieveAPIView
from rest_framework.pagination import PageNumberPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.status import HTTP_200_OK, HTTP_201_CREATED, HTTP_409_CONFLICT
from rest_framework.views import APIView

from analyses import selectors, services
from analyses.engine_events import storable
from analyses.history.filters import AnalysisFilter
from analyses.lab.selectors import prices
from analyses.models import Analysis
from analyses.permissions import may_change
from analyses.serializers import (
    AnalysisSerializer,
    AnalysisSummarySerializer,
    gpu_facts,
    node_facts,
)
from engine.errors import InvalidInput
from engine.gpus import GPUS
from engine.models.presets import PRESETS


class PagesByIds(Paginator[Analysis]):
    """Finds the ids of a page first, so that skipped rows, long with their JSON, are not read."""

    def page(self, number: int | str) -> Page[Analysis]:
        """One page; :exc:`~django.core.paginator.InvalidPage` where there is none."""
        valid = self.validate_number(number)
        analyses = cast("QuerySet[Analysis]", self.object_list)
        first = (valid - 1) * self.per_page
        ids = analyses.values_list("pk", flat=True)[first : first + self.per_page]
        return Page(analyses.filter(pk__in=list(ids)), valid, self)


class Pages(PageNumberPagination):
    """Pages of 50, or as many as ``page_size`` says."""

    django_paginator_class = PagesByIds
    page_size_query_param = "page_size"
    max_page_size = 200


class AnalysisList(ListAPIView[Analysis]):
    """``GET``: the lab's analyses, newest first. ``POST``: a new one, from flat fields.

    The address takes the filters and the sorting of the history's page.
    """

    serializer_class = AnalysisSummarySerializer
    pagination_class = Pages
    filter_backends = (DjangoFilterBackend,)
    filterset_class = AnalysisFilter

    def get_queryset(self) -> QuerySet[Analysis]:
        """What this member may see, without the long JSON that lists do not show."""
        analyses = selectors.visible_to(member_of(self.request)).prefetch_related("tags")
        return analyses.defer("request", "result")

    def post(self, request: Request) -> Response:
        """Store and queue an analysis; 400 with a list of messages for each wrong field."""
        if not isinstance(request.data, Mapping):
            raise ValidationError({"non_field_errors": ["give one JSON object with the fields"]})
        try:
            analysis = services.submit(member_of(request), request.data)
        except InvalidInput as error:
            raise refusal(error) from error
        body = AnalysisSerializer(analysis, context={"request": request}).data
        return Response(body, HTTP_201_CREATED, headers={"Location": body["url"]})


class AnalysisDetail(RetrieveAPIView[Analysis]):
    """``GET``: one analysis with its request, trials and result."""

    serializer_class = AnalysisSerializer

    def get_queryset(self) -> QuerySet[Analysis]:
        """What this member may see."""
        return selectors.detail(member_of(self.request))


class AnalysisCancel(GenericAPIView[Analysis]):
    """``POST``: end an analysis of one's own; 409 where it has ended already."""

    serializer_class = AnalysisSerializer

    def get_queryset(self) -> QuerySet[Analysis]:
        """What this member may see."""
        return selectors.detail(member_of(self.request))

    def post(self, request: Request, pk: int) -> Response:
        """Ask for the end; it comes within two seconds."""
        analysis, member = self.get_object(), member_of(request)
        if not may_change(member, analysis):
            raise PermissionDenied("only who has asked for it, or an admin, may cancel it")
        cancelled = services.cancel(analysis, member)
        body = self.get_serializer(self.get_object()).data
        return Response(body, HTTP_200_OK if cancelled else HTTP_409_CONFLICT)


class AnalysisAdopt(GenericAPIView[Analysis]):
    """``POST``: mark the recommendation adopted. ``DELETE``: take that back. 409: nothing to do."""

    serializer_class = AnalysisSerializer

    def get_queryset(self) -> QuerySet[Analysis]:
        """What this member may see."""
        return selectors.detail(member_of(self.request))

    def post(self, request: Request, pk: int) -> Response:
        """Only a succeeded analysis has a recommendation to adopt."""
        return self._answer(services.adopt(self._own(), member_of(request)))

    def delete(self, request: Request, pk: int) -> Response:
        """Its savings are potential again."""
        return self._answer(services.take_back(self._own()))

    def _own(self) -> Analysis:
        analysis = self.get_object()
        if not may_change(member_of(self.request), analysis):
            raise PermissionDenied("only who has asked for it, or an admin, may say so")
        return analysis

    def _answer(self, changed: bool) -> Response:
        body = self.get_serializer(self.get_object()).data
        return Response(body, HTTP_200_OK if changed else HTTP_409_CONFLICT)


class NodeList(APIView):
    """``GET``: the lab's nodes, with what each has and does."""

    def get(self, _request: Request) -> Response:
        """All that there have been, those online first."""
        return Response(
            {"results": [node_facts(node, at_work) for node, at_work in selectors.nodes()]}
        )


class ModelList(APIView):
    """``GET``: the models that can be analysed."""

    def get(self, _request: Request) -> Response:
        """All presets."""
        return Response({"results": [asdict(preset) for preset in PRESETS.values()]})


class GpuList(APIView):
    """``GET``: the GPUs of the catalogue, with the sources of their figures and what they cost."""

    def get(self, _request: Request) -> Response:
        """The whole catalogue."""
        held = prices(GPUS)
        return Response({"results": [gpu_facts(gpu, held[gpu.name]) for gpu in GPUS.values()]})


def refusal(error: InvalidInput) -> ValidationError:
    """The answer to a wrong question: a list of messages for each wrong field."""
    return ValidationError(
        {storable(name): [storable(text)] for name, text in error.fields.items()}
    )


def member_of(request: Request) -> User:
    """Who asks."""
    user = request.user
    assert isinstance(user, User)  # noqa: S101  # IsAuthenticated let it through
    return user
