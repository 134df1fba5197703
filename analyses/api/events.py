"""The events of an analysis: log lines, trials and status, each sent once by a cursor."""

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

from analyses.api.serializers import TrialSerializer
from analyses.models import Analysis, LogLine, Status, Trial

MAX_EVENTS = 500
"""Log lines, and trials, in one response; the rest comes with the next."""

AFTER = OpenApiParameter(
    "after", OpenApiTypes.STR, description="The cursor of the previous response; empty for all."
)


class LogEventSerializer(serializers.Serializer[Any]):
    """A line logged by the engine or the site."""

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
    """The status has changed; a final status is the last event."""

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
    """Events since the cursor."""

    results = EventsField()
    cursor = serializers.CharField(help_text="Send it as `after` to get what comes next.")
    is_final = serializers.BooleanField(help_text="Whether nothing more will come.")


@dataclass(frozen=True)
class Cursor:
    """A client's position: the ids of the last log line and trial it has seen, and the status."""

    log: int = 0
    trial: int = 0
    status: str = ""

    @classmethod
    def read(cls, text: str) -> Cursor:
        """The cursor in an address, the beginning if empty; :exc:`ValidationError` if invalid."""
        if not text:
            return cls()
        try:
            log, trial, status = base64.urlsafe_b64decode(text.encode()).decode().split(".")
            cursor = cls(int(log), int(trial), status)
        except (binascii.Error, ValueError):
            cursor = cls(-1)
        if not (0 <= cursor.log < 2**63 and 0 <= cursor.trial < 2**63):
            raise ValidationError({"after": ["send the previous cursor, or nothing"]})
        return cursor

    def __str__(self) -> str:
        text = f"{self.log}.{self.trial}.{self.status}"
        return base64.urlsafe_b64encode(text.encode()).decode()


def has_news(analysis: Analysis, cursor: Cursor) -> bool:
    """Whether there is something after the cursor, or the analysis has ended."""
    return (
        analysis.is_final
        or analysis.status != cursor.status
        or analysis.log_lines.filter(pk__gt=cursor.log).exists()
        or analysis.trials.filter(pk__gt=cursor.trial).exists()
    )


def since(analysis: Analysis, cursor: Cursor) -> dict[str, Any]:
    """The events after a cursor.

    The status was read before the events, so a final one comes after all of them.
    """
    lines = list(analysis.log_lines.filter(pk__gt=cursor.log)[: MAX_EVENTS + 1])
    trials = list(analysis.trials.filter(pk__gt=cursor.trial)[: MAX_EVENTS + 1])
    is_cut = max(len(lines), len(trials)) > MAX_EVENTS
    lines, trials = lines[:MAX_EVENTS], trials[:MAX_EVENTS]
    events = sorted(
        [*map(_log_event, lines), *map(_trial_event, trials)], key=lambda event: event["at"]
    )
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


def _log_event(line: LogLine) -> dict[str, Any]:
    return {"kind": "log", "at": line.created_at, "level": line.level, "message": line.message}


def _trial_event(trial: Trial) -> dict[str, Any]:
    return {"kind": "trial", "at": trial.created_at, "trial": TrialSerializer(trial).data}


def _moment(analysis: Analysis) -> datetime:
    """The time of the analysis's current status; that of a request to cancel is not stored."""
    match analysis.status:
        case Status.QUEUED:
            return analysis.queued_at
        case Status.RUNNING:
            return analysis.started_at or analysis.queued_at
        case Status.CANCELLING:
            return timezone.now()
    return analysis.finished_at or analysis.queued_at
