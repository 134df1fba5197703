from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from analyses import services
from analyses.models import Analysis, Status
from analyses.pages import hearing
from analyses.pages.compare.charts import memory_chart, speed_chart
from analyses.pages.compare.columns import MOST, Column, columns_of
from analyses.pages.compare.rows import Cell, Row, answer_rows, difference
from analyses.pages.new.form import MOST_COMPARED
from analyses.tests.factories import make_analysis, make_request, make_result, make_user
from engine.result import Source
from engine.workload import Workload

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def page(client: Client, member: User) -> Client:
    client.force_login(member)
    return client


def make(owner: User, gpu: str = "a10", recommended: int = 64, **asked: Any) -> Analysis:
    """A succeeded analysis."""
    result = make_result(gpu=gpu, recommended=recommended)
    return make_analysis(owner, Status.SUCCEEDED, result, request=make_request(gpu=gpu, **asked))


@pytest.fixture
def three(member: User) -> list[Analysis]:
    return [make(member), make(make_user("alan"), "a100-80gb"), make(member, "h100")]


def html_of(page: Client, query: str) -> str:
    response = page.get(reverse("analyses:compare") + query)
    assert response.status_code == 200
    return response.content.decode()


def ids(analyses: list[Analysis]) -> str:
    return ",".join(str(analysis.pk) for analysis in analyses)


@pytest.mark.parametrize("name", ["compare", "compare-bars"])
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
    for text in ("Settings", "Results", "predicted", "assumed", "3.83"):
        assert text in html


def test_columns_have_the_order_of_the_address(page: Client, three: list[Analysis]) -> None:
    html = html_of(page, f"?ids={ids(three[::-1])}&base={three[1].pk}")
    head = html.split("<thead>")[1].split("</thead>")[0]
    assert head.index("NVIDIA H100") < head.index("NVIDIA A100") < head.index("NVIDIA A10<")


def test_the_baseline_has_no_differences(page: Client, three: list[Analysis]) -> None:
    html = html_of(page, f"?ids={ids(three[:2])}&base={three[1].pk}")
    row = html.split("Largest batch that fits</th>")[1].split("</tr>")[0]
    assert row.count("delta-worse") == 1
    assert "\N{MINUS SIGN}74%" in row


def test_only_differences_hides_equal_rows(page: Client, three: list[Analysis]) -> None:
    every, differing = (html_of(page, f"?ids={ids(three)}{diff}") for diff in ("", "&diff=1"))
    for text in (">Optimizer<", ">Sequence length<", ">Recommended batch<"):
        assert text in every
        assert text not in differing
    for text in (">GPU<", ">Largest batch that fits<"):
        assert text in differing
    assert "identical row" in differing
    assert "diff=1" in differing.split("compare-links")[1]  # the links keep the switch


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
    assert html.count('<th scope="col"') == 2 + 6  # and those of analyses to add
    assert HOSTILE not in html


def test_only_so_many_are_shown_and_the_others_are_named(page: Client, member: User) -> None:
    many = [make(member) for _ in range(MOST + 1)]
    html = html_of(page, f"?ids={ids(many)}")
    assert html.split("<thead>")[1].count('<th scope="col"') == MOST
    assert f"Left out: {many[-1].pk}." in html


def test_all_that_the_form_submits_together_are_shown() -> None:
    assert MOST >= MOST_COMPARED


@pytest.mark.parametrize("query", ["", "?ids=", "?ids={a}", "?ids={a},{a}", "?ids={a},4711"])
def test_with_fewer_than_two_the_page_offers_a_choice(
    page: Client, three: list[Analysis], query: str
) -> None:
    html = html_of(page, query.format(a=three[0].pk))
    assert f'name="ids" value="{three[1].pk}"' in html
    assert "<svg" not in html.split("<main")[1]
    assert ("There is no analysis 4711." in html) == ("4711" in query)


def test_a_lab_without_results_is_told_what_to_do(page: Client) -> None:
    assert reverse("analyses:new") in html_of(page, "").split("<main")[1]


def test_ticked_boxes_add_to_the_numbers(page: Client, three: list[Analysis]) -> None:
    first, second, third = (analysis.pk for analysis in three)
    html = html_of(page, f"?ids={first}&ids={second}&ids={third}")
    assert html.split("<thead>")[1].split("</thead>")[0].count('<th scope="col"') == 3


def test_removing_the_baseline_makes_the_next_one_the_baseline(
    page: Client, three: list[Analysis]
) -> None:
    first, second, third = (analysis.pk for analysis in three)
    html = html_of(page, f"?ids={ids(three)}")
    assert f"?ids={second},{third}&amp;base={second}" in html
    assert f"?ids={first},{third}&amp;base={first}" in html


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


# While they run


@pytest.fixture
def running(member: User, monkeypatch: pytest.MonkeyPatch) -> list[Analysis]:
    """One that has an answer, one that failed, one that runs and one that waits."""
    monkeypatch.setattr(hearing, "HELD_SECONDS", 0.1)
    unanswered = (Status.FAILED, Status.RUNNING, Status.QUEUED)
    return [make(member), *(make_analysis(member, status) for status in unanswered)]


