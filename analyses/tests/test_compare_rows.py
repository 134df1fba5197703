from __future__ import annotations

from dataclasses import replace

import pytest
from django.contrib.auth.models import User
from hypothesis import given
from hypothesis import strategies as st

from analyses import services
from analyses.compare.columns import Column, columns_of
from analyses.compare.curves import memory_chart, speed_chart
from analyses.compare.rows import Cell, Row, answer_rows, difference_in_words
from analyses.models import Status
from analyses.tests.factories import make_analysis, make_request, make_result
from engine.result import Source


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
        (1.24, "+24 %"),
        (0.5, "\N{MINUS SIGN}50 %"),
        (3.4, "3.40\N{MULTIPLICATION SIGN}"),
    ],
)
def test_a_difference_reads_as_people_say_it(ratio: float, words: str) -> None:
    assert difference_in_words(ratio) == words


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_the_sign_of_a_difference_is_that_of_the_change(ratio: float) -> None:
    words = difference_in_words(ratio)
    assert words.startswith("\N{MINUS SIGN}") == (ratio < 1 and words != "same")


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


def test_the_cost_of_a_run_today_is_assumed_and_after_the_change_predicted(member: User) -> None:
    found = columns(member, "a10", "h100")
    assert row(found, "Cost per run, current batch").cells[0].sources == (Source.ASSUMED,)
    assert row(found, "Cost per run, recommended batch").cells[0].sources == (
        Source.PREDICTED,
        Source.ASSUMED,
    )


def test_no_gain_has_no_difference_from_a_gain(member: User) -> None:
    found = columns(member, "a10", "h100")
    assert found[1].result is not None
    nothing = replace(found[1].result, speedup=1.001, speedup_low=0.98)
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
    assert cell.delta == "+20 %; the ranges overlap"
    assert cell.tone == ""


def test_other_work_is_neither_better_nor_worse(member: User) -> None:
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
    assert len(memory["layout"]["shapes"]) == 2  # the two of 80 GB are one line
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
