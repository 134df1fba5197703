"""Removes what nobody needs any more, where whoever runs the site has said after how many days.

Nothing goes by itself. Whatever is set, an analysis that has succeeded stays with its figures, and
so does one that a member has tagged or written a note on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any

from django import db
from django.conf import settings
from django.db import connection
from django.db.models import QuerySet
from django.db.models.functions import Now

from analyses.models import FINAL_STATUSES, Analysis, Delivery, LogLine, Notification, Status

logger = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 3600.0

Rows = QuerySet[Any]


@dataclass(frozen=True)
class Rule:
    """What goes, and after how long.

    Attributes:
        setting: The environment variable with its number of days; 0 means never.
        what: The rows, in words.
        rows: Those that are at least so old.
        at_once: How many are removed in one go, so that nobody waits long for the database.
    """

    setting: str
    what: str
    rows: Callable[[timedelta], Rows]
    at_once: int

    @property
    def days(self) -> int:
        """After how many days; 0 means never."""
        days: int = settings.KEPT_DAYS[self.setting]
        return days

    def due(self) -> Rows:
        """The rows to remove now."""
        rows = self.rows(timedelta(days=self.days))
        return rows if self.days else rows.none()

    def remove_some(self) -> int:
        """Remove some of them; returns how many: fewer than :attr:`at_once` means that was all."""
        due = self.due()
        numbers = list(due.order_by().values_list("pk", flat=True)[: self.at_once])
        if numbers:
            due.model._base_manager.filter(pk__in=numbers).delete()
        return len(numbers)


def _log_lines(age: timedelta) -> Rows:
    ended = {"analysis__status__in": FINAL_STATUSES, "analysis__finished_at__lt": Now() - age}
    return LogLine.objects.filter(**ended)


def _without_answer(age: timedelta) -> Rows:
    given_up = (Status.FAILED, Status.CANCELLED, Status.LOST)
    old = Analysis.objects.filter(status__in=given_up, finished_at__lt=Now() - age)
    return old.filter(note=None, tags=None)


def _notifications(age: timedelta) -> Rows:
    ended = (Delivery.SENT, Delivery.GIVEN_UP)
    return Notification.objects.filter(status__in=ended, due_at__lt=Now() - age)


RULES = (
    Rule("MEMORYMARK_KEEP_LOG_DAYS", "log lines of analyses that have ended", _log_lines, 2000),
    Rule(
        "MEMORYMARK_KEEP_FAILED_DAYS",
        "analyses that have failed, were cancelled or lost, without tags and note",
        _without_answer,
        50,
    ),
    Rule(
        "MEMORYMARK_KEEP_NOTIFICATION_DAYS",
        "notifications sent or given up",
        _notifications,
        2000,
    ),
)


class Housekeeper:
    """Looks once an hour whether something is to go; removes some of it at each call until all has.

    Every node does it; of two that remove the same rows one finds nothing.
    """

    def __init__(self) -> None:
        self._look_at = 0.0

    def look(self) -> None:
        """Do a little; what the database does not take is tried again in an hour."""
        if monotonic() < self._look_at:
            return
        try:
            counts = [rule.remove_some() for rule in RULES]
            all_done = all(count < rule.at_once for count, rule in zip(counts, RULES, strict=True))
        except db.Error:
            logger.exception("what is to be removed stays for a while")
            connection.close()  # a broken one must not be used for the next try
            all_done = True
        if all_done:
            self._look_at = monotonic() + LOOK_EVERY_SECONDS
