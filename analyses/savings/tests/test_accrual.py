"""Savings so far: by assumption day by day, and by each recorded training run."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from hypothesis import given
from hypothesis import strategies as st

from analyses.charts.accrual import Plot, accrual_chart, accrual_plot
from analyses.models import Analysis, CountedSavings, RunSavings, Status
from analyses.savings.accrual import Amount, Saved, ledger, saved_by, saved_by_workload
from analyses.savings.certainty import counted, counts_at_low_end
from analyses.savings.period import Period, period_of
from analyses.tests.factories import make_analysis, make_request, make_training, make_user
from engine.answer.economics import Speedup
from engine.core.errors import InvalidInput

pytestmark = pytest.mark.database

TODAY = date(2026, 6, 30)


def at(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, 12, tzinfo=UTC)


def adopted(member: User, day: date, usd: float = 365.0, **fields: Any) -> Analysis:
    given: dict[str, Any] = {"usd_per_year": usd, "gpu_hours_per_year": usd / 2}
    given |= {"adopted_at": at(day), "adopted_by": member} | fields
    return make_analysis(member, Status.SUCCEEDED, **given)


def saved(first: date, last: date) -> Saved:
    """Three ways to the same number."""
    period = Period("", first, last)
    rows, runs = CountedSavings.objects.all(), RunSavings.objects.all()
    by_days = ledger(rows, runs, TODAY).during(period)
    by_query = sum(saved_by(rows, runs, ("gpu",), period).values(), Saved())
    by_row = sum(saved_by_workload(list(rows), period).values(), Saved())
    for other in (by_query, by_row):
        for part in ("verified", "self_reported", "potential"):
            one = vars(getattr(by_days, part))
            assert vars(getattr(other, part)) == pytest.approx(one, abs=1e-6)
        assert other.runs == by_days.runs
    return by_days


def test_an_adopted_workload_accrues_each_day_after_its_adoption(member: User) -> None:
    adopted(member, date(2026, 3, 1))
    assert saved(date(2026, 3, 1), date(2026, 3, 1)).realised.usd == 0
    march = saved(date(2026, 3, 1), date(2026, 3, 31))
    assert march.self_reported.usd == pytest.approx(30)
    assert march.self_reported.gpu_hours == pytest.approx(15)
    assert march.self_reported.usd_low < 30 < march.self_reported.usd_high
    assert march.verified.usd == march.potential.usd == 0
    assert saved(date(2026, 4, 1), date(2026, 4, 10)).realised.usd == pytest.approx(10)
    assert saved(date(2025, 1, 1), date(2026, 2, 28)).realised.usd == 0


def test_what_is_not_adopted_would_have_saved_since_its_answer(member: User) -> None:
    make_analysis(member, Status.SUCCEEDED, usd_per_year=365.0, finished_at=at(date(2026, 6, 20)))
    june = saved(date(2026, 6, 1), TODAY)
    assert june.potential.usd == pytest.approx(10)
    assert june.realised.usd == 0


def test_from_its_first_recorded_run_on_a_workload_accrues_by_runs(member: User) -> None:
    analysis = adopted(member, date(2026, 6, 1))
    speedup = analysis.speedup or 0
    price = analysis.result["savings"]["price_per_hour_usd"]  # type: ignore[index]  # it has one
    for day in (11, 20):
        make_training(analysis, 2.0, recorded_at=at(date(2026, 6, day)))
    june = saved(date(2026, 6, 1), TODAY)
    assert june.self_reported.usd == pytest.approx(9)  # 2 June to 10 June
    assert june.runs == 2
    assert june.verified.gpu_hours == pytest.approx(4 * (speedup - 1))
    assert june.verified.usd == pytest.approx(4 * (speedup - 1) * price)
    assert june.verified.usd_low < june.verified.usd < june.verified.usd_high
    assert saved(date(2026, 6, 12), date(2026, 6, 19)).realised.usd == 0


def test_runs_of_all_members_count_for_the_shared_workload(member: User) -> None:
    alan = make_user("alan")
    adopted(member, date(2026, 6, 1))
    theirs = make_analysis(alan, Status.SUCCEEDED)
    make_training(theirs, recorded_at=at(date(2026, 6, 5)))
    row = RunSavings.objects.get()
    assert (row.member, CountedSavings.objects.get().is_verified) == (member, True)


def test_without_an_adoption_no_run_counts(member: User) -> None:
    make_training(make_analysis(member, Status.SUCCEEDED))
    assert not RunSavings.objects.exists()
    assert not CountedSavings.objects.get().is_verified


def test_the_points_end_at_the_total(member: User) -> None:
    adopted(member, date(2025, 1, 1))
    adopted(member, date(2026, 2, 1), 73.0, request=make_request(gpu="t4"))
    book = ledger(CountedSavings.objects.all(), RunSavings.objects.all(), TODAY)
    for first in (date(2000, 1, 1), date(2026, 1, 1), TODAY):
        period = Period("", first, TODAY)
        points = book.points(period)
        assert points[0][1] == Saved()
        assert vars(points[-1][1].realised) == pytest.approx(vars(book.during(period).realised))
        assert [day for day, _ in points] == sorted({day for day, _ in points})
        assert len(points) <= 122


def test_a_projection_goes_on_at_the_present_rate(member: User) -> None:
    adopted(member, date(2026, 6, 20))
    book = ledger(CountedSavings.objects.all(), RunSavings.objects.all(), TODAY)
    projection = book.projected(TODAY)
    assert projection.until == date(2026, 12, 31)
    assert projection.to_come.usd == pytest.approx(184)
    assert projection.realised.usd == pytest.approx(194)


def test_an_empty_ledger_has_saved_nothing(db: None) -> None:
    book = ledger(CountedSavings.objects.all(), RunSavings.objects.all(), TODAY)
    assert book.during(period_of("all", "", "", TODAY)) == Saved()
    assert book.projected(TODAY).realised.usd == 0


# Which end counts


def test_only_an_outlier_that_nobody_measured_counts_at_its_low_end() -> None:
    outlier = Speedup(4.6, 4.0, 5.3)
    assert counts_at_low_end("predicted", outlier)
    assert not counts_at_low_end("measured", outlier)
    assert not counts_at_low_end("predicted", Speedup(1.5, 1.3, 1.75))
    assert not counts_at_low_end("predicted", Speedup(4.6, 4.5, 4.7))
    stored = {"speedup": 4.6, "speedup_low": 4.0, "speedup_high": 5.3}
    factors = counted("predicted", stored)
    assert factors.value == factors.low < 1 < factors.high
    assert factors.per_gpu_hour == pytest.approx(3.0)


@given(
    ratio=st.floats(1.01, 50),
    off=st.floats(0, 1),
    source=st.sampled_from(["measured", "predicted"]),
)
def test_what_counts_is_within_the_interval(ratio: float, off: float, source: str) -> None:
    stored = {"speedup": ratio, "speedup_low": ratio / (1 + off), "speedup_high": ratio * (1 + off)}
    factors = counted(source, stored)
    assert factors.low <= factors.value <= factors.high
    assert factors.per_gpu_hour_low <= factors.per_gpu_hour <= factors.per_gpu_hour_high


# Periods


@pytest.mark.parametrize(
    ("given", "first", "last"),
    [
        (("month", "", ""), date(2026, 6, 1), TODAY),
        (("quarter", "", ""), date(2026, 4, 1), TODAY),
        (("", "", ""), date(2026, 1, 1), TODAY),
        (("", "2026-02-03", ""), date(2026, 2, 3), TODAY),
        (("", "2026-02-03", "2026-02-04"), date(2026, 2, 3), date(2026, 2, 4)),
        (("", "2026-02-03", "2027-02-04"), date(2026, 2, 3), TODAY),
    ],
)
def test_a_period_is_named_or_given_by_its_days(
    given: tuple[str, str, str], first: date, last: date
) -> None:
    period = period_of(*given, TODAY)
    assert (period.first, period.last) == (first, last)
    assert period.days == (last - first + timedelta(days=1)).days


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (("week", "", ""), "period"),
        (("year", "2026-01-01", ""), "period"),
        (("", "soon", ""), "from"),
        (("", "1999-12-31", ""), "from"),
        (("", "2026-07-01", ""), "from"),
        (("", "2026-03-02", "2026-03-01"), "to"),
    ],
)
def test_an_impossible_period_is_refused(given: tuple[str, str, str], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        period_of(*given, TODAY)
    assert refused.value.fields.keys() == {field}


MAX_LABEL = len("$500k")
"""Characters of a label that fit beside the report's chart on a phone."""


@pytest.mark.parametrize(
    ("total", "labels"), [(0.0, "$,~g"), (0.9, "$,~g"), (999.0, "$,~g"), (1e5, "$,~s")]
)
def test_the_axis_of_small_sums_has_no_thousandths(total: float, labels: str) -> None:
    points = [(date(2026, 3, 1), Saved()), (date(2026, 3, 31), Saved(potential=Amount(usd=total)))]
    assert accrual_chart(points)["layout"]["yaxis"]["tickformat"] == labels


@given(st.floats(0.01, 1e9))
def test_the_report_marks_round_values_up_to_its_total(total: float) -> None:
    saved = Saved(verified=Amount(usd=total))
    days = [date(2026, 3, 1), date(2026, 3, 31)]
    marks = accrual_plot([(days[0], Saved()), (days[1], saved)]).ticks_y
    assert 2 <= len(marks) <= 6
    places = [y for y, _ in marks]
    assert places == sorted(places, reverse=True)
    assert (places[0], places[-1] >= Plot.top - 0.01) == (Plot.bottom, True)
    assert all(label.lstrip("$")[0] in "0123456789" for _, label in marks)
    assert total < 1 or max(len(label) for _, label in marks) <= MAX_LABEL
