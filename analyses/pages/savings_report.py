"""The report of a month, a quarter or a year: one page to print, and its CSV."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from analyses.charts.accrual import accrual_bar, accrual_description, accrual_plot
from analyses.pages.access import MemberRequest
from analyses.pages.savings import part_links
from analyses.pages.savings_export import report_csv
from analyses.savings.period import MIN_DAY, CalendarPeriod, Span
from analyses.savings.selected import Selected, selected_by
from analyses.savings.selection import Selection, today_utc

REPORTED_MEMBERS = 12
"""As many as fit on one sheet of paper."""


@dataclass(frozen=True)
class _Asked:
    """The period of a report, and the lab's savings."""

    of: CalendarPeriod
    today: date
    selected: Selected


@require_safe
def report(request: MemberRequest) -> HttpResponse:
    """Render the period on one page."""
    asked = _asked(request)
    of, today, book = asked.of, asked.today, asked.selected.ledger()
    period = of.until(today)
    saved, points = book.during(period), book.points(period)
    rows = asked.selected.saved_by_member(period)
    bar = accrual_bar(saved, part_links(Selection(from_=str(period.first), to=str(period.last))))
    months = of.months(today) if of.span is not Span.MONTH else []
    later = of.last + timedelta(days=1)
    context = {
        "nav": "savings",
        "of": of,
        "spans": [(span.name.lower(), CalendarPeriod.around(of.first, span)) for span in Span],
        "period": period,
        "saved": saved,
        "bar": bar,
        "description": accrual_description(points),
        "plot": accrual_plot(points) if bar else None,
        "months": [(month.name, book.during(month.until(today))) for month in months],
        "rows": rows[:REPORTED_MEMBERS],
        "rows_are_cut": len(rows) > REPORTED_MEMBERS,
        "earlier": CalendarPeriod.around(of.first - timedelta(days=1), of.span)
        if of.first > MIN_DAY
        else None,
        "later": CalendarPeriod.around(later, of.span) if later <= today else None,
    }
    return render(request, "savings/report.html", context)


@require_safe
def as_csv(request: MemberRequest) -> HttpResponseBase:
    """Savings of each member in each month of the period; all rows add up to the report."""
    asked = _asked(request)
    rows = (
        (str(month), name, saved)
        for month in asked.of.months(asked.today)
        for name, saved in asked.selected.saved_by_member(month.until(asked.today))
    )
    return report_csv(str(asked.of), rows)


def _asked(request: MemberRequest) -> _Asked:
    """The period of the address: this month without one; ``month`` is what older links have.

    Raises:
        Http404: There is no such period, or it has not begun.
    """
    today, named = today_utc(), request.GET.get("of") or request.GET.get("month", "")
    try:
        of = CalendarPeriod.parse(named) if named else CalendarPeriod.around(today, Span.MONTH)
    except ValueError as error:
        raise Http404("Use the form 2026-03, 2026-Q1 or 2026 for the period.") from error
    if not MIN_DAY <= of.first <= today:
        raise Http404("The period must be this one or an earlier one.")
    return _Asked(of, today, selected_by(request.user, {"by": "member"}))
