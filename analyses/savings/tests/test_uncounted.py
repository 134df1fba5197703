"""The lead's list: every saving, largest first, with why it is not counted; and one truth."""

from __future__ import annotations

import csv
import re
from datetime import UTC, date, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from django.utils.html import strip_tags
from hypothesis import given
from hypothesis import strategies as st

from analyses import services
from analyses.charts.accrual import PARTS, accrual_bar, accrual_chart, accrual_plot
from analyses.models import Analysis, Status
from analyses.overview.changes import mention
from analyses.savings.accrual import Amount, Saved
from analyses.savings.period import CalendarPeriod, Span
from analyses.tests.factories import make_analysis, make_request, make_training, make_user
from engine.core.numbers import usd

pytestmark = pytest.mark.database


def rows(page: Client, address: str) -> list[str]:
    """The table of analyses, a line of text for each."""
    table = page.get(address).content.decode().split('id="behind-title"')[1]
    lines = table.split("<tbody>")[1].split("</tbody>")[0].split("<tr>")[1:]
    return [
        " ".join(unescape(strip_tags(line.replace("<small", " <small"))).split()) for line in lines
    ]


def analysis_of(owner: User, gpu: str, worth: float, **fields: Any) -> Analysis:
    request = make_request(gpu=gpu, current_batch_size=16)
    given: dict[str, Any] = {"usd_per_year": worth, "gpu_hours_per_year": worth / 2}
    return make_analysis(owner, Status.SUCCEEDED, request=request, **given | fields)


def adopted(owner: User, gpu: str, worth: float, days_ago: int, **fields: Any) -> Analysis:
    at = timezone.now() - timedelta(days=days_ago)
    return analysis_of(owner, gpu, worth, adopted_at=at, adopted_by=owner, **fields)


# The list


def test_all_potential_is_listed_largest_first_whatever_its_age(page: Client, member: User) -> None:
    old = timezone.now() - timedelta(days=800)
    analysis_of(member, "t4", 50.0)
    analysis_of(member, "a10", 500.0, finished_at=old)
    analysis_of(member, "l4", 5.0)
    found = rows(page, "/savings/?kind=potential")
    assert [re.findall(r"\$[\d.]+(?= \$)", line)[0] for line in found] == [
        "$500",
        "$50.00",
        "$5.00",
    ]
    assert all("potential" in line and "not adopted" in line for line in found)


def test_the_list_says_who_was_asked_and_who_has_left(page: Client, member: User) -> None:
    theirs = analysis_of(make_user("alan"), "a10", 500.0)
    mention(theirs, member)
    (line,) = rows(page, "/savings/?kind=potential")
    assert f"not adopted; mentioned by grace on {timezone.now():%Y-%m-%d}" in line
    User.objects.filter(username="alan").update(is_active=False)
    assert "not adopted, and alan has left" in rows(page, "/savings/?kind=potential")[0]


def test_an_adopted_one_says_why_it_is_not_verified(page: Client, member: User) -> None:
    first = adopted(member, "a10", 300.0, 10)
    second = adopted(member, "t4", 200.0, 10)
    third = adopted(member, "l4", 100.0, 10)
    make_training(second, verifies=False, batch_size=16)
    make_training(third)
    lines = rows(page, "/savings/")
    assert f"#{first.pk} " in lines[0]
    assert "self-reported" in lines[0]
    assert "not verified: no training run was recorded" in lines[0]
    assert "not verified: its last run trained with batch 16, not 128" in lines[1]
    assert "not " not in lines[2].split("verified")[-1]
    assert "verified" in lines[2]


def test_an_older_analysis_of_a_workload_is_superseded(page: Client, member: User) -> None:
    older, newer = analysis_of(member, "a10", 900.0), analysis_of(member, "a10", 100.0)
    lines = rows(page, "/savings/superseded/")
    assert len(lines) == 1
    assert lines[0].startswith(f"#{older.pk} ")
    assert f"not counted #{newer.pk} is newer and counts for this workload" in lines[0]
    services.adopt(older, member)
    (line,) = rows(page, "/savings/superseded/")
    assert f"#{older.pk} is adopted and counts for this workload" in line


def test_superseded_ones_are_filtered_like_the_totals(page: Client, member: User) -> None:
    for owner, gpu in ((member, "a10"), (make_user("alan"), "t4")):
        analysis_of(owner, gpu, 900.0)
        analysis_of(owner, gpu, 100.0)
    assert len(rows(page, "/savings/superseded/")) == 2
    assert len(rows(page, "/savings/superseded/?member=alan")) == 1
    assert len(rows(page, "/savings/superseded/?gpu=t4&model=bert")) == 1
    assert rows(page, "/savings/superseded/?model=gpt2") == ["None."]
    assert page.get("/savings/superseded/?kind=odd").status_code == 404


# The bar


amounts = st.floats(0, 1e9).map(lambda value: Amount(value, value, value, value))


@given(st.builds(Saved, amounts, amounts, amounts))
def test_potential_stands_apart_from_what_is_saved_on_the_same_scale(saved: Saved) -> None:
    bar = {part.category: part for part in accrual_bar(saved, dict.fromkeys(PARTS, "/"))}
    if not bar:
        assert saved.realised.usd + saved.potential.usd == 0
        return
    verified, reported, potential = (bar[part] for part in PARTS)
    end = reported.start + reported.width
    assert verified.start == 0
    assert reported.start == pytest.approx(verified.width, abs=0.01)
    if saved.realised.usd and saved.potential.usd:
        assert potential.start == pytest.approx(end + 2, abs=0.01)
    assert potential.start + potential.width == pytest.approx(100, abs=0.01)


