"""Things that await a decision: recommendations, failed analyses, and whom to ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.models import User
from django.db.models import Max, QuerySet
from django.utils import timezone

from analyses.models import Analysis, CountedSavings, Mention, Status
from analyses.overview.changes import Changes, changes_worth_most
from analyses.permissions import may_administer, may_work
from analyses.selectors import savings_visible_to, visible_to

SHOWN = 4
RECENT_FAILURES = timedelta(days=30)
_LOOKED_THROUGH = 12
"""Most recent failures that are searched for workloads without a later success."""


@dataclass(frozen=True)
class Decisions:
    """Things that await a decision.

    Attributes:
        own: This member's recommendations that are not adopted; those that save most first.
        failed: Recent failures, and what does not fit, whose workload has not succeeded since.
        changes: Changes to suggest to other members.
        mentions: What others have mentioned to this member, of what is not adopted; newest first.
    """

    own: Sequence[CountedSavings]
    failed: Sequence[Analysis]
    changes: Changes
    mentions: Sequence[Mention]

    @property
    def is_empty(self) -> bool:
        return not (self.own or self.failed or self.changes.count or self.mentions)


def decisions_of(user: User) -> Decisions:
    """This user's open decisions: their own, and changes they may mention to others."""
    counted = savings_visible_to(user)
    return Decisions(
        own=_own(counted, user),
        failed=_failed(user),
        changes=changes_worth_most(counted.exclude(member=user)),
        mentions=list(mentions_to(user)[:SHOWN]),
    )


def mentions_to(user: User) -> QuerySet[Mention]:
    """Mentions by others to this member that nobody has adopted, newest first."""
    found = Mention.objects.filter(analysis__owner=user, analysis__adopted_at=None)
    return found.select_related("analysis", "by").defer("analysis__request", "analysis__result")


def _own(counted: QuerySet[CountedSavings], user: User) -> list[CountedSavings]:
    potential = counted.filter(member=user, is_realised=False, usd_per_year__gt=0)
    # First only their numbers, which an index has.
    largest = list(potential.order_by("-usd_per_year").values_list("pk", flat=True)[:SHOWN])
    rows = CountedSavings.objects.filter(pk__in=largest).select_related("analysis__decided")
    long = ("analysis__result", "analysis__decided__before")
    return list(rows.defer(*long).order_by("-usd_per_year", "-pk"))


def _failed(user: User) -> list[Analysis]:
    """The most recent failures whose workload has not succeeded since.

    Members get their own. Admins, who may run anything again, and viewers, who have none, get
    everyone's.
    """
    failed = Analysis.objects.filter(
        status__in=(Status.FAILED, Status.LOST),
        queued_at__gte=timezone.now() - RECENT_FAILURES,
        adopted_at=None,  # changes that make it fit can be
    )
    if may_work(user) and not may_administer(user):
        failed = failed.filter(owner=user)
    # As above; another order would sort all that have ever failed.
    last = list(failed.order_by("-pk").values_list("pk", flat=True)[:_LOOKED_THROUGH])
    analyses = list(visible_to(user).filter(pk__in=last).defer("result"))
    answered = dict(
        Analysis.objects.filter(
            workload_key__in={analysis.workload_key for analysis in analyses},
            status=Status.SUCCEEDED,
        )
        .order_by()
        .values_list("workload_key")
        .annotate(Max("pk"))
    )
    open_ones = [row for row in analyses if row.pk > answered.get(row.workload_key, 0)]
    return open_ones[:SHOWN]
