"""The comparison of releases: its cases, its table and its status."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.compat import real_steps
from engine.models.presets import PRESETS
from engine.versions.environments import Environment

Line = tuple[str, str, int | str]


def test_every_architecture_of_a_preset_is_tried() -> None:
    tried = {workload.preset.config()["model_type"] for _, _, workload in real_steps.cases()}
    assert tried >= {
        preset.config()["model_type"] for preset in PRESETS.values() if not preset.package
    }


@pytest.mark.longer
@pytest.mark.torch
def test_a_trace_equals_real_steps_here() -> None:
    workload = next(w for name, _, w in real_steps.cases() if name == "bert")
    assert real_steps.difference(workload) == 0


@pytest.mark.torch
def test_what_cannot_be_trained_so_is_no_difference() -> None:
    (config,) = {name: w.config for name, _, w in real_steps.cases() if name == "resnet"}.values()
    assert config is not None
    workload = real_steps._workload("resnet", config, gradient_checkpointing=True)
    assert real_steps.difference(workload) == real_steps.UNABLE


@pytest.mark.parametrize(
    ("found", "status"),
    [(0, 0), (real_steps.MISSING, 0), (real_steps.UNABLE, 0), (-8, 1), ("ValueError: no", 1)],
)
def test_the_status_says_whether_all_are_equal(
    found: int | str,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def in_no_time(environment: Environment, names: list[str]) -> Iterator[Line]:
        yield from [("bert", "AdamW", found)]

    monkeypatch.setattr(real_steps, "RELEASES", ())
    monkeypatch.setattr(real_steps, "run_in", in_no_time)
    monkeypatch.setattr("sys.argv", ["real_steps"])
    assert real_steps.main() == status
    assert "bert" in capsys.readouterr().out