def test_no_chart_stacks_potential_on_what_is_saved() -> None:
    days = [date(2026, 1, 1) + timedelta(days=n) for n in range(3)]
    saved = Saved(Amount(10), Amount(20), Amount(15))
    points = [(day, saved) for day in days]
    stacked = {trace["name"] for trace in accrual_chart(points)["data"] if "stackgroup" in trace}
    assert stacked == {"Verified", "Self-reported"}
    plot = accrual_plot(points)
    assert [part for part, _ in plot.areas] == ["verified", "self_reported"]
    top = min(float(pair.split(",")[1]) for pair in plot.areas[1][1].split())
    assert float(plot.potential.split()[0].split(",")[1]) > top  # 15 is below 30


# One truth


@pytest.fixture
def lab(member: User) -> Client:
    """A lab with all parts: one workload accrued by assumption before its first run."""
    at = timezone.now()
    both = adopted(member, "a10", 3650.0, 40)
    make_training(both, hours=3.0, recorded_at=at - timedelta(days=5))
    make_training(both, hours=2.0, recorded_at=at - timedelta(days=2))
    adopted(make_user("alan"), "t4", 1825.0, 20)
    analysis_of(member, "l4", 7300.0, finished_at=at - timedelta(days=30))
    client = Client()
    client.force_login(member)
    return client


_COLUMNS = {
    "verified": "saved_verified_usd",
    "self_reported": "saved_self_reported_usd",
    "potential": "potential_usd",
}


def from_csv(page: Client, address: str) -> dict[str, float]:
    response = page.get(address)
    lines = list(csv.DictReader(b"".join(response).decode().lstrip("\ufeff").splitlines()))
    if lines and "by_end_of" in lines[0]:
        lines = lines[-1:]
    return {part: sum(float(line[name]) for line in lines) for part, name in _COLUMNS.items()}


def test_each_number_is_the_same_everywhere(lab: Client) -> None:
    api = lab.get("/api/v1/savings/?period=all").json()["saved"]
    truth = {part: api[part]["usd"] for part in PARTS}
    assert all(value > 0 for value in truth.values())
    assert api["realised"]["usd"] == pytest.approx(truth["verified"] + truth["self_reported"])

    for address in ("totals.csv", "over-time.csv", "analyses.csv"):
        assert from_csv(lab, f"/savings/{address}?period=all") == pytest.approx(truth), address
    for part in PARTS:  # what opens behind a part of the bar adds up to it
        found = from_csv(lab, f"/savings/analyses.csv?period=all&kind={part}")
        assert found[part] == pytest.approx(truth[part]), part

    year = timezone.now().astimezone(UTC).year
    years = [from_csv(lab, f"/savings/report.csv?of={one}") for one in (year - 1, year)]
    assert {part: sum(one[part] for one in years) for part in PARTS} == pytest.approx(truth)

    this_year = lab.get("/api/v1/savings/").json()["saved"]
    for address in ("/", "/savings/", f"/savings/report/?of={year}"):
        text = " ".join(re.sub(r"<[^>]*>", " ", lab.get(address).content.decode()).split())
        for part, name in PARTS.items():
            shown = rf"{name}( , not saved)? {re.escape(usd(this_year[part]['usd']))}"
            assert re.search(shown, text), (address, part)
        assert usd(this_year["realised"]["usd"]) in text, address


def test_each_part_of_the_bar_opens(lab: Client) -> None:
    for address in ("/", "/savings/", "/savings/report/"):
        html = unescape(lab.get(address).content.decode())
        for part in PARTS:
            (link,) = set(re.findall(rf'href="([^"]*kind={part}[^"]*#behind-title)"', html)[:1])
            assert rows(lab, link.split("#")[0])


# Reports


@given(st.dates(date(2000, 1, 1), date(2100, 12, 31)), st.sampled_from(Span))
def test_a_calendar_period_is_read_as_it_is_written(day: date, span: Span) -> None:
    period = CalendarPeriod.around(day, span)
    assert CalendarPeriod.parse(str(period)) == period
    assert period.first <= day <= period.last
    after = CalendarPeriod.around(period.last + timedelta(days=1), span)
    assert after.first == period.last + timedelta(days=1)
    assert len(period.months(period.last)) == span


@pytest.mark.parametrize("named", ["2026-3", "2026-13", "2026-Q5", "26", "2026-q1", "1999", "2999"])
def test_another_period_is_refused(page: Client, named: str) -> None:
    for address in ("/savings/report/", "/savings/report.csv"):
        assert page.get(address, {"of": named}).status_code == 404


def test_quarter_and_year_have_their_months(page: Client, member: User) -> None:
    adopted_at = datetime(2025, 1, 31, tzinfo=UTC)
    analysis_of(member, "a10", 365.0, adopted_at=adopted_at, adopted_by=member)
    quarter = strip_tags(page.get("/savings/report/?of=2025-Q1").content.decode())
    assert "Savings in Q1 2025" in quarter
    assert "2025-01-01 to 2025-03-31 (UTC)" in quarter
    assert [m for m in ("January 2025", "February 2025", "March 2025") if m in quarter] != []
    assert "$59.00" in quarter  # 28 and 31 days
    year = strip_tags(page.get("/savings/report/?of=2025").content.decode())
    assert "Savings in 2025" in year
    assert "December 2025" in year
    assert "$334" in year
