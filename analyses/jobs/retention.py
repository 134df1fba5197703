"""Deletes old rows after the number of days in the environment variables; by default, never.

Succeeded analyses, and those with a tag or a note, are always kept.
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

from analyses.models import (
    FINAL_STATUSES,
    WITH_ANSWER,
    Analysis,
    Delivery,
    LogLine,
    Notification,
    Status,
    TrainingJob,
)

logger = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 3600.0

Rows = QuerySet[Any]


@dataclass(frozen=True)
class Rule:
    """A retention rule: the rows to delete, and after how long.

    Attributes:
        setting: The environment variable with the number of days; 0 means never.
        what: The rows, for a message.
        rows: The rows of at least a given age.
        at_once: Number deleted in one go, so that the database is not blocked for long.
    """

    setting: str
    what: str
    rows: Callable[[timedelta], Rows]
    at_once: int

    @property
    def days(self) -> int:
        days: int = settings.KEPT_DAYS[self.setting]
        return days

    def due(self) -> Rows:
        rows = self.rows(timedelta(days=self.days))
        return rows if self.days else rows.none()

    def remove_some(self) -> int:
        """Delete some; returns how many. Fewer than :attr:`at_once` means that was all."""
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
    return old.exclude(WITH_ANSWER).filter(note=None, tags=None)


def _notifications(age: timedelta) -> Rows:
    ended = (Delivery.SENT, Delivery.GIVEN_UP)
    return Notification.objects.filter(status__in=ended, job__finished_at__lt=Now() - age)


def _imported_jobs(age: timedelta) -> Rows:
    return TrainingJob.objects.filter(is_running=False, ended_at__lt=Now() - age)


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
    Rule("MEMORYMARK_KEEP_JOB_DAYS", "imported jobs that have ended", _imported_jobs, 2000),
)


class Housekeeper:
    """Once an hour, deletes a batch of rows at each call until none are due.

    Every node does it; if two pick the same rows, one of them finds nothing to delete.
    """

    def __init__(self) -> None:
        self._look_at = 0.0

    def look(self) -> None:
        """Delete a batch if it is time; after a database error, try again in an hour."""
        if monotonic() < self._look_at:
            return
        try:
            counts = [rule.remove_some() for rule in RULES]
            all_done = all(count < rule.at_once for count, rule in zip(counts, RULES, strict=True))
        except db.Error:
            logger.exception("what is to be removed stays for a while")
            connection.close()  # do not reuse a broken connection for the retry
            all_done = True
        if all_done:
            self._look_at = monotonic() + LOOK_EVERY_SECONDS
