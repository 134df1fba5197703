"""The kinds of job, and everything that differs between them except a worker's task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from django.db.models import F, Model
from django.db.models.functions import Now

from analyses.gpus.self_checks import Stored
from analyses.jobs import notifications, plans, timeouts
from analyses.jobs.engine_output import Failure
from analyses.models import (
    FINAL_STATUSES,
    OF_NOTIFICATION,
    OF_QUERY,
    Analysis,
    JobKind,
    LogLine,
    Node,
    Notification,
    Query,
    Status,
)
from analyses.training_runs import services as training_runs

Columns = Mapping[str, object]

ONCE_MORE = (timedelta(),)
"""One retry, at once: a job that took two workers down is not given to a third."""

NOTIFICATION_PAUSES = (
    timedelta(seconds=10),
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
)


@dataclass(frozen=True)
class Kind:
    """The differences of one kind of job from the others.

    Attributes:
        subject: The model of its subject.
        has_status: Whether the subject has a column for the state.
        statuses: The subject's own names for a job's states, where they differ.
        failed: The subject's columns with the reason of a failed attempt.
        entering: Other columns of the subject that change with a state.
        pauses: Before each retry of a job whose worker was lost; there is no retry after the last.
        retries_failures: Whether a failure is retried like a loss, or final.
        stale_after: After this long without a heartbeat, its worker counts as lost.
        taken: The subject's columns that say where it runs.
        after_end: Called in the same transaction with subjects that have ended.
        say: Adds a line to the subject's log, if it has one.
    """

    subject: type[Model]
    failed: Callable[[Failure], Columns]
    has_status: bool = True
    statuses: Mapping[Status, str] = field(default_factory=dict)
    entering: Callable[[Status], Columns] = lambda _state: {}
    pauses: tuple[timedelta, ...] = ONCE_MORE
    retries_failures: bool = False
    stale_after: timedelta = timeouts.STALE_AFTER
    taken: tuple[str, ...] = ()
    after_end: Callable[[Collection[int], Status], None] = lambda _numbers, _state: None
    say: Callable[[int, str], object] = lambda _number, _message: None

    def repeat(self, numbers: Collection[int], state: Status, columns: Columns) -> None:
        """Copy a state into the subjects' own rows, with other columns."""
        values: dict[str, Any] = {}
        if self.has_status:
            values["status"] = self.statuses.get(state, state)
        values |= self.entering(state)
        values |= columns
        if values:
            self.subject._base_manager.filter(pk__in=numbers).update(**values)
        if state in FINAL_STATUSES:
            self.after_end(numbers, state)


def _times_of_analysis(state: Status) -> Columns:
    if state == Status.RUNNING:
        return {"started_at": Now(), "attempt": F("attempt") + 1}
    if state == Status.QUEUED:
        return {"started_at": None, "failure_code": "", "failure_reason": ""}
    return {"finished_at": Now()} if state in FINAL_STATUSES else {}


def _analyses_ended(numbers: Collection[int], state: Status) -> None:
    notifications.note_ended(numbers)
    if state == Status.SUCCEEDED:
        training_runs.verify_reported(numbers)
    plans.ask_for(numbers)


def _query_failed(failure: Failure) -> Columns:
    said = {"code": failure.code, "reason": failure.message, "fields": dict(failure.fields)}
    return {"failure": said}


_QUERY = Kind(
    subject=Query,
    failed=_query_failed,
    statuses=OF_QUERY,
    entering=lambda state: {"progress": "", "rungs": []} if state == Status.RUNNING else {},
    stale_after=timeouts.SILENT_AFTER,  # someone is looking at the page
    taken=("node",),
)

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        JobKind.ANALYSIS: Kind(
            subject=Analysis,
            failed=lambda failure: {
                "failure_code": failure.code,
                "failure_reason": failure.message,
            },
            entering=_times_of_analysis,
            taken=("node", "environment"),
            after_end=_analyses_ended,
            say=lambda number, message: LogLine.objects.create(
                analysis_id=number, level="warning", message=message
            ),
        ),
        JobKind.PREDICT: _QUERY,
        JobKind.PLAN: replace(_QUERY, after_end=plans.queries_ended),
        JobKind.NOTIFICATION: Kind(
            subject=Notification,
            failed=lambda failure: {"last_error": failure.message},
            statuses=OF_NOTIFICATION,
            pauses=NOTIFICATION_PAUSES,
            retries_failures=True,
        ),
        JobKind.SELF_CHECK: Kind(
            subject=Node,
            has_status=False,
            failed=lambda failure: {"self_check": Stored(problem=failure.message).to_dict()},
        ),
    }
)
