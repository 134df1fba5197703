"""The smallest batch of a sweep tells the launch time that the others are predicted with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.step_time import told_hosts
from benchmarks.step_time.rows import Row
from benchmarks.step_time.told_hosts import errors, sweeps
from engine.tracing.trace import Operation

LAUNCHED = Operation("aten.add", "float32", 0, 10, "forward")
FILLED = Operation("aten.mm", "float32", 10**13, 10**9, "forward", (1, 10**5, 10**5, 10**5))


def row(batch: int, seconds: float, trace: str = '{"model": "bert"}') -> Row:
    return Row("h100", "h100", trace, 0, "fp32", "adamw", batch, False, seconds)


@pytest.fixture(autouse=True)
def steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step launches 1,000 kernels for each sample; one of 100 samples fills the GPU too."""

    def operations_of(row: Row) -> list[tuple[Operation, int]]:
        filling = [(FILLED, 10)] if row.batch == 100 else []
        return [(LAUNCHED, 1000 * row.batch), *filling]

    monkeypatch.setattr(told_hosts, "operations_of", operations_of)


def test_what_the_smallest_batch_tells_predicts_the_others() -> None:
    small = row(1, 0.05)
    ((_, _, told),) = sweeps([small, row(2, 0.1)])
    twice = told_hosts._work(row(2, 1.0), told).seconds()
    one, *_ = errors([small, row(2, twice), row(3, told_hosts._work(row(3, 1.0), told).seconds())])
    assert one.pairs == 2
    assert one.step == pytest.approx(0, abs=1e-9)
    assert one.speedup == pytest.approx(0, abs=1e-3)


def test_sweeps_of_one_batch_and_of_filled_gpus_are_left_out() -> None:
    filled = row(100, told_hosts._work(row(100, 1.0), 1e-9).seconds())
    alone = replace(row(1, 0.05), trace='{"model": "gpt2"}')
    assert list(sweeps([filled, replace(filled, batch=200), alone])) == []
