from __future__ import annotations

import csv
from datetime import UTC, date, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from analyses import services
from analyses.models import Analysis, CountedSavings, Status
from analyses.pages import long_tables
from analyses.pages import savings as savings_page
from analyses.savings.breakdown import Totals, totals, totals_by
from analyses.savings.selection import Selection
from analyses.tests.factories import make_analysis, make_request, make_result, make_user
from engine.core.errors import InvalidInput
from engine.core.numbers import times
from engine.interface.trial import Source

pytestmark = pytest.mark.database


def succeeded(owner: User, usd: float | None, gpu_hours: float = 10.0, **fields: Any) -> Analysis:
    fields = {"usd_per_year": usd, "gpu_hours_per_year": gpu_hours} | fields
    return make_analysis(owner, Status.SUCCEEDED, **fields)


def of_lab() -> Totals:
    return totals(CountedSavings.objects.all())


def by(dimension: str) -> dict[Any, tuple[float, float]]:
    """Realised and potential USD for each value of a dimension."""
    return {
        row.key: (row.totals.realised.usd_per_year, row.totals.potential.usd_per_year)
        for row in totals_by(CountedSavings.objects.all(), dimension)
    }


# What counts


def test_an_empty_lab_saves_nothing(db: None) -> None:
    found = of_lab()
    for total in (found.realised, found.potential):
        assert (total.usd_per_year, total.gpu_hours_per_year, total.workloads) == (0, 0, 0)
        assert total.sources == ()


def test_realised_and_potential_are_separate(member: User) -> None:
    adopted = succeeded(member, 100.0, 50.0)
    services.adopt(adopted, member)
    succeeded(member, 7.0, 3.0, request=make_request(gpu="t4"))
    found = of_lab()
    assert (found.realised.usd_per_year, found.realised.gpu_hours_per_year) == (100.0, 50.0)
    assert (found.potential.usd_per_year, found.potential.gpu_hours_per_year) == (7.0, 3.0)
    assert (found.realised.workloads, found.potential.workloads) == (1, 1)


def test_energy_adds_up_over_the_workloads_whose_power_is_known(member: User) -> None:
    assert of_lab().potential.kwh_per_year is None
    for gpu, kwh in (("a10", 20.0), ("t4", 5.0), ("l4", None)):
        request = make_request(gpu=gpu)
        kg = None if kwh is None else kwh / 2
        succeeded(member, 7.0, request=request, kwh_per_year=kwh, kg_co2e_per_year=kg)
    found = of_lab()
    assert (found.potential.kwh_per_year, found.potential.kg_co2e_per_year) == (25.0, 12.5)
    assert found.realised.kwh_per_year is None


def test_a_repeated_workload_counts_once_with_its_newest_analysis(member: User) -> None:
    for usd in (100.0, 100.0, 80.0):
        succeeded(member, usd)
    assert of_lab().potential.usd_per_year == 80.0
    assert of_lab().potential.workloads == 1


def test_a_repeat_keeps_realised_savings(member: User) -> None:
    services.adopt(succeeded(member, 100.0), member)
    succeeded(member, 0.0, request=make_request(current_batch_size=128))
    assert of_lab().realised.usd_per_year == 100.0
    assert of_lab().potential.workloads == 0


def test_the_newest_adopted_analysis_counts(member: User) -> None:
    for usd in (100.0, 60.0):
        services.adopt(succeeded(member, usd), member)
    assert of_lab().realised.usd_per_year == 60.0


def test_undoing_an_adoption_makes_savings_potential_again(member: User) -> None:
    analysis = succeeded(member, 100.0)
    services.adopt(analysis, member)
    services.undo_adoption(analysis, analysis.owner)
    assert (of_lab().realised.usd_per_year, of_lab().potential.usd_per_year) == (0.0, 100.0)


def test_the_same_workload_of_two_members_counts_once(member: User) -> None:
    for owner in (member, make_user("alan")):
        succeeded(owner, 10.0)
    assert of_lab().potential.usd_per_year == 10.0
    assert by("member") == {("alan",): (0.0, 10.0)}


