"""The life of an analysis: the states it can be in, and the only way from one to the next.

::

    queued ──> running ──> succeeded | failed | lost (its workers vanished, and no more is tried)
      │ │        │  └────> queued (its worker was stopped or vanished; another goes on)
      │ │        └───────> cancelling ──> cancelled
      │ └────────────────> cancelled
      └──────────────────> succeeded (the store had the answer, or it was pushed with the question)

A final state is never left.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from types import MappingProxyType

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from analyses.models import FINAL_STATUSES, Analysis, Status
from analyses.notifications import outbox
from analyses.savings.counting import counted_anew

NEXT: Mapping[Status, frozenset[Status]] = MappingProxyType(
    {
        Status.QUEUED: frozenset({Status.RUNNING, Status.CANCELLED, Status.SUCCEEDED}),
        Status.RUNNING: frozenset(
            {
                Status.QUEUED,
                Status.CANCELLING,
                Status.CANCELLED,
                Status.SUCCEEDED,
                Status.FAILED,
                Status.LOST,
            }
        ),
        Status.CANCELLING: frozenset({Status.CANCELLED}),
        Status.LOST: frozenset(),
        Status.SUCCEEDED: frozenset(),
        Status.FAILED: frozenset(),
        Status.CANCELLED: frozenset(),
    }
)


def move(analyses: QuerySet[Analysis], start: Status, end: Status, **values: object) -> int:
    """Move those of the analyses that are in one state to another; the rest stay as they are.

    One conditional update: of several who try the same at once, one succeeds. The times come from
    the database's clock, so that machines whose clocks differ agree. With a final state, what is to
    be told of it is written too, and what its savings count, all or nothing.

    Args:
        analyses: What to move; more conditions may stand in it.
        start: The state they have to be in.
        end: The state they get.
        values: Columns that change with it; a time among them goes before the clock's.

    Returns:
        How many were moved.

    Raises:
        ValueError: If there is no way from ``start`` to ``end``.
    """
    if end not in NEXT[start]:
        raise ValueError(f"an analysis never goes from {start} to {end}")
    if end == Status.RUNNING:
        values |= {"started_at": Now(), "heartbeat_at": Now()}
    elif end == Status.QUEUED:
        values |= {
            "started_at": None,
            "finished_at": None,
            "failure_code": "",
            "failure_reason": "",
        }
    if end in FINAL_STATUSES:
        started = analyses.filter(status=start)
        ended = {"status": end, "finished_at": Now()} | values
        with counted_anew(started) if end == Status.SUCCEEDED else nullcontext():
            return _end(started, **ended)
    return analyses.filter(status=start).update(status=end, **values)


@transaction.atomic
def _end(analyses: QuerySet[Analysis], **values: object) -> int:
    """Give analyses their final state; a lock on the rows makes certain which they are."""
    locked = analyses.order_by("pk").select_for_update()
    ended = list(locked.values_list("pk", flat=True))
    if ended:
        Analysis.objects.filter(pk__in=ended).update(**values)
        outbox.note_ended(ended)
    return len(ended)
