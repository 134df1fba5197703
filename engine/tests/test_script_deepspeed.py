"""A script on DeepSpeed is refused, and told how to describe the same training run."""

from __future__ import annotations

import base64
import json
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.request import AnalysisRequest
from engine.script.deepspeed import fields_of, read
from engine.script.on_import import when_imported
from engine.script.program import Program
from engine.script.trace import CannotTrace, trace_script
from engine.tests.scripts import A10

pytestmark = pytest.mark.torch

CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "zero_optimization": {
        "stage": 2,
        "reduce_bucket_size": 2e8,
        "overlap_comm": True,
        "offload_optimizer": {"device": "cpu"},
    },
}
FIELDS = {
    "precision": "bf16-mixed",
    "parallelism": "zero-2",
    "world_size": 8,
    "current_batch_size": 8,
    "gradient_accumulation": 4,
    "reduce_bucket_size": 200_000_000,
    "overlap_comm": True,
    "optimizer_offload": True,
}


def test_the_fields_of_an_analysis_say_what_the_config_says() -> None:
    assert fields_of(CONFIG, 8) == FIELDS
    AnalysisRequest.parse({"model": "qwen3-0.6b", "gpu": "a100-80gb", **FIELDS})


@pytest.mark.parametrize(
    ("config", "gpus", "expected"),
    [
        ({}, 1, {}),
        ({}, 2, {"parallelism": "ddp", "world_size": 2}),
        ({"zero_optimization": {"stage": 1}}, 1, {"parallelism": "zero-1"}),
        ({"train_micro_batch_size_per_gpu": "auto"}, 1, {}),
        (
            {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}},
            1,
            {"parallelism": "zero-3", "cpu_offload": True},
        ),
        # Stage 3 has no second bucket, and what is on a disk is not predicted.
        (
            {
                "zero_optimization": {
                    "stage": 3,
                    "overlap_comm": True,
                    "offload_optimizer": {"device": "nvme"},
                }
            },
            1,
            {"parallelism": "zero-3"},
        ),
    ],
)
def test_what_a_config_leaves_open_is_left_open(
    config: dict[str, Any], gpus: int, expected: dict[str, Any]
) -> None:
    assert fields_of(config, gpus) == {"precision": "bf16-mixed", **expected}


def _written(config: dict[str, Any], folder: Path) -> str:
    (folder / "ds.json").write_text(json.dumps(config))
    return str(folder / "ds.json")


@pytest.mark.parametrize(
    "give",
    [
        lambda config, folder: config,
        _written,
        lambda config, folder: base64.urlsafe_b64encode(json.dumps(config).encode()).decode(),
    ],
)
def test_a_config_may_be_given_in_each_way_that_deepspeed_takes(
    give: Callable[[dict[str, Any], Path], object], tmp_path: Path
) -> None:
    assert read(give(CONFIG, tmp_path)) == CONFIG


@pytest.mark.parametrize("config", [None, "no.json", "[1]", "e30x"])
def test_what_is_no_config_says_nothing(config: object) -> None:
    assert read(config) == {}


@pytest.mark.parametrize("looked_for", ["", "import importlib.util as u; u.find_spec('deepspeed')"])
def test_a_script_gets_the_command_that_predicts_the_same(
    looked_for: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    (tmp_path / "deepspeed.py").write_text("def initialize(**given): raise SystemExit\n")
    script = tmp_path / "train.py"
    script.write_text(
        f"{looked_for}\nimport deepspeed, torch\n"
        f"deepspeed.initialize(model=torch.nn.Linear(2, 2), config={CONFIG!r})\n"
    )
    with pytest.raises(CannotTrace) as refused:
        trace_script(Program(str(script), (), "--batch-size"), 4, A10)
    said = str(refused.value)
    assert "train.py, line 3" in said
    flags = shlex.join(
        ["--current-batch-size", "8", "--precision", "bf16-mixed", "--gradient-accumulation", "4"]
    )
    assert f"memorymark analyze MODEL {flags}" in said
    assert "--parallelism zero-2 --world-size 8" in said


def test_a_module_is_changed_whether_or_not_it_was_there_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    names = ("loaded_before", "loaded_after")
    for name in names:
        (tmp_path / f"{name}.py").touch()
        monkeypatch.delitem(sys.modules, name, raising=False)
    changed: list[str] = []
    __import__("loaded_before")
    when_imported({name: partial(changed.append, name) for name in names})
    assert changed == ["loaded_before"]
    __import__("loaded_after")
    assert changed == ["loaded_before", "loaded_after"]
