"""Batches of samples that differ in length: their memory, their speed, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.core.errors import InvalidInput
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.interface.tokens import tokens_of
from engine.interface.workload import Workload
from engine.prediction.probe import predict_trial
from engine.prediction.tests.test_prediction_against_real_steps import predicted_and_measured
from engine.step.batches import make_batch
from engine.tests.shared import slow, small_workload
from engine.traces.lengths import Batches, about_lengths, between, lengths_of
from engine.traces.source import TraceSource
from engine.traces.tracer import trace
from engine.traces.workloads import trace_workload
from engine.tracing.lowering import cuda_behaviour

A10 = cuda_behaviour(8.6)
LENGTHS = "p50=16,p90=40,max=64"
SIZES = {"sample_lengths": LENGTHS, "sequence_length": 64}

small = pytest.mark.usefixtures("small_models")


def gpt2(batching: str, **fields: Any) -> Workload:
    return small_workload("gpt2", batching=batching, **SIZES | fields)


def traces(workload: Workload) -> TraceSource:
    return trace_workload(workload, A10, lambda _: None)


def speed(workload: Workload, batch_size: int) -> float:
    """Predicted samples per second on an A10."""
    found = predict_trial(workload, GPUS["a10"], traces(workload).at(batch_size)).samples_per_second
    assert found
    return found


@small
@pytest.mark.parametrize("batching", ["longest", slow("bucketed"), "max-tokens"])
def test_a_padded_batch_is_equal_to_the_byte(batching: str) -> None:
    predicted, measured = predicted_and_measured(gpt2(batching))
    assert predicted == measured


@small
def test_padding_has_a_mask_and_no_label() -> None:
    batch = make_batch(gpt2("longest"), 3)
    assert batch["attention_mask"].sum() == 3 * 64 - 1
    assert (batch["labels"] == -100).sum() == 1
    assert "attention_mask" not in make_batch(gpt2("packed"), 3)


@pytest.mark.slow
@small
def test_memory_is_that_of_the_worst_batch_and_work_that_of_the_mean_one() -> None:
    workload = gpt2("longest")
    batches, source = Batches(workload), traces(workload)
    whole = trace(workload, 4, A10)
    assert batches.worst(4) == 64
    assert source.at(4) == whole
    flops = [sum(operation.flops for operation in one.operations) for one in (source.at(4), whole)]
    assert 16 < batches.mean(4) < 64
    assert flops[0] / flops[1] == pytest.approx(batches.mean(4) / 64, rel=0.1)


@pytest.mark.slow
@small
def test_the_mean_batch_lies_between_two_lengths() -> None:
    one, other, middle = (
        trace(gpt2("longest", sequence_length=length), 4, A10).operations for length in (32, 64, 48)
    )
    between_both = between(one, other, 0.5)
    assert sum(operation.bytes_moved for operation in between_both) == pytest.approx(
        sum(operation.bytes_moved for operation in middle), rel=0.03
    )
    assert between(one[1:], other, 0.5) == other


@small
@pytest.mark.slow
def test_the_less_is_padded_the_faster() -> None:
    found = {name: gpt2(name) for name in ("longest", "bucketed", "max-tokens", "packed")}
    speeds = [speed(one, 8) for one in found.values()]
    assert speeds[0] < speeds[1] < speeds[2]
    assert speeds[2] < speeds[3] * 1.1
    paddings = [Batches(one).padding(8) for one in found.values()]
    assert paddings[0] > paddings[1] > paddings[2] == paddings[3] == 0


FLASH = {"precision": "bf16-mixed", "attention": "flash"}


@pytest.mark.longer
@small
@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("gpt2", {}),
        slow("llama-3.2-1b", {"gradient_checkpointing": True}),
        slow("gpt2", {"gradient_checkpointing": True}),
        slow("llama-3.2-1b", {}),
        slow("qwen3-0.6b", {}),
        slow("qwen3-0.6b", {"gradient_checkpointing": True}),
    ],
)
def test_one_row_takes_what_as_many_tokens_take_in_short_rows(
    model: str, fields: dict[str, Any]
) -> None:
    def peak(sequence_length: int, batch_size: int) -> int:
        given = SIZES | FLASH | fields | {"sequence_length": sequence_length}
        workload = small_workload(model, batching="padding-free", **given)
        return trace(workload, batch_size, A10).peak_by_category()[0]

    assert peak(512, 1) == peak(64, 8)


@pytest.mark.longer
@small
def test_a_batch_in_one_row_is_equal_to_the_byte_in_short_rows() -> None:
    predicted, measured = predicted_and_measured(gpt2("padding-free", **FLASH))
    assert predicted == measured


@small
@pytest.mark.slow
def test_one_row_needs_the_memory_of_the_worst_total_and_works_as_the_mean_one() -> None:
    lengths = "min=16,p50=32,max=256"
    workload = gpt2("padding-free", sample_lengths=lengths, sequence_length=256, **FLASH)
    batches, source = Batches(workload), traces(workload)
    total = batches.worst_total(8)
    assert 8 * batches.lengths.mean < total < 8 * 256
    row = replace(workload, sequence_length=64)
    assert source.at(8).peak_by_category() == trace(row, -(-total // 64), A10).peak_by_category()
    assert source.at(8).batch_size == 8
    padded = gpt2("longest", sample_lengths=lengths, sequence_length=256, precision="bf16-mixed")
    speeds = [speed(one, 16) for one in (padded, workload)]
    assert speeds[0] < speeds[1]


@pytest.mark.longer
@small
def test_attention_in_one_row_stays_within_samples() -> None:
    workload = gpt2("padding-free", sample_lengths="min=256,max=256", sequence_length=256, **FLASH)
    found, whole = traces(workload).at(4), trace(workload, 4, A10)
    flops = [sum(operation.flops for operation in one.operations) for one in (found, whole)]
    assert flops[0] == pytest.approx(flops[1], rel=1e-3)


@small
def test_a_short_run_need_not_meet_the_longest_sample() -> None:
    lengths = "p50=100,p99=200,max=1024"
    few, many = (
        Batches(gpt2("longest", sample_lengths=lengths, sequence_length=None, run_batches=count))
        for count in (1, 10_000)
    )
    assert few.worst(1) < few.worst(8) <= 1024 == many.worst(1)


def test_the_longest_sample_is_the_usual_sequence_length() -> None:
    given = {"model": "gpt2", "batching": "longest", "sample_lengths": "p50=100,max=700"}
    assert Workload.parse(given).sequence_length == 700
    assert Workload.parse(given | {"sample_lengths": "max=9000"}).sequence_length == 1024


def test_what_is_said_has_the_worst_batch_its_probability_and_the_padding() -> None:
    def told(batching: str, **fields: str) -> str:
        given = {"model": "gpt2", "batching": batching, "sample_lengths": "p50=120,max=1024"}
        given |= fields
        (sentence,) = about_lengths(Workload.parse(given), 8)
        return sentence

    for part in ("1,024 tokens", "99%", "10,000 batches", "assumed", "padding"):
        assert part in told("longest")
    assert "max_tokens = 8,192" in told("max-tokens")
    assert "samples on average" in told("packed")
    assert "tokens in a row" in told("padding-free", **FLASH)
    assert about_lengths(Workload("gpt2"), 8) == []


@pytest.mark.parametrize(
    ("batching", "worst", "probability", "pads"),
    [
        ("longest", 1024, 0.99, True),
        ("bucketed", 1024, 0.99, True),
        ("max-tokens", 1024, 1.0, False),
        ("packed", 1024, 1.0, False),
    ],
)
def test_the_same_in_numbers(batching: str, worst: int, probability: float, pads: bool) -> None:
    given = {"model": "gpt2", "batching": batching, "sample_lengths": "p50=120,max=1024"}
    found = lengths_of(Workload.parse(given), 8)
    assert found is not None
    assert (found.batch_size, found.run_batches) == (8, 10_000)
    assert (found.worst_tokens, found.probability) == (worst, probability)
    assert (found.padding > 0) is pads
    assert found.mean_tokens <= worst


def test_one_row_in_numbers_is_all_samples_of_a_batch() -> None:
    given = {"model": "gpt2", "batching": "padding-free", "sample_lengths": "p50=120,max=1024"}
    found = lengths_of(Workload.parse(given | FLASH), 8)
    assert found is not None
    assert 1024 < found.mean_tokens < found.worst_tokens < 8 * 1024
    assert found.padding == 0
    assert lengths_of(Workload("gpt2"), 8) is None


def test_tokens_are_counted_without_padding() -> None:
    given = {"model": "gpt2", "batching": "longest", "sample_lengths": "min=1,max=1001"}
    counted = tokens_of(Workload.parse(given))
    assert counted is not None
    assert counted.per_sample == 501


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"batching": "longest"}, "batching"),
        ({"sample_lengths": LENGTHS}, "sample_lengths"),
        ({"batching": "longest", "sample_lengths": LENGTHS, "method": "dpo"}, "batching"),
        ({"batching": "longest", "sample_lengths": "many"}, "sample_lengths"),
        ({"model": "bert", "batching": "packed", "sample_lengths": LENGTHS}, "batching"),
        ({"model": "resnet", "batching": "longest", "sample_lengths": LENGTHS}, "batching"),
        ({"batching": "padding-free", "sample_lengths": LENGTHS}, "batching"),
        (
            {"batching": "padding-free", "sample_lengths": LENGTHS, "eval_batch_size": 4} | FLASH,
            "batching",
        ),
        ({"batching": "longest", "sample_lengths": LENGTHS, "gpu": "local"}, "batching"),
        (
            {"batching": "longest", "sample_lengths": LENGTHS, "precision": "bf16-mixed"}
            | {"attention": "flash"},
            "attention",
        ),
    ],
)
def test_what_does_not_combine_is_refused(fields: dict[str, Any], wrong: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        AnalysisRequest.parse({"model": "gpt2", "gpu": "a10"} | fields)
    assert wrong in raised.value.fields