def test_a_shared_workload_counts_for_the_member_who_adopted_it(member: User) -> None:
    boss = make_user("boss", is_staff=True)
    services.adopt(succeeded(member, 10.0), boss)
    succeeded(make_user("alan"), 30.0)
    assert by("member") == {("boss",): (10.0, 0.0)}


@pytest.mark.parametrize("status", [Status.QUEUED, Status.RUNNING, Status.FAILED, Status.CANCELLED])
def test_an_analysis_without_a_result_does_not_hide_an_earlier_one(
    member: User, status: Status
) -> None:
    succeeded(member, 10.0)
    make_analysis(member, status)
    assert of_lab().potential.usd_per_year == 10.0


@pytest.mark.parametrize("usd", [0.0, None])
def test_without_a_gain_there_are_no_savings(member: User, usd: float | None) -> None:
    succeeded(member, usd)
    assert by("member") == {("grace",): (0.0, 0.0)}


def test_a_total_says_whether_its_speedups_were_measured(member: User) -> None:
    succeeded(member, 10.0)
    measured = make_result(source=Source.MEASURED)
    make_analysis(
        member, Status.SUCCEEDED, measured, request=make_request(gpu="t4"), usd_per_year=4.0
    )
    potential = of_lab().potential
    assert potential.sources == ("measured", "predicted")
    assert potential.measured_usd_per_year == 4.0


# Broken down


def test_totals_are_broken_down_by_member_model_gpu_and_month(member: User) -> None:
    alan = make_user("alan")
    march, may = datetime(2026, 3, 31, 23, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC)
    succeeded(member, 5.0, finished_at=march)
    succeeded(member, 7.0, finished_at=march, adopted_at=may, request=make_request(gpu="t4"))
    succeeded(alan, 11.0, finished_at=may, request=make_request(model="gpt2"))
    succeeded(
        alan, 13.0, finished_at=may, request=make_request(gpu="local"), measured_gpu="NVIDIA L4"
    )
    assert by("member") == {("alan",): (0.0, 24.0), ("grace",): (7.0, 5.0)}
    assert by("model") == {("bert",): (7.0, 18.0), ("gpt2",): (0.0, 11.0)}
    assert by("gpu") == {
        ("a10", ""): (0.0, 16.0),
        ("local", "NVIDIA L4"): (0.0, 13.0),
        ("t4", ""): (7.0, 0.0),
    }
    assert by("month") == {
        (date(2026, 5, 1),): (7.0, 24.0),
        (date(2026, 3, 1),): (0.0, 5.0),
    }


def test_the_largest_part_comes_first_and_the_newest_month(member: User) -> None:
    march, may = datetime(2026, 3, 31, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC)
    succeeded(make_user("alan"), 5.0, finished_at=may)
    succeeded(make_user("bob"), 1.0, finished_at=may, request=make_request(gpu="t4"))
    succeeded(member, 7.0, finished_at=march, request=make_request(gpu="l4"))
    assert list(by("member")) == [("grace",), ("alan",), ("bob",)]
    assert list(by("month")) == [(date(2026, 5, 1),), (date(2026, 3, 1),)]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("member", "grace", 8.0), ("member", "nobody", 0.0), ("model", "gpt2", 8.0),
        ("gpu", "local:NVIDIA L4", 13.0), ("gpu", "a10", 8.0), ("month", "2026-03", 8.0),
        ("month", "2025-03", 0.0), ("kind", "realised", 0.0), ("kind", "potential", 21.0),
    ],
)  # fmt: skip
def test_a_selection_filters_the_totals(
    member: User, field: str, value: str, expected: float
) -> None:
    march, may = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC)
    succeeded(member, 8.0, finished_at=march, request=make_request(model="gpt2"))
    local = make_request(gpu="local")
    succeeded(make_user("alan"), 13.0, finished_at=may, request=local, measured_gpu="NVIDIA L4")
    selection = Selection.parse({field: value, "page": "3"})
    chosen = selection.of(CountedSavings.objects.all())
    assert totals(chosen).potential.usd_per_year == expected


