"""The comparison: its address, its table, and who may see it."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.http import QueryDict
from django.test import Client
from django.urls import reverse

from analyses.models import Analysis, Status
from analyses.pages.compare.columns import MAX_ANALYSES, Choice
from analyses.pages.new.sweep import MAX_COMPARED
from analyses.pages.tests.compared import html_of, ids, make
from analyses.tests.factories import make_analysis, make_request

HOSTILE = "<script>alert(1)</script>"


@pytest.mark.parametrize("name", ["compare", "compare-bars", "compare-markdown", "compare-csv"])
def test_comparing_requires_a_login(client: Client, three: list[Analysis], name: str) -> None:
    response = client.get(reverse(f"analyses:{name}"), {"ids": ids(three)})
    assert response.status_code == 302
    assert response["Location"].startswith(reverse("account_login"))


def test_each_analysis_is_a_column_and_the_first_the_baseline(
    page: Client, three: list[Analysis]
) -> None:
    html = html_of(page, f"?ids={ids(three)}")
    head = html.split("<thead>")[1].split("</thead>")[0]
    assert head.count('<th scope="col"') == 3
    assert head.index("NVIDIA A10<") < head.index("NVIDIA A100") < head.index("NVIDIA H100")
    assert head.split("compare-base")[1].index("NVIDIA A10<") < head.split("compare-base")[1].index(
        "NVIDIA A100"
    )
    assert "alan" in head
    for text in ("Settings", "Results", "predicted", "assumed", "3.8×"):
        assert text in html


def test_columns_have_the_order_of_the_address(page: Client, three: list[Analysis]) -> None:
    html = html_of(page, f"?ids={ids(three[::-1])}&base={three[1].pk}")
    head = html.split("<thead>")[1].split("</thead>")[0]
    assert head.index("NVIDIA H100") < head.index("NVIDIA A100") < head.index("NVIDIA A10<")


def test_results_stand_above_settings(page: Client, three: list[Analysis]) -> None:
    html = html_of(page, f"?ids={ids(three)}")
    assert html.index(">Results<") < html.index(">Settings<")


def test_the_baseline_has_no_differences(page: Client, three: list[Analysis]) -> None:
    html = html_of(page, f"?ids={ids(three[:2])}&base={three[1].pk}")
    row = html.split("Largest batch that fits</th>")[1].split("</tr>")[0]
    assert row.count("delta-worse") == 1
    assert "\N{MINUS SIGN}74%" in row


def test_only_differences_hides_equal_rows(page: Client, three: list[Analysis]) -> None:
    every, differing, old = (
        html_of(page, f"?ids={ids(three)}{rows}") for rows in ("&all=1", "", "&diff=1")
    )
    for text in (
        f'scope="row">{one}<' for one in ("Optimizer", "Sequence length", "Recommended batch")
    ):
        assert text in every
        assert text not in differing
    for text in ('scope="row">GPU<', 'scope="row">Largest batch that fits<'):
        assert text in differing
    assert "identical row" in differing
    assert old.count('scope="row"') == differing.count('scope="row"')
    assert "all=1" in every.split("compare-links")[1]  # the links keep the switch


def test_a_setting_of_only_one_analysis_is_a_row(page: Client, member: User) -> None:
    pair = [make(member), make(member, lora_rank=16)]
    row = html_of(page, f"?ids={ids(pair)}").split('scope="row">LoRA rank<')[1].split("</tr>")[0]
    assert "\N{EN DASH}" in row
    assert ">16<" in row


def test_columns_differ_even_if_the_settings_are_equal(page: Client, member: User) -> None:
    pair = [make(member), make(member)]
    html = html_of(page, f"?ids={ids(pair)}")
    for analysis in pair:
        assert f'aria-label="Remove NVIDIA A10 · #{analysis.pk}"' in html


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?ids={a},{b},4711,4712", "There are no analyses 4711 and 4712."),
        ("?ids={a},{b},4711", "There is no analysis 4711."),
        ("?ids={a},{b},x,-3", "Not an analysis number: x, -3."),
        ("?ids={a},{b}," + "9" * 40, "Not an analysis number: 99999999999999999999…."),
        ("?ids={a},{b}&base=4711", "Baseline 4711 is not among these analyses; using analysis {a}"),
        ("?ids={a},{b}&base=" + HOSTILE, "Baseline &lt;script&gt;"),
        ("?ids={a},{b}," + HOSTILE, "Not an analysis number: &lt;script&gt;"),
    ],
)
def test_problems_in_the_address_are_shown_beside_the_rest(
    page: Client, three: list[Analysis], query: str, said: str
) -> None:
    known = {"a": three[0].pk, "b": three[1].pk}
    html = html_of(page, query.format(**known))
    assert said.format(**known) in html
    assert html.count('<th scope="col"') == 2
    assert HOSTILE not in html


def test_only_so_many_are_shown_and_the_others_are_named(page: Client, member: User) -> None:
    many = [make(member) for _ in range(MAX_ANALYSES + 1)]
    html = html_of(page, f"?ids={ids(many)}")
    assert html.split("<thead>")[1].count('<th scope="col"') == MAX_ANALYSES
    assert f"Left out: {many[-1].pk}." in html


def test_all_that_the_form_submits_together_are_shown() -> None:
    assert MAX_ANALYSES >= MAX_COMPARED


# With fewer than two


def chosen_in_history(page: Client, query: str) -> tuple[str, str]:
    """Where a comparison of fewer than two leads, and the page there."""
    response = page.get(reverse("analyses:compare") + query, follow=True)
    ((address, status),) = response.redirect_chain
    assert status == 302
    return address, response.content.decode()


@pytest.mark.parametrize("query", ["", "?ids=", "?ids=x"])
def test_comparing_starts_in_the_history(page: Client, three: list[Analysis], query: str) -> None:
    address, html = chosen_in_history(page, query)
    assert address == reverse("analyses:list")
    assert "Tick two or more analyses, then select Compare" in html
    assert ("Not an analysis number: x." in html) == ("x" in query)


@pytest.mark.parametrize("query", ["?ids={a}", "?ids={a},{a}", "?ids={a},4711"])
def test_one_analysis_is_ticked_among_those_of_its_model(
    page: Client, three: list[Analysis], query: str
) -> None:
    first = three[0].pk
    address, html = chosen_in_history(page, query.format(a=first))
    assert address == f"{reverse('analyses:list')}?model=bert&tick={first}"
    assert f"Tick the analyses to compare with #{first}" in html
    assert f'data-tick="{first}"' in html
    assert ("There is no analysis 4711." in html) == ("4711" in query)


def test_a_comparison_whose_analyses_are_deleted_meanwhile_leads_to_the_history(
    page: Client, three: list[Analysis]
) -> None:
    response = page.get(
        f"{reverse('analyses:compare')}?ids={three[0].pk},4711&seen=queued-queued",
        headers={"HX-Request": "true"},
    )
    assert response["HX-Redirect"].startswith(reverse("analyses:list"))


def test_adding_analyses_leads_to_the_history_with_those_compared_ticked(
    page: Client, three: list[Analysis], member: User
) -> None:
    assert f'href="/history/?model=bert&amp;tick={ids(three)}"' in html_of(
        page, f"?ids={ids(three)}"
    )
    other = make(member, model="gpt2")
    pair = ids([three[0], other])
    assert f'href="/history/?tick={pair}"' in html_of(page, f"?ids={pair}")


def test_ticked_boxes_add_to_the_numbers(page: Client, three: list[Analysis]) -> None:
    first, second, third = (analysis.pk for analysis in three)
    html = html_of(page, f"?ids={first}&ids={second}&ids={third}")
    assert html.split("<thead>")[1].split("</thead>")[0].count('<th scope="col"') == 3


def test_removing_the_baseline_makes_the_next_one_the_baseline(
    page: Client, three: list[Analysis]
) -> None:
    first, second, third = (analysis.pk for analysis in three)
    html = html_of(page, f"?ids={ids(three)}")
    assert f"?ids=,{second},{third}&amp;base={second}" in html
    assert f"?ids={first},,{third}&amp;base={first}" in html


@pytest.mark.parametrize("status", [Status.QUEUED, Status.RUNNING, Status.FAILED])
def test_an_analysis_without_a_result_shows_its_settings(
    page: Client, three: list[Analysis], member: User, status: Status
) -> None:
    other = make_analysis(member, status, request=make_request(model="gpt2", gpu="t4"))
    html = html_of(page, f"?ids={other.pk},{three[0].pk}")
    assert "GPT-2" in html
    assert f"status-{status}" in html
    assert "no answer" in html  # in the chart's description


def test_a_result_of_another_version_is_marked(page: Client, three: list[Analysis]) -> None:
    Analysis.objects.filter(pk=three[0].pk).update(result={"of": "long ago"})
    html = html_of(page, f"?ids={ids(three)}")
    assert "cannot be shown" in html
    assert (
        html.split("Largest batch that fits</th>")[1]
        .split("</td>")[0]
        .strip()
        .endswith("\N{EN DASH}</span>")
    )


def test_a_colour_stays_with_its_analysis_when_another_is_removed(
    page: Client, three: list[Analysis]
) -> None:
    first, second, third = three
    chosen = Choice.read(QueryDict(f"ids={ids(three)}"))
    left = Choice.read(QueryDict(chosen.without(second.pk).address().partition("?")[2]))
    assert left.ids == (first.pk, third.pk)
    assert left.places == (0, 2)
    html = html_of(page, f"?{left.address().partition('?')[2]}")
    assert [f"series-key series-{number}" in html for number in range(3)] == [True, False, True]
    assert 'var(--series-2)"' in html
    assert 'var(--series-1)"' not in html


def test_places_beyond_the_last_are_numbered_anew() -> None:
    assert Choice.read(QueryDict(f"ids={',' * 1000}7,8")).places == (0, 1)
