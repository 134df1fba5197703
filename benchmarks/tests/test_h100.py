"""Our own measurements are read as they stand, and compared as they were counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import h100
from benchmarks.gpu.results import load
from benchmarks.h100 import Compared, interval, of_run, read_trials
from engine.interface.workload import Workload
from engine.prediction.timing.intervals import Counted

TRIALS = read_trials(h100.TRIALS.read_text(encoding="utf-8"))
ALL, RESERVED, USED = h100.MEMORY


def test_every_trial_is_a_workload_that_parses() -> None:
    assert len(TRIALS) == 83
    for trial in TRIALS:
        Workload.parse(trial.fields)
        assert 0 < trial.bytes[ALL] <= trial.bytes[RESERVED]


def test_settings_are_read_as_flags_numbers_and_switches() -> None:
    text = "model,settings,batch_size,peak_allocated_bytes,peak_reserved_bytes,device_used_bytes\n"
    (trial,) = read_trials(text + "toy,--precision fp32 --lora-rank 8 --use-cache true,4,10,12,\n")
    assert trial.fields == {
        "model": "toy", "precision": "fp32", "lora_rank": 8, "use_cache": True,
    }  # fmt: skip
    assert trial.bytes == {ALL: 10, RESERVED: 12}


def test_the_stored_run_is_that_of_the_same_gpu_and_software() -> None:
    run = load(h100.RUN)
    assert run.device.facts.name == "NVIDIA H100 80GB HBM3"
    assert run.device.ran_on.transformers == h100.SOFTWARE["transformers"]


def test_trials_under_an_emulated_limit_are_not_compared() -> None:
    run = load(h100.RUN)
    rows = [replace(row, predicted=row.measured) for row in run.rows]
    compared = list(of_run(replace(run, rows=rows)))
    whole = [row for row in rows if row.limit_bytes is None and row.measured.fits]
    assert 0 < len(compared) == len(whole) < len(rows)
    assert all(one.error(counted) == 0 for one in compared for counted in h100.MEMORY)


COMPARED = Compared("toy", 4, {ALL: 100, USED: 200}, {ALL: 90, RESERVED: 1, USED: 210}, 190, 220)


@pytest.mark.parametrize(
    ("measured", "within", "above"), [(190, 1, 0), (220, 1, 0), (221, 0, 1), (189, 0, 0)]
)
def test_an_interval_holds_or_is_exceeded(measured: int, within: int, above: int) -> None:
    found = interval([replace(COMPARED, measured={USED: measured}), replace(COMPARED, measured={})])
    assert found == {"measured": 1, "within": within, "above": above}


def test_errors_are_shares_of_what_was_measured() -> None:
    assert COMPARED.error(Counted.PEAK_ALLOCATED) == pytest.approx(-0.1)
    assert COMPARED.error(Counted.PEAK_RESERVED) is None