@pytest.mark.parametrize(
    "query",
    [
        {"by": "colour"},
        {"kind": "lost"},
        {"month": "2026-13"},
        {"member": "gr\0ace"},
        {"model": "\0"},
    ],
)
def test_an_invalid_selection_is_refused_by_field(query: dict[str, str]) -> None:
    with pytest.raises(InvalidInput) as refused:
        Selection.parse(query)
    assert refused.value.fields.keys() == query.keys()


# The page


def html_of(page: Client, query: str = "") -> str:
    response = page.get(reverse("analyses:savings") + query)
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.parametrize("name", ["savings", "savings-totals-csv", "savings-analyses-csv"])
def test_the_savings_page_requires_a_login(client: Client, db: None, name: str) -> None:
    assert client.get(reverse(f"analyses:{name}")).status_code == 302


def test_an_empty_page_explains_how_savings_arise(page: Client) -> None:
    html = html_of(page)
    assert "No savings yet" in html
    assert "Every successful analysis adds what its recommendation would save" in html
    assert "How savings are counted" not in html  # there is nothing to count


def test_the_page_shows_totals_the_formula_and_the_analyses(page: Client, member: User) -> None:
    analysis = succeeded(member, 1234.0, 56.0)
    html = html_of(page)
    for text in (
        "$1,230",
        "56.0",
        "How savings are counted",
        "1 / speedup)",
        "badge-predicted",
        "badge-assumed",
        f'href="/{analysis.pk}/"',
        'href="?member=grace&amp;kind=potential&amp;by=member"',
        'href="/savings/totals.csv?by=member"',
    ):
        assert text in html


def test_noise_is_no_gain_as_in_the_history(page: Client, member: User) -> None:
    succeeded(member, 1234.0, speedup=1.25)
    assert times(1.25) in html_of(page)
    succeeded(member, 0.0, 0.0, speedup=1.01, has_gain=False, request=make_request(model="gpt2"))
    html = html_of(page)
    assert "no gain" in html
    assert times(1.01) not in html


def test_an_analysis_without_a_speedup_has_no_savings(page: Client, member: User) -> None:
    make_analysis(member, Status.SUCCEEDED, make_result(current=384))
    html = html_of(page)
    assert "None" not in html
    assert "1 analysis, largest first" in html
    assert "no gain beyond the noise" in html


@pytest.mark.parametrize("dimension", ["member", "model", "gpu", "month"])
def test_each_total_links_to_its_analyses(page: Client, member: User, dimension: str) -> None:
    mine = succeeded(member, 5.0)
    march = datetime(2026, 3, 1, tzinfo=UTC)
    other = succeeded(
        make_user("alan"), 7.0, finished_at=march, request=make_request(model="gpt2", gpu="t4")
    )
    totals = html_of(page, f"?by={dimension}").split('id="totals-title"')[1]
    table = totals.split("<tbody>")[1].split("</tbody>")[0]
    behind = []
    for row in table.split("<tr>")[1:]:
        link = row.split('href="')[1].split('"')[0].replace("&amp;", "&")
        html = html_of(page, link)
        behind.append([a.pk for a in (mine, other) if f'href="/{a.pk}/"' in html])
    assert sorted(behind) == [[mine.pk], [other.pk]]


def test_an_invalid_address_says_what_to_enter(page: Client) -> None:
    response = page.get(reverse("analyses:savings") + "?month=soon")
    assert response.status_code == 404
    assert "use the form 2026-03" in response.content.decode()
    assert "No matching savings" in html_of(page, "?member=nobody")


def test_a_long_table_begins_short_and_can_be_had_whole(
    page: Client, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_tables, "FIRST_ROWS", 1)
    succeeded(member, 5.0)
    succeeded(make_user("alan"), 7.0, request=make_request(gpu="t4"))
    html = html_of(page, "?by=gpu")
    assert "The first 1 of 2 are shown" in html
    longer = html.split('are shown: <a href="')[1].split("#")[0].replace("&amp;", "&")
    whole = html_of(page, longer)
    assert "are shown" not in whole
    assert (rows_of(html), rows_of(whole)) == (1, 2)


