"""The sweep: a row for each trial at once, as many models as the time allows, one profile each."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import sweep as module
from benchmarks.gpu.run import Budget
from benchmarks.gpu.sweep import SWEEP, Swept, sweep
from engine.core.errors import MeasurementFailed
from engine.interface.trial import Source, Trial
from engine.measurement.protocol import TrialOrder

BERT = Swept("bert", (2, 4), "--precision bf16-mixed")
GPT2 = Swept("gpt2", (1, 8))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, int]]:
    """The orders of trials; GPT-2 fails at 8, and BERT does not fit at 4."""
    orders: list[tuple[Any, int]] = []

    def run_trial(order: TrialOrder, _: Mapping[str, str], seconds: float) -> Trial:
        assert seconds > 0
        orders.append((order.workload, order.batch_size))
        if order.workload == GPT2.workload and order.batch_size == 8:
            raise MeasurementFailed("no such kernel")
        fits = (order.workload, order.batch_size) != (BERT.workload, 4)
        return Trial(order.batch_size, fits, Source.MEASURED, step_seconds=0.5, failure="")

    monkeypatch.setattr(module, "run_trial", run_trial)
    monkeypatch.setattr(module, "profiled", lambda one, _: {"rows": [one.model]})
    return orders


def swept(folder: Path, workloads: tuple[Swept, ...], seconds: float = 100) -> tuple[Any, Any, Any]:
    """The rows, the profiles and the log of a sweep."""
    rows, kernels, log = folder / "rows.csv", folder / "kernels.json.gz", list[str]()
    sweep(workloads, rows, kernels, Budget(seconds, lambda: 0.0), log.append)
    profiles = json.loads(gzip.decompress(kernels.read_bytes())) if kernels.exists() else None
    return list(csv.DictReader(rows.read_text().splitlines())), profiles, log


def test_each_trial_is_a_row_and_the_largest_batch_has_a_profile(
    tmp_path: Path, asked: list[tuple[Any, int]]
) -> None:
    small = Swept("gpt2", (1, 2))
    rows, profiles, _ = swept(tmp_path, (small,))
    assert [(row["model"], row["batch_size"], row["fits"]) for row in rows] == [
        ("gpt2", "1", "True"),
        ("gpt2", "2", "True"),
    ]
    assert profiles == {"gpt2 @ 2": {"rows": ["gpt2"]}}
    assert len(asked) == 2


def test_after_a_failure_or_a_batch_that_does_not_fit_comes_the_next_model(
    tmp_path: Path, asked: list[tuple[Any, int]]
) -> None:
    rows, profiles, log = swept(tmp_path, (GPT2, BERT, Swept("bert", (1,))))
    assert [(row["model"], row["batch_size"], row["fits"]) for row in rows] == [
        ("gpt2", "1", "True"),
        ("bert", "2", "True"),
        ("bert", "4", "False"),
        ("bert", "1", "True"),
    ]
    assert list(profiles) == ["bert @ 1"]
    assert "gpt2, batch 8: no such kernel" in log


def test_without_time_nothing_is_started(tmp_path: Path, asked: list[tuple[Any, int]]) -> None:
    assert swept(tmp_path, (GPT2,), seconds=1)[:2] == ([], None)
    assert not asked


def test_every_workload_is_one_that_can_be_measured() -> None:
    for one in SWEEP:
        assert one.workload.model == one.model
        assert list(one.batch_sizes) == sorted(one.batch_sizes)
    assert len({one.name for one in SWEEP}) == len(SWEEP)
