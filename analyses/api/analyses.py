"""Analyses: submitting, importing, listing, reading, labelling, adopting, mentioning, deleting."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.generics import get_object_or_404
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.status import HTTP_200_OK, HTTP_201_CREATED, HTTP_204_NO_CONTENT
from rest_framework.viewsets import ViewSetMixin

from analyses import selectors, services
from analyses.api import events
from analyses.api.changes import MentionSerializer
from analyses.api.idempotency import KEY, key_of, submit_once
from analyses.api.labels import IF_MATCH, LABELLED, LabelsBody, etag_of, labels_seen
from analyses.api.limits import ENGINE_COST
from analyses.api.problems import Changed, Conflict, QueueIsFull
from analyses.api.recipes import Submission
from analyses.api.schema import WAIT, described, results_of
from analyses.api.serializers import (
    EXAMPLE,
    PROJECT,
    AnalysisSerializer,
    AnalysisSummarySerializer,
    SubmissionSerializer,
    TrialSerializer,
)
from analyses.api.views import (
    PAGE,
    AnalysisPages,
    ApiView,
    body_of,
    member_of,
    not_modified,
    refusal,
    seconds_to_wait,
    selected_fields,
    wait_for_decision,
    wait_until,
)
from analyses.bodies import IdTaken
from analyses.importing.document import DocumentBody, read_document
from analyses.importing.services import store_imported
from analyses.lab.projects import BadProject, project_name
from analyses.models import Analysis
from analyses.overview import changes
from analyses.pages.history import selection
from analyses.pages.history.filters import AnalysisFilter
from analyses.pages.history.labels import LabelsChanged, write_labels
from analyses.permissions import may_change
from engine.core.border import read_body
from engine.core.errors import InvalidInput

_LONG = {"request", "result", "recipe"}


class Analyses(ViewSetMixin, ListModelMixin, ApiView[Analysis]):
    """The lab's analyses. The list takes the filters and the sorting of the history page."""

    queryset = Analysis.objects.none()  # for the schema; what is visible depends on the member
    serializer_class: type[BaseSerializer[Any]] = AnalysisSerializer
    serializer_classes: Mapping[str, type[BaseSerializer[Any]]] = MappingProxyType(
        {
            "list": AnalysisSummarySerializer,
            "trials": TrialSerializer,
            "follow": events.EventsSerializer,
            "mention": MentionSerializer,
        }
    )
    lookup_value_converter = "int"
    pagination_class = AnalysisPages
    filter_backends = (DjangoFilterBackend,)
    filterset_class = AnalysisFilter
    costs = MappingProxyType({"create": ENGINE_COST})

    def get_serializer_class(self) -> type[BaseSerializer[Any]]:
        return self.serializer_classes.get(self.action, self.serializer_class)

    def filter_queryset(self, queryset: QuerySet[Analysis, Any]) -> QuerySet[Analysis, Any]:
        """Only the list is filtered: ``?status=`` hides no analysis from its own address."""
        return super().filter_queryset(queryset) if self.action == "list" else queryset

    def get_queryset(self) -> QuerySet[Analysis]:
        """The analyses this member may see, without long JSON that is not sent."""
        member = member_of(self.request)
        if self.action == "list":
            return selectors.visible_to(member).prefetch_related("tags").defer(*_LONG)
        analyses = selectors.detail(member)
        wanted = selected_fields(self.request) if self.action == "retrieve" else None
        if wanted is None:
            return analyses
        if "trials" not in wanted:
            analyses = analyses.prefetch_related(None).prefetch_related("tags")
        # The decision has numbers of the result; whether it is final depends on the request.
        needed = wanted | {"result"} if "decision" in wanted else wanted
        needed |= {"request"} if needed & {"decision_is_final", "decision_waits_for"} else set()
        return analyses.defer(*(_LONG - needed))

    @described(parameters=[*PAGE])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List the lab's analyses; the newest first unless `sort` says otherwise."""
        return super().list(request, *args, **kwargs)

    @described(
        request=SubmissionSerializer,
        parameters=[WAIT, KEY],
        responses={201: AnalysisSerializer, 422: None},
        examples=[EXAMPLE],
    )
    def create(self, request: Request) -> Response:
        """Store and queue an analysis. With `wait`, the response has the decision if it is in time.

        400 has a list of messages for each wrong field; nothing is stored then. With a `recipe`,
        its keys are named as `recipe.KEY`, and the response has a `recipe` too: what was read of
        it, assumed and not used.
        """
        seconds, key, member = seconds_to_wait(request), key_of(request), member_of(request)
        body = dict(body_of(request))
        project = _project(body.pop(PROJECT, None))
        sent, is_new = Submission.of(body), True
        try:
            if key is None:
                analysis = services.submit(member, sent.fields, recipe=sent.stored, project=project)
            else:
                analysis, is_new = submit_once(member, key, sent.fields, sent.stored, project)
        except services.QueueFull as error:
            raise QueueIsFull(f"Not queued: {error.fields['queue']}.") from error
        except InvalidInput as error:
            raise sent.refusal(error) from error
        wait_for_decision(analysis.pk, seconds)
        response = self._located(analysis, HTTP_201_CREATED)
        if not is_new:
            response["Idempotency-Replayed"] = "true"
        return response

    @described(
        request=DocumentBody,
        responses={200: AnalysisSerializer, 201: AnalysisSerializer, 409: None},
    )
    @action(detail=False, methods=["post"], url_path="import", url_name="import")
    def add_imported(self, request: Request) -> Response:
        """Import an analysis that ran elsewhere into the history, as one of your own.

        200 if the lab has it already, 409 if the id belongs to another. A result that does not
        follow from its trials is refused; savings are recomputed with the lab's assumptions.
        """
        try:
            analysis, is_new = store_imported(member_of(request), read_document(body_of(request)))
        except InvalidInput as error:
            raise refusal(error) from error
        except IdTaken as error:
            raise Conflict(f"{error}.") from error
        return self._located(analysis, HTTP_201_CREATED if is_new else HTTP_200_OK)

    @described(parameters=[WAIT])
    def retrieve(self, request: Request, pk: int) -> HttpResponseBase:
        """Read an analysis with its request, trials and result.

        With `wait`, once it has ended and its decision is final.
        """
        seconds = seconds_to_wait(request)
        if seconds and selectors.visible_to(member_of(request)).filter(pk=pk).exists():
            wait_for_decision(pk, seconds)
        etag = etag_of(request, pk)
        unchanged = not_modified(request._request, etag)
        if unchanged is not None:
            return unchanged
        return self._now(etag)

    @described(
        request=LabelsBody,
        parameters=[IF_MATCH],
        responses={200: AnalysisSerializer, 412: None},
        examples=[LABELLED],
    )
    def partial_update(self, request: Request, pk: int) -> Response:
        """Set the tags, the note or the project of an analysis; every member may.

        Nothing else of an analysis can be changed. The `ETag` of the response is the new version.
        """
        analysis = self.get_object()
        try:
            labels = read_body(LabelsBody, body_of(request)).model_dump(exclude_unset=True)
        except InvalidInput as error:
            raise refusal(error) from error
        seen = labels_seen(request)
        try:
            with transaction.atomic():  # the response is what was written, not a later change
                write_labels(
                    analysis, labels.get("tags"), labels.get("note"), member_of(request), seen
                )
                if "project" in labels:
                    services.put_into_project([analysis], labels["project"])
                return self._now(etag_of(request, pk))
        except LabelsChanged as error:
            raise Changed(
                f"The tags or note of analysis {pk} have changed since you read it. Read it again, "
                "and send your change with its new ETag. Nothing was changed."
            ) from error

    @described(responses={204: None, 409: None})
    def destroy(self, request: Request, pk: int) -> Response:
        """Delete an analysis with its trials, log, tags and note; it must have ended."""
        analysis = self._changeable("delete it")
        if not analysis.is_final:
            raise Conflict(f"Analysis {pk} has not ended. Cancel it first.")
        selection.delete_analyses([analysis], member_of(request))
        return Response(status=HTTP_204_NO_CONTENT)

    @described(request=None, responses={200: AnalysisSerializer, 409: None})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: int) -> Response:
        """Cancel an analysis; it ends within two seconds."""
        if not services.cancel(self._changeable("cancel it"), member_of(request)):
            raise Conflict(f"Analysis {pk} has ended or is being cancelled: {_status(pk)}.")
        return self._now()

    @described(request=None, responses={200: AnalysisSerializer, 409: None})
    @action(detail=True, methods=["post"])
    def adopt(self, request: Request, pk: int) -> Response:
        """Mark the recommendation as adopted: its savings count as realised from now on."""
        analysis = self._changeable("mark it as adopted")
        if not services.adopt(analysis, member_of(request)):
            raise Conflict(
                f"Analysis {pk} is already adopted."
                if analysis.adopted_at
                else f"Analysis {pk} has no recommendation to adopt: {_status(pk)}."
            )
        return self._now()

    @described(responses={200: AnalysisSerializer, 409: None})
    @adopt.mapping.delete
    def undo_adoption(self, request: Request, pk: int) -> Response:
        """Undo the adoption: its savings are potential again."""
        if not services.undo_adoption(self._changeable("undo its adoption"), member_of(request)):
            raise Conflict(f"Analysis {pk} is not adopted.")
        return self._now()

    @described(request=None, responses={201: MentionSerializer, 409: None})
    @action(detail=True, methods=["post"])
    def mention(self, request: Request, pk: int) -> Response:
        """Mention to its owner what a change would save; they are notified as they have chosen.

        Once a week for an analysis, and 20 times a day for a member. 409 if it is your own, if
        nothing would be saved, or if it is too soon.
        """
        try:
            made = changes.mention(self.get_object(), member_of(request))
        except (changes.TooOften, LookupError) as error:
            raise Conflict(f"{error}.") from error
        return Response(self.get_serializer(made).data, HTTP_201_CREATED)

    @described(responses=results_of(TrialSerializer, "Trials"))
    @action(detail=True)
    def trials(self, _request: Request, pk: int) -> Response:
        """List the trials so far, in the order they were run."""
        found = self.get_object().trials.all()
        return Response({"results": self.get_serializer(found, many=True).data})

    @described(parameters=[WAIT, events.AFTER])
    @action(detail=True, url_path="events", url_name="events")
    def follow(self, request: Request, pk: int) -> Response:
        """Follow an analysis: log lines, trials and status since the cursor, in order."""
        seconds = seconds_to_wait(request)
        cursor = events.Cursor.read(request.query_params.get("after", ""))
        visible = selectors.visible_to(member_of(request)).defer(*_LONG)

        def analysis() -> Analysis:
            return get_object_or_404(visible, pk=pk)

        if not events.has_news(analysis(), cursor):
            wait_until(lambda: events.has_news(analysis(), cursor), seconds)
        return Response(self.get_serializer(events.since(analysis(), cursor)).data)

    def _changeable(self, what: str) -> Analysis:
        """The analysis; :exc:`PermissionDenied` if this member may not change it."""
        analysis: Analysis = self.get_object()
        if not may_change(member_of(self.request), analysis):
            raise PermissionDenied(f"Only its owner or an admin may {what}.")
        return analysis

    def _now(self, etag: str | None = None) -> Response:
        body = self.get_serializer(self.get_object()).data
        return Response(body, headers={"ETag": etag} if etag else None)

    def _located(self, analysis: Analysis, status: int) -> Response:
        now = get_object_or_404(selectors.detail(member_of(self.request)), pk=analysis.pk)
        body = self.get_serializer(now).data
        # A plain string: not every server accepts DRF's subclass in a header.
        return Response(body, status, headers={"Location": str(body["url"])})


def _project(given: object) -> str:
    """The project's name in a submission; empty for none."""
    try:
        if not isinstance(given, str | None):
            raise BadProject("enter the name of a project, as text")
        return project_name(given or "")
    except BadProject as error:
        raise refusal(InvalidInput({PROJECT: str(error)})) from error


def _status(pk: int) -> str:
    """Its status now; 404 if it has been deleted meanwhile."""
    return str(get_object_or_404(Analysis.objects.only("status"), pk=pk).status)