def rows_of(html: str) -> int:
    """Number of rows of the breakdown."""
    return html.split('id="totals-title"')[1].split("</table>")[0].count('<th scope="row">')


def test_a_table_that_is_too_long_for_a_page_says_so(
    page: Client, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_tables, "FIRST_ROWS", 1)
    monkeypatch.setattr(long_tables, "MAX_ROWS", 1)
    succeeded(member, 5.0)
    succeeded(make_user("alan"), 7.0, request=make_request(gpu="t4"))
    assert "The first 1 of 2 are shown. The CSV has all of them." in html_of(page, "?rows=all")


def test_the_list_of_analyses_begins_as_short_as_the_tables(
    page: Client, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(savings_page, "FIRST_ROWS", 1)
    first = succeeded(member, 7.0)
    second = succeeded(member, 5.0, request=make_request(gpu="t4"))
    listed = [html_of(page, query).split('id="behind-title"')[1] for query in ("", "?page=2")]
    assert [f'href="/{first.pk}/"' in one for one in listed] == [True, False]
    assert [f'href="/{second.pk}/"' in one for one in listed] == [False, True]
    assert "Page 1 of 2" in listed[0]


# CSV


def lines(page: Client, name: str, query: str = "") -> list[dict[str, str]]:
    response = page.get(reverse(f"analyses:{name}") + query)
    assert response["Content-Type"].startswith("text/csv")
    return list(csv.DictReader(b"".join(response).decode().splitlines()))


def test_the_csv_has_what_the_page_shows(page: Client, member: User) -> None:
    analysis = succeeded(member, 5.0, 2.5)
    alan = make_user("alan")
    services.adopt(succeeded(alan, 7.0, request=make_request(gpu="t4")), alan)
    grace = {line["member"]: line for line in lines(page, "savings-totals-csv")}["grace"]
    assert (grace["potential_usd_per_year"], grace["realised_usd_per_year"]) == ("5.0", "0.0")
    (line,) = lines(page, "savings-analyses-csv", "?kind=potential")
    assert (line["analysis"], line["savings"]) == (str(analysis.pk), "potential")
    assert line["gpu_hours_per_year"] == "2.5"
    assert line["runs_per_year_assumed"] == "100.0"
    assert line["speedup_source"] == "predicted"


def test_the_csv_has_no_formulas_from_members(page: Client) -> None:
    succeeded(make_user("@SUM(1)"), 5.0)
    assert [line["member"] for line in lines(page, "savings-totals-csv")] == ["'@SUM(1)"]
    assert lines(page, "savings-totals-csv", "?member=@SUM(1)")


# The report of a month


def test_the_report_has_the_savings_of_its_month(page: Client, member: User) -> None:
    adopted_at = datetime(2026, 3, 1, tzinfo=UTC)
    succeeded(member, 3650.0, adopted_at=adopted_at, adopted_by=member)
    address = reverse("analyses:savings-report")
    report = page.get(f"{address}?month=2026-03").content.decode()
    assert "Savings in March 2026" in report
    assert "$300" in report  # thirty days
    assert "?of=2026-02" in report
    assert "$0" in page.get(f"{address}?month=2026-02").content.decode()
    for month in ("soon", "1999-01", "2999-01"):
        assert page.get(f"{address}?month={month}").status_code == 404


def test_an_empty_report_is_a_page_too(page: Client) -> None:
    report = page.get(reverse("analyses:savings-report")).content.decode()
    assert "$0" in report
    assert "Nothing was saved" in report
    assert "<table" not in report


def test_the_csv_over_time_ends_with_the_total(page: Client, member: User) -> None:
    succeeded(member, 365.0, adopted_at=datetime(2026, 3, 1, tzinfo=UTC), adopted_by=member)
    rows = lines(page, "savings-over-time-csv", "?from=2026-03-01&to=2026-03-11")
    assert (rows[-1]["by_end_of"], rows[-1]["saved_self_reported_usd"]) == ("2026-03-11", "10.0")
