"""Changes that would save most, and whom to ask about them.

They are the decisions of workloads for which nobody has adopted one, whatever their age, with the
savings that the lab's totals count for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from math import fsum
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, QuerySet
from django.utils import timezone

from analyses.figures.columns import change_of
from analyses.models import Analysis, CountedSavings, Mention
from analyses.notifications import inbox
from analyses.selectors import with_decision
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action

MAX_CHANGES = 5
MENTIONED_AGAIN_AFTER = timedelta(days=7)
MENTIONS_PER_DAY = 20


class TooOften(Exception):
    """A mention that comes too soon, or is one too many; the message says why."""


@dataclass(frozen=True)
class Change:
    """The decision of one analysis, as a change.

    Attributes:
        change: The change, in the engineer's words.
        usd_per_year: Its savings, at the hours, runs and price that its analysis assumes.
        at_low_end: Whether they count at the low end of the speedup's interval.
        mentioned: The latest mention of it; ``None`` if there is none that is recent.
    """

    analysis: Analysis
    change: str
    usd_per_year: float
    gpu_hours_per_year: float
    at_low_end: bool
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
    """The changes that save most, among these workloads."""
    potential = counted.filter(is_realised=False, usd_per_year__gt=0)
    rows = list(potential.order_by("-usd_per_year", "-analysis_id")[:MAX_CHANGES])
    owned = with_decision(Analysis.objects.select_related("owner")).defer("result")
    analyses = owned.in_bulk([row.pk for row in rows])
    best = [_change(row, analyses[row.pk]) for row in rows if row.pk in analyses]
    latest = latest_mentions([change.analysis.pk for change in best])
    found: dict[User, list[Change]] = {}
    for change in best:
        mentioned = latest.get(change.analysis.pk)
        found.setdefault(change.analysis.owner, []).append(replace(change, mentioned=mentioned))
    return Changes(list(found.items()))


def _change(row: CountedSavings, analysis: Analysis) -> Change:
    return Change(
        analysis, change_of(analysis), row.usd_per_year, row.gpu_hours_per_year, row.at_low_end
    )


def latest_mentions(analyses: Iterable[int]) -> dict[int, Mention]:
    """The latest mention of each of these analyses, if that is recent."""
    mentions = _recent_mentions(analyses).select_related("by").order_by("pk")
    return {mention.analysis_id: mention for mention in mentions}


def _recent_mentions(analyses: Iterable[int]) -> QuerySet[Mention]:
    after = timezone.now() - MENTIONED_AGAIN_AFTER
    return Mention.objects.filter(analysis__in=analyses, at__gt=after)


def can_mention(analysis: Analysis, member: User) -> bool:
    """Whether a member has something to mention to the analysis's owner."""
    is_theirs = analysis.owner_id != member.pk and analysis.owner.is_active
    if not (is_theirs and analysis.has_gain) or analysis.adopted_at:
        return False  # without a query, as on most pages
    is_new = ~Exists(_recent_mentions([analysis.pk]))
    return _potential(analysis).filter(is_new).exists()


def mention(analysis: Analysis, member: User) -> Mention:
    """Point out an analysis's change to its owner, by the channels that the owner has chosen.

    Raises:
        TooOften: It was mentioned within the last week, or the member has mentioned 20 today.
        LookupError: Nothing is to be saved by it.
    """
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=member.pk)  # counts one at a time
        row = _potential(analysis).first()
        if analysis.owner_id == member.pk:
            raise LookupError("it is your own analysis")
        if not analysis.owner.is_active:
            raise LookupError(f"{analysis.owner.username} has left the lab")
        if row is None:
            raise LookupError(f"analysis {analysis.pk} has no potential savings to mention")
        _check_rate(analysis, member)
        change = _change(row, analysis)
        made = Mention.objects.create(
            analysis=analysis,
            by=member,
            change=change.change[: Mention.MAX_LENGTH],
            usd_per_year=change.usd_per_year,
        )
        inbox.note_mention(made)
        audit.note(member, Action.CHANGE_MENTIONED, str(analysis), after=change.change)
    return made


def _potential(analysis: Analysis) -> QuerySet[CountedSavings]:
    """The savings of an analysis that the lab's totals count as potential, if any."""
    return CountedSavings.objects.filter(pk=analysis.pk, is_realised=False, usd_per_year__gt=0)


def _check_rate(analysis: Analysis, member: User) -> None:
    now = timezone.now()
    if latest_mentions([analysis.pk]):
        raise TooOften(
            f"analysis {analysis.pk} was mentioned in the last {MENTIONED_AGAIN_AFTER.days} days"
        )
    today: dict[str, Any] = {"by": member, "at__gt": now - timedelta(days=1)}
    if Mention.objects.filter(**today).count() >= MENTIONS_PER_DAY:
        raise TooOften(f"you have mentioned {MENTIONS_PER_DAY} changes in the last 24 hours")
