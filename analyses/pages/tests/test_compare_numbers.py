"""The numbers of a comparison, and their differences from the baseline."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.contrib.auth.models import User

from analyses import services
from analyses.models import Status
from analyses.pages.compare.columns import columns_of, source_of
from analyses.pages.compare.rows import Cell, answer_rows
from analyses.pages.tests.compared import columns, row, with_result
from analyses.tests.factories import make_analysis, make_lengths, make_request, make_result
from engine.interface.trial import Source
from engine.interface.workload import Workload


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


def test_less_padding_is_better(member: User) -> None:
    results = (make_result(lengths=make_lengths(padding)) for padding in (0.4, 0.1))
    found = columns_of([make_analysis(member, Status.SUCCEEDED, result) for result in results])
    padding, worst = row(found, "Share of padding").cells, row(found, "Longest row of a run").cells
    assert [(cell.text, cell.tone) for cell in padding] == [("40%", ""), ("10%", "better")]
    assert worst[0].note == "99% of runs have none longer"


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


def test_the_baselines_run_costs_what_its_samples_cost_on_each_gpu(member: User) -> None:
    found = columns(member, "a10", "h100")
    base, other = row(found, "Cost of the baseline run on each GPU").cells
    million, other_million = row(found, "Cost of a million samples").cells
    assert base.value
    assert other.value
    assert million.value
    assert other_million.value
    assert other.value / base.value == pytest.approx(other_million.value / million.value)
    result = found[0].result
    assert result
    assert result.savings
    assert base.value == pytest.approx(result.savings.recommended_usd_per_run)
    assert base.sources == million.sources
    assert base.best


def test_on_one_gpu_a_run_has_one_cost(member: User) -> None:
    labels = [one.label for one in answer_rows(columns(member, "a10", "a10"), None)]
    assert "Cost of the baseline run on each GPU" not in labels


def test_the_current_cost_of_a_run_is_assumed_and_the_new_one_predicted(member: User) -> None:
    found = columns(member, "a10", "h100")
    assert row(found, "Cost per run of its assumed hours, current batch").cells[0].sources == (
        Source.ASSUMED,
    )
    assert row(found, "Cost per run of its assumed hours, recommended batch").cells[0].sources == (
        Source.PREDICTED,
        Source.ASSUMED,
    )


def test_no_gain_has_no_difference_from_a_gain(member: User) -> None:
    found = columns(member, "a10", "h100")
    assert found[1].result is not None
    nothing = replace(found[1].result, speedup=1.001, speedup_low=0.98, speedup_high=1.02)
    found[1] = with_result(found[1], nothing)
    assert row(found, "Speedup over the current batch").cells[1] == Cell(
        "no gain", (Source.PREDICTED,), value=1.001
    )


def test_a_difference_inside_the_ranges_is_neither_better_nor_worse(member: User) -> None:
    found = columns(member, "a10", "h100")
    trial = found[1].recommended
    assert found[1].result is not None
    assert trial is not None
    assert trial.samples_per_second is not None
    faster = replace(trial, samples_per_second=trial.samples_per_second * 1.2)
    result = replace(found[1].result, trials=[faster], curve=[])
    found[1] = with_result(found[1], result)
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


def test_the_source_of_a_whole_row_is_said_once(member: User) -> None:
    found = columns(member, "a10", "h100")
    predicted = (Source.PREDICTED,)
    assert row(found, "Largest batch that fits").sources == predicted
    assert row(found, "Cost of a million samples").sources == (*predicted, Source.ASSUMED)
    mixed = [found[0], *columns(member, "h100", source=Source.MEASURED)]
    assert row(mixed, "Largest batch that fits").sources == ()
    assert source_of(found) is Source.PREDICTED
    assert source_of(mixed) is None
