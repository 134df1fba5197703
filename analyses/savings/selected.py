"""The savings that an address selects, among those that a user may see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from django.contrib.auth.models import User
from django.db.models import QuerySet

from analyses.models import CountedSavings, RunSavings
from analyses.permissions import may_see_lab
from analyses.savings import kept
from analyses.savings.accrual import Ledger, Saved, ledger, saved_by
from analyses.savings.breakdown import DIMENSIONS, BreakdownRow, totals_by
from analyses.savings.period import Period
from analyses.savings.selection import Selection, today_utc
from analyses.selectors import run_savings_visible_to, savings_visible_to

T = TypeVar("T")


@dataclass(frozen=True)
class Selected:
    """An address's selection: counted savings, and the savings of runs.

    Its totals are added up once until counted savings change.
    """

    selection: Selection
    counted: QuerySet[CountedSavings]
    runs: QuerySet[RunSavings]
    is_visible: bool

    @cached_property
    def _version(self) -> kept.Version:
        return kept.version()

    def _kept(self, what: str, selection: Selection, add_up: Callable[[], T]) -> T:
        key = (what, selection, self.is_visible, today_utc(), self._version)
        return kept.kept(key, add_up)

    def saved_by_member(self, period: Period) -> list[tuple[str, Saved]]:
        """The savings of each member in a period, the largest first."""
        by_member = replace(self.selection, from_=str(period.first), to=str(period.last))
        found = self._kept(
            "members",
            by_member,
            lambda: saved_by(self.counted, self.runs, ("member",), period),
        )
        names = User.objects.in_bulk([member for (member,) in found])
        rows = [(names[member].get_username(), saved) for (member,), saved in found.items()]
        return sorted(rows, key=lambda row: (-row[1].realised.usd, row[0]))

    def rows(self) -> list[BreakdownRow]:
        return self._kept("rows", self.selection, self._rows)

    def _rows(self) -> list[BreakdownRow]:
        by, days = self.selection.by, self.selection.days
        return totals_by(self.counted, by, saved_by(self.counted, self.runs, DIMENSIONS[by], days))

    def ledger(self) -> Ledger:
        of_all_time = replace(self.selection, period="", from_="", to="", by="member")
        return self._kept("ledger", of_all_time, self._ledger)

    def _ledger(self) -> Ledger:
        return ledger(self.counted, self.runs, today_utc())


def selected_by(user: User, query: Mapping[str, str]) -> Selected:
    """The selection of a query among what this user may see.

    Raises:
        InvalidInput: With a message for each wrong field.
    """
    selection = Selection.parse(query)
    return Selected(
        selection,
        selection.of(savings_visible_to(user)),
        selection.of(run_savings_visible_to(user)),
        may_see_lab(user),
    )
