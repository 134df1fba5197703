"""One-line changes that would save most, and whom to ask about them.

They come from recent analyses and their ladders. A workload that nobody has adopted counts by the
best change of one line that is known for it: its recommended batch, or a rung of a stored ladder at
the low end of its speedup's interval, as rungs are predicted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import fsum
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from analyses.jobs import queue
from analyses.models import (
    Analysis,
    CountedSavings,
    Mention,
    Notification,
    Query,
    QueryKind,
    QueryStatus,
)
from analyses.notifications import channels
from analyses.queries import plan_request
from engine.core.errors import InvalidInput
from engine.core.numbers import whole
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action

RECENT = timedelta(days=90)
"""Maximum age, in days, of the analyses that changes come from."""

MOST = 5
_CANDIDATES = 15
"""Workloads that save most by their batch; a better rung can move one of them up."""

_PLANS = 200
"""Newest plans that are searched for changes."""

MENTIONED_AGAIN_AFTER = timedelta(days=7)
MENTIONS_PER_DAY = 20


class TooOften(Exception):
    """A mention that comes too soon, or is one too many; the message says why."""


@dataclass(frozen=True)
class Change:
    """One change of one line.

    Attributes:
        change: The change, in the engineer's words.
        usd_per_year: Its savings, at the hours, runs and price that its analysis assumes.
        mentioned: The latest mention of it; ``None`` if there is none that is recent.
    """

    analysis: Analysis
    change: str
    usd_per_year: float
    gpu_hours_per_year: float
    mentioned: Mention | None = None


@dataclass(frozen=True)
class Changes:
    """The changes worth most, those of one owner together."""

    by_owner: list[tuple[User, list[Change]]]

    @property
    def count(self) -> int:
        return sum(len(changes) for _, changes in self.by_owner)

    @property
    def usd_per_year(self) -> float:
        return fsum(one.usd_per_year for _, changes in self.by_owner for one in changes)


def changes_worth_most(counted: QuerySet[CountedSavings]) -> Changes:
    """The changes of one line that save most, among these workloads."""
    since = (timezone.now() - RECENT).date().toordinal()
    recent = counted.filter(is_realised=False, usd_per_year__gt=0, since_day__gte=since)
    rows = list(recent.order_by("-usd_per_year", "-analysis_id")[:_CANDIDATES])
    analyses = (
        Analysis.objects.select_related("owner").defer("result").in_bulk([row.pk for row in rows])
    )
    best = _best_changes([row for row in rows if row.pk in analyses], analyses)
    latest = _latest_mentions([change.analysis.pk for change in best[:MOST]])
    found: dict[User, list[Change]] = {}
    for change in best[:MOST]:
        mentioned = latest.get(change.analysis.pk)
        found.setdefault(change.analysis.owner, []).append(replace(change, mentioned=mentioned))
    return Changes(list(found.items()))


def _best_changes(rows: Sequence[CountedSavings], analyses: Mapping[int, Analysis]) -> list[Change]:
    """The best change of each workload, the one that saves most first."""
    ladders = _ladders(analyses.values())
    changes = [
        max(
            [
                _recommended(row, analyses[row.pk]),
                *_rungs(row, analyses[row.pk], ladders.get(row.pk, ())),
            ],
            key=lambda change: change.usd_per_year,
        )
        for row in rows
    ]
    return sorted(changes, key=lambda change: -change.usd_per_year)


def _ladders(analyses: Iterable[Analysis]) -> dict[int, list[dict[str, Any]]]:
    """The one-line changes by analysis, where a recent plan of it is stored."""
    plans = Query.objects.filter(kind=QueryKind.PLAN, status=QueryStatus.ANSWERED)
    recent = plans.order_by("-pk").values_list("request", "one_line")[:_PLANS]
    found = {_as_text(request): changes for request, changes in reversed(recent) if changes}
    return {row.pk: found.get(_plan_of(row), []) for row in analyses} if found else {}


def _plan_of(analysis: Analysis) -> str:
    try:
        return _as_text(plan_request(analysis).to_dict())
    except InvalidInput:  # on a GPU that cannot be predicted, or of another version
        return ""


def _as_text(request: Mapping[str, Any]) -> str:
    return json.dumps(request, sort_keys=True)


def _recommended(row: CountedSavings, analysis: Analysis) -> Change:
    now, then = map(whole, (analysis.current_batch_size, analysis.recommended_batch_size))
    return Change(analysis, f"batch {now} to {then}", row.usd_per_year, row.gpu_hours_per_year)


def _rungs(
    row: CountedSavings, analysis: Analysis, changes: Iterable[Mapping[str, Any]]
) -> Iterator[Change]:
    """The rungs at the low end of their interval: nobody has measured them."""
    request = analysis.request
    hours = float(request["hours_per_run"]) * float(request["runs_per_year"])
    price = row.usd_per_year / row.gpu_hours_per_year if row.gpu_hours_per_year else 0.0
    for change in changes:
        saved = hours * (1 - 1 / float(change["speedup_low"]))
        yield Change(analysis, ", ".join(change["moves"]), saved * price, saved)


def _latest_mentions(analyses: Iterable[int]) -> dict[int, Mention]:
    after = timezone.now() - MENTIONED_AGAIN_AFTER
    mentions = Mention.objects.filter(analysis__in=analyses, at__gt=after).select_related("by")
    return {mention.analysis_id: mention for mention in mentions.order_by("pk")}


def mention(analysis: Analysis, member: User) -> Mention:
    """Point out an analysis's change to its owner, by the channels that the owner has chosen.

    Raises:
        TooOften: It was mentioned within the last week, or the member has mentioned 20 today.
        LookupError: Nothing is to be saved by it.
    """
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=member.pk)  # counts one at a time
        row = CountedSavings.objects.filter(pk=analysis.pk, is_realised=False).first()
        if analysis.owner_id == member.pk:
            raise LookupError("it is your own analysis")
        if not analysis.owner.is_active:
            raise LookupError(f"{analysis.owner.username} has left the lab")
        if row is None or row.usd_per_year <= 0:
            raise LookupError(f"analysis {analysis.pk} has no potential savings to mention")
        _check_rate(analysis, member)
        (change,) = _best_changes([row], {analysis.pk: analysis})
        made = Mention.objects.create(
            analysis=analysis,
            by=member,
            change=change.change[: Mention.LONGEST],
            usd_per_year=change.usd_per_year,
        )
        for channel in channels.channels_of(channels.choices_of(analysis.owner)):
            told = Notification.objects.create(analysis=analysis, mention=made, channel=channel)
            queue.enqueue(told)
        audit.note(member, Action.CHANGE_MENTIONED, str(analysis), after=change.change)
    return made


def _check_rate(analysis: Analysis, member: User) -> None:
    now = timezone.now()
    if _latest_mentions([analysis.pk]):
        raise TooOften(
            f"analysis {analysis.pk} was mentioned in the last {MENTIONED_AGAIN_AFTER.days} days"
        )
    today: dict[str, Any] = {"by": member, "at__gt": now - timedelta(days=1)}
    if Mention.objects.filter(**today).count() >= MENTIONS_PER_DAY:
        raise TooOften(f"you have mentioned {MENTIONS_PER_DAY} changes in the last 24 hours")