def update_of(page: Client, analyses: list[Analysis], seen: str) -> tuple[int, str]:
    """The status and the text of what htmx gets."""
    query = f"?ids={ids(analyses)}&seen={seen}"
    response = page.get(reverse("analyses:compare") + query, headers={"HX-Request": "true"})
    return response.status_code, response.content.decode()


def test_a_comparison_says_how_many_are_done_and_asks_for_news(
    page: Client, running: list[Analysis]
) -> None:
    html = html_of(page, f"?ids={ids(running)}")
    assert "2 of 4 done, 1 without an answer" in html
    assert "&amp;seen=succeeded-failed-running-queued" in html
    assert '<noscript><meta http-equiv="refresh"' in html


def test_without_news_nothing_is_sent(page: Client, running: list[Analysis]) -> None:
    assert update_of(page, running, "succeeded-failed-running-queued") == (204, "")


def test_news_are_sent_without_the_rest_of_the_page(page: Client, running: list[Analysis]) -> None:
    status, html = update_of(page, running, "succeeded-running-queued-queued")
    assert status == 200
    assert "2 of 4 done" in html
    assert 'id="compare-table" hx-swap-oob="true"' in html
    assert "<main" not in html
    assert "compare-charts" not in html  # they would be the same


def test_the_charts_are_sent_with_a_new_answer(page: Client, running: list[Analysis]) -> None:
    _, html = update_of(page, running, "running-failed-running-queued")
    assert 'id="compare-charts" hx-swap-oob="true"' in html
    assert "memory-figure" in html


def test_the_last_news_end_the_asking(page: Client, running: list[Analysis]) -> None:
    Analysis.objects.filter(pk__in=[one.pk for one in running]).update(status=Status.CANCELLED)
    _, html = update_of(page, running, "succeeded-failed-running-queued")
    assert "4 of 4 done" in html
    assert "hx-get" not in html
    assert "hx-get" not in html_of(page, f"?ids={ids(running)}").split("<main")[1]


# The chart


def test_the_chart_has_the_numbers_and_their_source(page: Client, three: list[Analysis]) -> None:
    response = page.get(reverse("analyses:compare-bars"), {"ids": ids(three)})
    assert response["Content-Type"] == "image/svg+xml"
    assert "Content-Disposition" not in response
    svg = response.content.decode()
    texts = [text for text in ElementTree.fromstring(svg).itertext() if text.strip()]  # noqa: S314  # our own
    for said in ("BERT base", "NVIDIA H100 SXM5 80GB", "941", "predicted"):
        assert said in texts
    assert "style" not in svg  # which the content security policy would block


def test_the_chart_is_downloaded_under_its_own_name(page: Client, three: list[Analysis]) -> None:
    query = {"ids": ids(three), "download": "1"}
    response = page.get(reverse("analyses:compare-bars"), query)
    name = f"memorymark-{ids(three).replace(',', '-')}.svg"
    assert response["Content-Disposition"] == f'attachment; filename="{name}"'


def test_a_single_analysis_has_no_chart(page: Client, three: list[Analysis]) -> None:
    assert page.get(reverse("analyses:compare-bars"), {"ids": three[0].pk}).status_code == 404


def test_a_hostile_name_is_plain_text_in_the_chart(page: Client, member: User) -> None:
    pair = [make(member), make(member)]
    Analysis.objects.filter(pk=pair[0].pk).update(measured_gpu=f'{HOSTILE}" onload="x')
    response = page.get(reverse("analyses:compare-bars"), {"ids": ids(pair)})
    root = ElementTree.fromstring(response.content)  # noqa: S314  # our own
    assert not [
        node for node in root.iter() if node.tag.endswith("script") or "onload" in node.attrib
    ]
    assert HOSTILE not in html_of(page, f"?ids={ids(pair)}")


def columns(member: User, *gpus: str, source: Source = Source.PREDICTED) -> list[Column]:
    results = [make_result(gpu=gpu, recommended=64, source=source) for gpu in gpus]
    return columns_of(
        [
            make_analysis(member, Status.SUCCEEDED, result, request=make_request(gpu=gpu))
            for result, gpu in zip(results, gpus, strict=True)
        ]
    )


def row(found: list[Column], label: str) -> Row:
    return next(row for row in answer_rows(found, found[0].pk) if row.label == label)


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (1, "same"),
        (1.004, "same"),
        (1.24, "+24%"),
        (0.5, "\N{MINUS SIGN}50%"),
        (3.4, "3.40\N{MULTIPLICATION SIGN}"),
    ],
)
def test_a_difference_reads_naturally(ratio: float, words: str) -> None:
    assert difference(ratio) == words


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_the_sign_of_a_difference_is_that_of_the_change(ratio: float) -> None:
    words = difference(ratio)
    assert words.startswith("\N{MINUS SIGN}") == (ratio < 1 and words != "same")


