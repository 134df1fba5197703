"""Analyses: asking, listing, reading, labelling, cancelling, adopting, deleting."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.exceptions import PermissionDenied
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.status import HTTP_201_CREATED, HTTP_204_NO_CONTENT

from analyses import selectors, services
from analyses.api.asking import fields_of, member_of, refusal
from analyses.api.idempotency import KEY, key_of, submit_once
from analyses.api.labels import IF_MATCH, LABELLED, LabelsSerializer, labels_in
from analyses.api.paging import PAGE, AnalysisPages
from analyses.api.problems import Changed, Conflict
from analyses.api.rates import ENGINE_COST
from analyses.api.request import ASKED, QuestionSerializer
from analyses.api.schema import WAIT, described
from analyses.api.serializers import AnalysisSerializer, AnalysisSummarySerializer
from analyses.api.versions import etag_of, labels_seen
from analyses.api.views import ApiView, fields_wanted, not_modified
from analyses.api.waiting import seconds_of, wait_until
from analyses.history import selection
from analyses.history.filters import AnalysisFilter
from analyses.history.labels import LabelsChanged, write_labels
from analyses.models import FINAL_STATUSES, Analysis
from analyses.permissions import may_change
from engine.errors import InvalidInput

_LONG = {"request", "result"}


class AnalysisList(ListModelMixin, ApiView[Analysis]):
    """The lab's analyses.

    The address takes the filters and the sorting of the history's page.
    """

    queryset = Analysis.objects.none()  # for the schema; what is seen depends on who asks
    serializer_class = AnalysisSummarySerializer
    pagination_class = AnalysisPages
    filter_backends = (DjangoFilterBackend,)
    filterset_class = AnalysisFilter
    costs = MappingProxyType({"POST": ENGINE_COST})

    def get_queryset(self) -> QuerySet[Analysis]:
        """What this member may see, without the long JSON that lists do not show."""
        analyses = selectors.visible_to(member_of(self.request)).prefetch_related("tags")
        return analyses.defer(*_LONG)

    @described(parameters=[*PAGE])
    def get(self, request: Request) -> Response:
        """List the lab's analyses; the newest first, unless `sort` says otherwise."""
        return self.list(request)

    @described(
        request=QuestionSerializer,
        parameters=[WAIT, KEY],
        responses={201: AnalysisSerializer, 422: None},
        examples=[ASKED],
    )
    def post(self, request: Request) -> Response:
        """Store and queue an analysis. With `wait`, it answers with the result if that is in time.

        400 has a list of messages for each wrong field; nothing is stored then.
        """
        seconds, key, member = seconds_of(request), key_of(request), member_of(request)
        fields, is_new = fields_of(request), True
        try:
            if key is None:
                analysis = services.submit(member, fields)
            else:
                analysis, is_new = submit_once(member, key, fields)
        except InvalidInput as error:
            raise refusal(error) from error
        wait_until(lambda: _is_final(analysis.pk), seconds)
        now = selectors.detail(member).get(pk=analysis.pk)
        body = AnalysisSerializer(now, context=self.get_serializer_context()).data
        headers = {"Location": str(body["url"])}  # a plain text: not every server takes its like
        if not is_new:
            headers["Idempotency-Replayed"] = "true"
        return Response(body, HTTP_201_CREATED, headers=headers)


class OfOneAnalysis(ApiView[Analysis]):
    """What there is of, or is done to, one analysis."""

    queryset = Analysis.objects.none()  # as above
    serializer_class: type[Any] = AnalysisSerializer

    def get_queryset(self) -> QuerySet[Analysis]:
        """What this member may see."""
        return selectors.detail(member_of(self.request))

    def own(self, what: str) -> Analysis:
        """The analysis, if this member may change it.

        Raises:
            PermissionDenied: The member may not.
        """
        analysis: Analysis = self.get_object()
        if not may_change(member_of(self.request), analysis):
            raise PermissionDenied(f"Only who has asked for it, or an admin, may {what}.")
        return analysis

    def now(self) -> Response:
        """The analysis as it is after a change."""
        return Response(self.get_serializer(self.get_object()).data)


