"""xMem's training runs: read, converted to what was measured, and summed up by estimator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import xmem
from benchmarks.results.files import read
from benchmarks.xmem import OURS, Comparison, Estimate, Kind, Prediction, Run
from benchmarks.xmem_tracing import model_bytes
from benchmarks.xmem_train import LANGUAGE_MODELS, NETWORKS
from engine.allocator.caching import ALLOCATE, FREE
from engine.tracing.trace import Category, Trace

MIB = 2**20
RUN = Run(
    gpu="NVIDIA GeForce RTX 3060",
    total_bytes=12 * 2**30,
    model="a/model",
    kind=Kind.TRANSFORMER,
    zero_grad=0,
    batch_size=8,
    optimizer="SGD",
    measured_bytes=1000 * MIB,
    ran=True,
    others={"xMem": Estimate(1100 * MIB, fits=False)},
)


def _compared(reserved_mib: int, run: Run = RUN, fits: bool = True) -> Comparison:
    reserved = reserved_mib * MIB
    prediction = Prediction(fits, reserved, reserved - 50 * MIB, reserved + 50 * MIB, 100 * MIB)
    return Comparison(run, prediction)


def test_every_published_run_is_read_and_can_be_built() -> None:
    runs = xmem.read_runs(xmem.RUNS.read_text(encoding="utf-8"))
    assert len(runs) == 98  # two have a single line in a batch
    for run in runs:
        assert run.gpu in xmem.PLACES
        assert (run.model in NETWORKS) is (run.kind is Kind.NETWORK)
        assert (run.model in LANGUAGE_MODELS) is (run.kind is Kind.TRANSFORMER)
        assert run.length_known
        assert 0 < xmem.PLACES[run.gpu].context_bytes < run.total_bytes - run.measured_bytes
    assert {name for run in runs for name in run.others} == set(xmem.OTHERS)
    assert any(said.figure_bytes is None for run in runs for said in run.others.values())


def test_a_network_is_counted_without_what_the_first_record_holds() -> None:
    network = replace(RUN, kind=Kind.NETWORK)
    assert _compared(1000).estimates()[OURS].figure_bytes == 1000 * MIB
    assert _compared(1000, network).estimates()[OURS].figure_bytes == 900 * MIB
    assert _compared(1000).within_interval
    assert not _compared(1000, network).within_interval
    assert _compared(1100, network).within_interval


def test_a_run_of_few_lines_is_of_unknown_length() -> None:
    few = replace(RUN, batch_size=3)
    assert not few.length_known
    assert replace(few, kind=Kind.NETWORK).length_known
    assert replace(few, batch_size=4).length_known


def test_a_score_has_errors_and_verdicts_of_what_was_asked() -> None:
    out = replace(RUN, ran=False, others={})
    network = replace(RUN, kind=Kind.NETWORK, model="network")
    compared = [
        _compared(1020),
        _compared(1060, network),
        _compared(5000, out),
        _compared(5000, out, fits=False),
        _compared(1040, fits=False),
        Comparison(RUN, failure="refused"),
    ]
    ours = xmem.score(OURS, compared)
    assert (ours.transformers.median, ours.networks.median) == pytest.approx((0.03, 0.04))
    assert ours.every.compared == 3
    assert (ours.false_safe, ours.ran_out) == (1, 2)
    assert (ours.false_alarm, ours.ran) == (1, 3)
    theirs = xmem.score("xMem", compared)
    assert theirs.every.median == pytest.approx(0.1)
    assert (theirs.ran_out, theirs.false_alarm, theirs.ran) == (0, 4, 4)
    assert xmem.score("LLMem", compared).every.median is None


def test_growth_is_compared_between_neighbouring_batch_sizes_of_one_series() -> None:
    def run(batch_size: int, measured_mib: int, **fields: str) -> Run:
        measured = measured_mib * MIB
        return replace(RUN, batch_size=batch_size, measured_bytes=measured, **fields)  # type: ignore[arg-type]  # text only

    compared = [
        _compared(420, run(40, 400)),
        _compared(100, run(10, 100)),
        _compared(199, run(20, 200)),
        _compared(999, run(30, 300, optimizer="Adam")),
    ]
    growth = xmem.score(OURS, compared).growth
    assert growth.compared == 2
    assert growth.worst == pytest.approx(21 / 200)


def test_a_score_is_shown_in_a_row() -> None:
    found = xmem.to_dict([_compared(1013)])
    ours, whole, *others = found["scores"]
    assert xmem.cells(ours) == ["MemoryMark", "1.3%", "-", "1.3%", "-", "0 of 0", "0 of 1"]
    assert whole["name"] == xmem.OURS_WHOLE
    assert [one["name"] for one in others] == list(xmem.OTHERS)
    assert (found["fitted"], found["within_interval"]) == (1, 1)


def test_the_model_is_what_is_allocated_before_the_batch() -> None:
    kinds = [Category.PARAMETERS, Category.INPUTS, Category.PARAMETERS]
    events = [(ALLOCATE, 0), (ALLOCATE, 1), (FREE, 1), (ALLOCATE, 2)]
    assert model_bytes(Trace(2, events, [30 * MIB, MIB, 40 * MIB], kinds)) == 30 * MIB


def test_the_published_results_meet_the_aims() -> None:
    found = read("accuracy").figures["xmem"]
    ours = found["scores"][0]
    assert ours["every"]["median"] <= 0.01
    assert ours["transformers"]["median"] <= 0.005
    assert ours["growth"]["median"] <= 0.015
    assert (ours["false_safe"], ours["false_alarm"]) == (0, 0)
    assert found["within_interval"] >= 0.9 * found["fitted"]
