"""The forward passes of new GPUs are read, and compared model by model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.step_time import forward_passes
from benchmarks.step_time.forward_passes import errors, ratios, read
from benchmarks.step_time.rows import Row, gpus
from engine.prediction.timing.work import StepTime

SETUPS = {
    ("2.4.0", "rtx-3090"), ("2.4.0", "rtx-4090"), ("2.9.1", "rtx-4090"), ("2.9.1", "rtx-5090"),
    ("2.9.1", "rtx-pro-6000-max-q"),
}  # fmt: skip


def test_the_same_models_ran_on_every_setup() -> None:
    rows = read()
    models = {row.trace for row in rows}
    assert {(row.source, row.gpu) for row in rows} == SETUPS
    assert len(rows) == len(models) * len(SETUPS)
    assert {row.gpu for row in rows} <= gpus().keys()


def test_only_setups_that_differ_in_one_thing_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice_as_long(row: Row) -> StepTime:
        return StepTime(2 * row.seconds, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)

    monkeypatch.setattr(forward_passes, "timed", twice_as_long)
    rows = read()
    assert {one.bias for one in errors(rows)} == {1.0}
    found = ratios(rows)
    assert [one.what for one in found] == [
        "rtx-4090 over rtx-3090", "2.9.1 over 2.4.0", "rtx-5090 over rtx-4090",
        "rtx-pro-6000-max-q over rtx-4090", "rtx-pro-6000-max-q over rtx-5090",
    ]  # fmt: skip
    assert [one.error for one in found] == [pytest.approx(0)] * len(found)


def test_a_ratio_is_of_speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_passes, "timed", lambda _: StepTime(1.0, 0, 0, 1, 0, 0, 0))
    row = next(row for row in read() if row.gpu == "rtx-3090")
    other = replace(row, gpu="rtx-4090", batch=2 * row.batch, seconds=row.seconds / 2)
    (found,) = ratios([row, other])
    assert (found.measured, found.predicted) == (4.0, 2.0)
    assert found.error == pytest.approx(0.5)
