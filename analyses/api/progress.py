"""An analysis while it runs: its trials, and its events as they come."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, PolymorphicProxySerializer, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from analyses import selectors
from analyses.api.analyses import OfOneAnalysis
from analyses.api.asking import member_of
from analyses.api.schema import WAIT, described, results_of
from analyses.api.serializers import TrialSerializer
from analyses.api.waiting import seconds_of, wait_until
from analyses.models import Analysis, LogLine, Status, Trial

MOST_EVENTS = 500
"""Log lines, and trials, in one answer; what is left comes with the next."""


AFTER = OpenApiParameter(
    "after", OpenApiTypes.STR, description="The cursor of the answer before; empty for all."
)


class AnalysisTrials(OfOneAnalysis):
    """The batch sizes tried in an analysis."""

    serializer_class = TrialSerializer

    @described(responses=results_of(TrialSerializer, "Trials"))
    def get(self, _request: Request, pk: int) -> Response:
        """List the trials so far, in the order of trying."""
        trials = self.get_object().trials.all()
        return Response({"results": self.get_serializer(trials, many=True).data})


class LogEventSerializer(serializers.Serializer[Any]):
    """The engine, or the site, has said something."""

    kind = serializers.ChoiceField(["log"])
    at = serializers.DateTimeField()
    level = serializers.CharField()
    message = serializers.CharField()


class TrialEventSerializer(serializers.Serializer[Any]):
    """A batch size was tried."""

    kind = serializers.ChoiceField(["trial"])
    at = serializers.DateTimeField()
    trial = TrialSerializer()


class StatusEventSerializer(serializers.Serializer[Any]):
    """The analysis has another status; a final one is the last event there is."""

    kind = serializers.ChoiceField(["status"])
    at = serializers.DateTimeField(help_text="When it was seen.")
    status = serializers.ChoiceField(Status.choices)


EVENTS = PolymorphicProxySerializer(
    component_name="Event",
    serializers={
        "log": LogEventSerializer,
        "trial": TrialEventSerializer,
        "status": StatusEventSerializer,
    },
    resource_type_field_name="kind",
    many=True,
)


@extend_schema_field(EVENTS)
class EventsField(serializers.ListField):
    """Events of several kinds."""


class EventsSerializer(serializers.Serializer[Any]):
    """What has happened since the cursor."""

    results = EventsField()
    cursor = serializers.CharField(help_text="Give it as after to get what comes next.")
    is_final = serializers.BooleanField(help_text="Whether nothing more will come.")


@dataclass(frozen=True)
class Cursor:
    """What a client has seen: the ids of the last log line and trial, and the status."""

    log: int = 0
    trial: int = 0
    status: str = ""

    @classmethod
    def read(cls, text: str) -> Cursor:
        """A cursor from an address; empty for the beginning.

        Raises:
            ValidationError: It is none of ours.
        """
        if not text:
            return cls()
        try:
            log, trial, status = base64.urlsafe_b64decode(text.encode()).decode().split(".")
            cursor = cls(int(log), int(trial), status)
        except (binascii.Error, ValueError):
            cursor = cls(-1)
        if not (0 <= cursor.log < 2**63 and 0 <= cursor.trial < 2**63):
            raise ValidationError({"after": ["give the cursor of the answer before, or nothing"]})
        return cursor

    def __str__(self) -> str:
        text = f"{self.log}.{self.trial}.{self.status}"
        return base64.urlsafe_b64encode(text.encode()).decode()


class AnalysisEvents(OfOneAnalysis):
    """What happens to an analysis, as it comes."""

    serializer_class = EventsSerializer

    @described(parameters=[WAIT, AFTER])
    def get(self, request: Request, pk: int) -> Response:
        """Follow an analysis: log lines, trials and status after the cursor, as they came."""
        seconds = seconds_of(request)
        cursor = Cursor.read(request.query_params.get("after", ""))
        if not self._is_more(pk, cursor):
            wait_until(lambda: self._is_more(pk, cursor), seconds)
        return Response(self.get_serializer(_since(self._now(pk), cursor)).data)

    def _now(self, pk: int) -> Analysis:
        found = selectors.visible_to(member_of(self.request)).defer("request", "result")
        return get_object_or_404(found, pk=pk)

    def _is_more(self, pk: int, cursor: Cursor) -> bool:
        """Whether there is something new, or nothing will ever be."""
        analysis = self._now(pk)
        return (
            analysis.is_final
            or analysis.status != cursor.status
            or selectors.log_lines(analysis, cursor.log).exists()
            or analysis.trials.filter(pk__gt=cursor.trial).exists()
        )


def _since(analysis: Analysis, cursor: Cursor) -> dict[str, Any]:
    """The events after a cursor. The status was read first, so a final one is said after all."""
    lines = list(selectors.log_lines(analysis, cursor.log)[: MOST_EVENTS + 1])
    trials = list(analysis.trials.filter(pk__gt=cursor.trial)[: MOST_EVENTS + 1])
    is_cut = max(len(lines), len(trials)) > MOST_EVENTS
    lines, trials = lines[:MOST_EVENTS], trials[:MOST_EVENTS]
    events = sorted([*map(_said, lines), *map(_tried, trials)], key=lambda event: event["at"])
    status = "" if is_cut and analysis.is_final else analysis.status
    if status and status != cursor.status:
        now_is = {"kind": "status", "at": _moment(analysis), "status": status}
        events = [*events, now_is] if analysis.is_final else [now_is, *events]
    after = Cursor(
        lines[-1].pk if lines else cursor.log,
        trials[-1].pk if trials else cursor.trial,
        status or cursor.status,
    )
    is_final = analysis.is_final and not is_cut
    return {"results": events, "cursor": str(after), "is_final": is_final}


def _said(line: LogLine) -> dict[str, Any]:
    return {"kind": "log", "at": line.created_at, "level": line.level, "message": line.message}


def _tried(trial: Trial) -> dict[str, Any]:
    return {"kind": "trial", "at": trial.created_at, "trial": TrialSerializer(trial).data}


def _moment(analysis: Analysis) -> datetime:
    """When the analysis got its status; nobody notes when it is to be cancelled."""
    match analysis.status:
        case Status.QUEUED:
            return analysis.queued_at
        case Status.RUNNING:
            return analysis.started_at or analysis.queued_at
        case Status.CANCELLING:
            return timezone.now()
    return analysis.finished_at or analysis.queued_at
