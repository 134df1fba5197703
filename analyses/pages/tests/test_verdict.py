"""The one sentence above a comparison."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from django.contrib.auth.models import User

from analyses.models import Decided, Status
from analyses.pages.compare.columns import Column, columns_of
from analyses.pages.compare.rows import Cell, cell_of, with_best
from analyses.pages.compare.verdict import (
    COST,
    COST_AT_CURRENT,
    SAMPLES,
    TOKENS,
    Contender,
    Measure,
    sentence,
    verdict,
)
from analyses.tests.factories import make_analysis, make_request, make_result
from engine.interface.trial import Source

PREDICTED = (Source.PREDICTED,)


def contender(
    name: str, value: float | None, *, spread: float = 0.01, is_base: bool = False, **cell: Any
) -> Contender:
    low, high = (None, None) if value is None else (value / (1 + spread), value * (1 + spread))
    sources = cell.pop("sources", PREDICTED)
    parts = cell.pop("parts", ())
    return Contender(name, Cell("", sources, value, low, high), is_base, parts)


@pytest.mark.parametrize(
    ("measure", "values", "said"),
    [
        (COST, (1.0, 2.1), "one is 2.1× cheaper per sample than two (predicted)."),
        (COST, (2.0, 1.5), "two is 25% cheaper per sample than one (predicted)."),
        (TOKENS, (300, 900), "two trains 3.0× as many tokens per second as one (predicted)."),
        (SAMPLES, (13, 10), "one trains 30% more samples per second than two (predicted)."),
        (SAMPLES, (10, 10), "No difference in samples per second (predicted)."),
        (SAMPLES, (10, None), ""),
    ],
)
def test_the_better_one_is_named_with_its_lead(
    measure: Measure, values: tuple[float, float | None], said: str
) -> None:
    pair = [contender(name, value) for name, value in zip(("one", "two"), values, strict=True)]
    assert sentence(measure, pair) == said


def test_the_best_is_held_against_the_baseline_and_the_baseline_against_the_next() -> None:
    slow, fast = contender("slow", 1), contender("fast", 4)
    middle = contender("middle", 2, is_base=True)
    best = contender("fast", 4, is_base=True)
    assert sentence(SAMPLES, [slow, middle, fast]).endswith("as middle (predicted).")
    assert sentence(SAMPLES, [slow, contender("middle", 2), best]).endswith(
        "as middle (predicted)."
    )


def of_parts(value: float, *parts: str, is_base: bool = False) -> Contender:
    return contender(" · ".join(parts), value, is_base=is_base, parts=parts)


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (("A10", "bf16"), "H100 is 4.0× cheaper per sample than A10 (both bf16; predicted)."),
        (("A10", "fp32"), "H100 · bf16 is 8.0× cheaper per sample than A10 · fp32 (predicted)."),
        (("H100", "fp32"), "bf16 is 2.0× cheaper per sample than fp32 (both H100; predicted)."),
    ],
)
def test_two_are_named_by_what_they_differ_in(base: tuple[str, ...], said: str) -> None:
    costs = {("A10", "fp32"): 8, ("A10", "bf16"): 4, ("H100", "fp32"): 2, ("H100", "bf16"): 1}
    four = [of_parts(cost, *parts, is_base=parts == base) for parts, cost in costs.items()]
    assert sentence(COST, four) == said


def test_one_that_only_has_more_set_is_named_in_full() -> None:
    pair = [of_parts(1, "A10", "checkpointing"), of_parts(3, "A10")]
    assert sentence(SAMPLES, pair).startswith("A10 trains 3.0× as many samples per second as A10 ·")


def test_inside_the_ranges_there_is_no_clear_difference() -> None:
    pair = [contender("one", 10, spread=0.3), contender("two", 12, spread=0.3)]
    assert sentence(TOKENS, pair) == (
        "No clear difference in tokens per second between two and one: the ranges overlap "
        "(predicted)."
    )
    assert [cell.best for cell in with_best([one.cell for one in pair], 1)] == ["", "probably best"]


def test_all_sources_of_both_are_named() -> None:
    costs = [
        contender("one", 1, sources=(Source.MEASURED, Source.ASSUMED)),
        contender("two", 3, sources=(Source.PREDICTED, Source.ASSUMED)),
    ]
    assert sentence(COST, costs).endswith("(measured and predicted, assumed prices).")


def test_the_best_of_equals_is_not_marked() -> None:
    cells = [Cell("4", value=4), Cell("4", value=4)]
    assert with_best(cells, 1) == cells
    more = with_best([*cells, Cell("2", value=2), Cell("–")], -1)
    assert [cell.best for cell in more] == ["", "", "best", ""]


def column(member: User, gpu: str = "a10", result: Any = None, **asked: Any) -> Column:
    answer = result or make_result(gpu=gpu, recommended=64)
    request = make_request(gpu=gpu, **asked)
    return columns_of([make_analysis(member, Status.SUCCEEDED, answer, request=request)])[0]


def test_gpus_are_compared_by_cost_and_settings_by_speed(member: User) -> None:
    gpus = [column(member), column(member, "h100")]
    precisions = [column(member), column(member, precision="bf16-mixed")]
    assert "per sample" in verdict(gpus, gpus[0].pk)
    assert "tokens per second" in verdict(precisions, precisions[0].pk)


def test_batches_are_compared_at_themselves(member: User) -> None:
    pair = [
        column(member, current_batch_size=size, result=make_result(current=size))
        for size in (4, 64)
    ]
    said = verdict(pair, pair[0].pk)
    assert "atch 64" in said
    assert "samples per second" in said


def test_batches_on_several_gpus_are_compared_at_themselves(member: User) -> None:
    sweep = [
        column(member, gpu, current_batch_size=size, result=make_result(gpu=gpu, current=size))
        for gpu in ("a10", "h100")
        for size in (4, 64)
    ]
    best = min(sweep, key=lambda one: cell_of(COST_AT_CURRENT.figure, one).value or inf)
    said = verdict(sweep, None)
    assert best.analysis.current_batch_size == 64
    assert said.startswith("Batch 64 is ")
    assert "cheaper per sample than batch 4 (both NVIDIA A10;" in said


@pytest.mark.parametrize(
    ("largest", "said"),
    [((0, 0), "No batch size fits in any"), ((0, 64), "Only "), ((64, 64), "")],
)
def test_what_does_not_fit_is_said_first(member: User, largest: tuple[int, int], said: str) -> None:
    results = [make_result(gpu=gpu) for gpu in ("a10", "h100")]
    pair = [
        column(member, gpu, result=type(result)(**vars(result) | {"largest_batch_size": size}))
        for gpu, result, size in zip(("a10", "h100"), results, largest, strict=True)
    ]
    assert verdict(pair, pair[0].pk).startswith(said)


def test_other_models_are_not_ranked(member: User) -> None:
    pair = [column(member), column(member, model="gpt2")]
    assert verdict(pair, pair[0].pk).startswith("Models differ, so none is faster")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "other.py", "program": {"hash": "b" * 64}}, "Scripts"),
        ({"program": {"hash": "b" * 64}}, "Versions of the script"),
    ],
)
def test_the_verdict_names_what_differs_between_scripts(
    member: User, changes: dict[str, Any], said: str
) -> None:
    script = make_request() | {"model": "train.py", "program": {"hash": "a" * 64}}
    pair = columns_of(
        [
            make_analysis(member, Status.SUCCEEDED, make_result(), request=request)
            for request in (script, script | changes)
        ]
    )
    assert verdict(pair, None).startswith(f"{said} differ, so none is faster")


def test_the_verdict_names_the_settings_that_its_numbers_are_with(member: User) -> None:
    moved, other = column(member), column(member, "h100", precision="bf16-mixed")
    rung = Decided(analysis=moved.analysis, moves=["bf16"], fields={"precision": "bf16-mixed"})
    moved.analysis.decided = rung
    pair = columns_of([moved.analysis, other.analysis])
    assert "NVIDIA A10 · fp32 → bf16-mixed" in verdict(pair, None)
    assert moved.analysis.request["precision"] == "fp32"


def test_each_model_with_several_analyses_has_its_winner(member: User) -> None:
    gpus = ("a10", "h100")
    found = [column(member, gpu, model=model) for model in ("bert", "gpt2") for gpu in gpus]
    said = verdict([*found, column(member, model="resnet")], found[0].pk)
    assert said.startswith("Models differ, so each has a winner of its own. ")
    for model in ("BERT base", "GPT-2"):
        assert f"{model}: NVIDIA A10 is " in said
    assert "ResNet" not in said  # it has no rival


def test_works_of_one_model_are_named_by_their_sizes(member: User) -> None:
    found = [
        column(member, gpu, sequence_length=length)
        for length in (128, 256)
        for gpu in ("a10", "h100")
    ]
    said = verdict(found, found[0].pk)
    assert said.startswith("Sizes of samples differ, ")
    assert "BERT base at 128 tokens: " in said
    assert "BERT base at 256 tokens: " in said


def test_one_answer_has_no_verdict(member: User) -> None:
    waiting = columns_of([make_analysis(member, Status.QUEUED)])[0]
    assert verdict([column(member), waiting], None) == ""