def test_tokens_per_second_stand_beside_samples_of_text(member: User) -> None:
    found = columns(member, "a10", "h100")
    samples = row(found, "Samples per second at the recommended batch").cells
    tokens = row(found, "Tokens per second at the recommended batch").cells
    assert [cell.value for cell in tokens] == [
        pytest.approx(128 * (cell.value or 0)) for cell in samples
    ]
    assert [cell.delta for cell in tokens] == [cell.delta for cell in samples]
    assert all(cell.note.endswith("tokens") for cell in tokens)


def test_images_have_no_row_of_tokens(member: User) -> None:
    images = make_result(workload=Workload("resnet"))
    found = columns_of([make_analysis(member, Status.SUCCEEDED, images) for _ in range(2)])
    assert "tokens_per_second" not in {one.key for one in answer_rows(found, found[0].pk)}


def test_a_million_samples_cost_the_price_of_their_time(member: User) -> None:
    (column, _) = found = columns(member, "a10", "h100")
    trial, result = column.recommended, column.result
    assert trial is not None
    assert trial.samples_per_second is not None
    assert result is not None
    assert result.savings is not None
    cell = row(found, "Cost of a million samples").cells[0]
    hours = 1e6 / trial.samples_per_second / 3600
    assert cell.value == pytest.approx(hours * result.savings.price_per_hour_usd)
    assert cell.sources == (Source.PREDICTED, Source.ASSUMED)


def test_the_current_cost_of_a_run_is_assumed_and_the_new_one_predicted(member: User) -> None:
    found = columns(member, "a10", "h100")
    assert row(found, "Cost per run, current batch").cells[0].sources == (Source.ASSUMED,)
    assert row(found, "Cost per run, recommended batch").cells[0].sources == (
        Source.PREDICTED,
        Source.ASSUMED,
    )


def test_no_gain_has_no_difference_from_a_gain(member: User) -> None:
    found = columns(member, "a10", "h100")
    assert found[1].result is not None
    nothing = replace(found[1].result, speedup=1.001, speedup_low=0.98, speedup_high=1.02)
    found[1] = replace(found[1], result=nothing)
    assert row(found, "Speedup over the current batch").cells[1] == Cell(
        "no gain", (Source.PREDICTED,)
    )


def test_a_difference_inside_the_ranges_is_neither_better_nor_worse(member: User) -> None:
    found = columns(member, "a10", "h100")
    trial = found[1].recommended
    assert found[1].result is not None
    assert trial is not None
    assert trial.samples_per_second is not None
    faster = replace(trial, samples_per_second=trial.samples_per_second * 1.2)
    result = replace(found[1].result, trials=[faster], curve=[])
    found[1] = replace(found[1], result=result)
    cell = row(found, "Samples per second at the recommended batch").cells[1]
    assert cell.delta == "+20%; the ranges overlap"
    assert cell.tone == ""


def test_a_different_workload_is_neither_better_nor_worse(member: User) -> None:
    asked = [make_request(gpu="a10"), make_request(gpu="a10", sequence_length=512)]
    results = [make_result(), make_result(gpu="h100")]
    found = columns_of(
        [
            make_analysis(member, Status.SUCCEEDED, result, request=request)
            for result, request in zip(results, asked, strict=True)
        ]
    )
    cell = row(found, "Largest batch that fits").cells[1]
    assert cell.delta
    assert cell.tone == ""


def test_a_current_batch_that_does_not_fit_has_no_savings_to_compare(member: User) -> None:
    result = make_result(current=2048, recommended=64)
    pair = [make_analysis(member, Status.SUCCEEDED, one) for one in (result, make_result())]
    found = columns_of(pair)
    assert row(found, "Savings per year").cells[0].text == "\N{EN DASH}"
    assert row(found, "Savings per year").cells[1].delta == ""


def test_savings_are_realised_where_the_recommendation_is_adopted(member: User) -> None:
    adopted, other = (make_analysis(member, Status.SUCCEEDED) for _ in range(2))
    services.adopt(adopted, member)
    adopted.refresh_from_db()
    found = columns_of([adopted, other])

    for label in ("Savings per year", "GPU-hours saved per year"):
        assert [cell.note for cell in row(found, label).cells] == ["realised", "potential"]


def test_the_curves_name_their_source_and_mark_each_limit_once(member: User) -> None:
    found = columns(member, "a10", "a100-80gb", "h100")
    memory, speed = memory_chart(found), speed_chart(found)
    names = [trace["name"] for trace in memory["data"]]
    assert names == [f"{column.label} (predicted)" for column in found]
    assert len(memory["layout"]["shapes"]) == 2  # the two GPUs of 80 GB share one line
    diamonds = [trace for trace in speed["data"] if trace["mode"] == "markers"]
    assert [trace["x"] for trace in diamonds] == [[64], [64], [64]]


def test_curves_far_apart_share_a_logarithmic_axis(member: User) -> None:
    near, far = columns(member, "a10", "l4"), columns(member, "t4", "h200")
    assert "type" not in memory_chart(near)["layout"]["xaxis"]
    assert memory_chart(far)["layout"]["xaxis"]["type"] == "log"


def test_ten_curves_all_look_different(member: User) -> None:
    found = columns(member, *["a10"] * 10)
    lines = [trace["line"] for trace in memory_chart(found)["data"]]
    assert len({(line["color"], line["dash"]) for line in lines}) == 10