class AnalysisDetail(OfOneAnalysis):
    """One analysis."""

    def get_queryset(self) -> QuerySet[Analysis]:
        """What this member may see, without what the address does not ask for."""
        wanted = fields_wanted(self.request)
        analyses = super().get_queryset()
        if wanted is None:
            return analyses
        if "trials" not in wanted:
            analyses = analyses.prefetch_related(None).prefetch_related("tags")
        return analyses.defer(*(_LONG - wanted))

    @described(parameters=[WAIT])
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        """Read an analysis with its question, trials and result. With `wait`, once it has ended."""
        seconds = seconds_of(request)
        if seconds and selectors.visible_to(member_of(request)).filter(pk=pk).exists():
            wait_until(lambda: _is_final(pk), seconds)
        etag = etag_of(request, pk)
        known = not_modified(request._request, etag)
        if known is not None:
            return known
        response = Response(self.get_serializer(self.get_object()).data)
        if etag:
            response["ETag"] = etag
        return response

    @described(
        request=LabelsSerializer(partial=True),
        parameters=[IF_MATCH],
        responses={200: AnalysisSerializer, 412: None},
        examples=[LABELLED],
    )
    def patch(self, request: Request, pk: int) -> Response:
        """Write the tags or the note of an analysis, or both; every member may.

        Nothing else of an analysis can be written. The answer's `ETag` is that of what it has.
        """
        analysis: Analysis = self.get_object()
        try:
            names, note = labels_in(fields_of(request))
        except InvalidInput as error:
            raise refusal(error) from error
        seen = labels_seen(request)
        try:
            with transaction.atomic():  # the answer is what was written, and nobody's after it
                write_labels(analysis, names, note, member_of(request), seen)
                etag, response = etag_of(request, pk), self.now()
        except LabelsChanged as error:
            raise Changed(
                f"Tags or note of analysis {pk} have been changed since you read it. Read it "
                "again, and send your change with its new ETag. Nothing was done."
            ) from error
        if etag:
            response["ETag"] = etag
        return response

    @described(responses={204: None, 409: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Delete an analysis with its trials, log, tags and note; it has to have ended."""
        analysis = self.own("delete it")
        if not analysis.is_final:
            raise Conflict(f"Analysis {pk} has not ended; cancel it first.")
        selection.delete([analysis], member_of(request))
        return Response(status=HTTP_204_NO_CONTENT)


class AnalysisCancel(OfOneAnalysis):
    """The end of an analysis."""

    @described(request=None, responses={200: AnalysisSerializer, 409: None})
    def post(self, request: Request, pk: int) -> Response:
        """Cancel an analysis; its end comes within two seconds."""
        analysis = self.own("cancel it")
        if not services.cancel(analysis, member_of(request)):
            raise Conflict(f"Analysis {pk} has ended, or is being cancelled: {_status(pk)}.")
        return self.now()


class AnalysisAdopt(OfOneAnalysis):
    """Whether the recommended batch is trained with."""

    @described(request=None, responses={200: AnalysisSerializer, 409: None})
    def post(self, request: Request, pk: int) -> Response:
        """Mark the recommendation adopted: its savings are realised from now on."""
        analysis = self.own("say so")
        if not services.adopt(analysis, member_of(request)):
            raise Conflict(
                f"Analysis {pk} is adopted already."
                if analysis.adopted_at
                else f"Analysis {pk} has no recommendation to adopt: {_status(pk)}."
            )
        return self.now()

    @described(responses={200: AnalysisSerializer, 409: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Take the adoption back: its savings are potential again."""
        if not services.take_back(self.own("say so"), member_of(request)):
            raise Conflict(f"Analysis {pk} is not adopted.")
        return self.now()


def _status(pk: int) -> str:
    return Analysis.objects.values_list("status", flat=True).get(pk=pk)


def _is_final(pk: int) -> bool:
    """Whether nothing more will happen to it, be it since it was deleted."""
    return not Analysis.objects.filter(pk=pk).exclude(status__in=FINAL_STATUSES).exists()
