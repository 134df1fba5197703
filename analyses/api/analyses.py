"""Analyses: asking, listing, reading, cancelling, adopting."""

from __future__ import annotations

from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.exceptions import PermissionDenied
from rest_framework.generics import GenericAPIView, ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.status import HTTP_201_CREATED

from analyses import selectors, services
from analyses.api.asking import fields_of, member_of, refusal
from analyses.api.paging import Pages
from analyses.api.problems import Conflict
from analyses.api.serializers import AnalysisSerializer, AnalysisSummarySerializer
from analyses.history.filters import AnalysisFilter
from analyses.models import Analysis
from engine.errors import InvalidInput


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
        try:
            analysis = services.submit(member_of(request), fields_of(request))
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
        if not selectors.may_change(member, analysis):
            raise PermissionDenied("only who has asked for it, or an admin, may cancel it")
        if not services.cancel(analysis, member):
            raise Conflict(f"Analysis {pk} has ended, or is being cancelled: {_status(analysis)}.")
        return Response(self.get_serializer(self.get_object()).data)


class AnalysisAdopt(GenericAPIView[Analysis]):
    """``POST``: mark the recommendation adopted. ``DELETE``: take that back. 409: nothing to do."""

    serializer_class = AnalysisSerializer

    def get_queryset(self) -> QuerySet[Analysis]:
        """What this member may see."""
        return selectors.detail(member_of(self.request))

    def post(self, request: Request, pk: int) -> Response:
        """Only a succeeded analysis has a recommendation to adopt."""
        analysis = self._own()
        if not services.adopt(analysis, member_of(request)):
            raise Conflict(
                f"Analysis {pk} is adopted already."
                if analysis.adopted_at
                else f"Analysis {pk} has no recommendation to adopt: {_status(analysis)}."
            )
        return self._now()

    def delete(self, request: Request, pk: int) -> Response:
        """Its savings are potential again."""
        if not services.take_back(self._own()):
            raise Conflict(f"Analysis {pk} is not adopted.")
        return self._now()

    def _own(self) -> Analysis:
        analysis = self.get_object()
        if not selectors.may_change(member_of(self.request), analysis):
            raise PermissionDenied("only who has asked for it, or an admin, may say so")
        return analysis

    def _now(self) -> Response:
        return Response(self.get_serializer(self.get_object()).data)


def _status(analysis: Analysis) -> str:
    """Its status at this moment, which may not be that of the object."""
    return Analysis.objects.values_list("status", flat=True).get(pk=analysis.pk)
