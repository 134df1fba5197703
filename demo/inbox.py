"""Fills the inboxes of the demo's members with what the year brought them.

What is older than a month before the year's end has been read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import partial

from django.contrib.auth.models import User
from django.db import transaction

from analyses.figures.columns import change_of
from analyses.models import Analysis, CountedSavings, InboxEntry, Mention, TrainingRun
from analyses.notifications import inbox
from analyses.training_runs.outcome import note_run
from analyses.training_runs.services import store_report
from demo.plan import LOGIN
from demo.runs import report_of_today

UNREAD = timedelta(days=30)
_MENTIONS = (("amara", timedelta(days=2)), ("chen", timedelta(hours=20)))
"""Who mentions something to the demo's account, and how long before the end."""

_JOB_ENDED = timedelta(hours=9)

Happening = tuple[datetime, Callable[[], object]]
"""The time of something that concerns a member, and what adds it to the inbox."""


@transaction.atomic
def fill_inboxes(last_day: date) -> None:
    """Add the entries in order, once.

    Args:
        last_day: Last day of the demo's year.
    """
    if Mention.objects.exists():
        return
    end = datetime.combine(last_day, time(18), tzinfo=UTC)
    mine = _potential_of_login()
    report = report_of_today(mine[0], end - _JOB_ENDED) if mine else None
    if report:
        store_report(mine[0].owner, report)
    InboxEntry.objects.all().delete()  # those of reports, which come in their order now
    happenings = [*_ended(), *_reported(), *_mentioned(mine, end)]
    for at, add in sorted(happenings, key=lambda one: one[0]):
        before = InboxEntry.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
        add()
        added = InboxEntry.objects.filter(pk__gt=before)
        added.update(at=at, **({} if end - at < UNREAD else {"read_at": at}))


def _potential_of_login() -> list[Analysis]:
    """The analyses of the demo's account that wait for a decision, those that save most first."""
    rows = CountedSavings.objects.filter(
        member__username=LOGIN, is_realised=False, usd_per_year__gt=0
    )
    return [row.analysis for row in rows.order_by("-usd_per_year").select_related("analysis")]


def _ended() -> Iterator[Happening]:
    for analysis in Analysis.objects.filter(answered_from=None).select_related("owner", "decided"):
        if analysis.finished_at:
            yield analysis.finished_at, partial(inbox.note_ended, analysis)


def _reported() -> Iterator[Happening]:
    for run in TrainingRun.objects.select_related("analysis__owner"):
        yield run.recorded_at, partial(note_run, run)


def _mentioned(mine: list[Analysis], end: datetime) -> Iterator[Happening]:
    for analysis, (name, ago) in zip(mine, _MENTIONS, strict=False):
        by = User.objects.filter(username=name).first()
        if by:
            yield end - ago, partial(_mention, analysis, by, end - ago)


def _mention(analysis: Analysis, by: User, at: datetime) -> None:
    row = CountedSavings.objects.get(pk=analysis.pk)
    made = Mention.objects.create(
        analysis=analysis,
        by=by,
        change=change_of(analysis),
        usd_per_year=row.usd_per_year,
        at=at,
    )
    inbox.note_mention(made)
