"""Batch 1, where batch norm has one value per channel and PyTorch refuses the step."""

from __future__ import annotations

from pathlib import Path

import pytest

import engine
from engine.analysis import analyze
from engine.cli.main import BAD_INPUT, OK, main
from engine.core.errors import InvalidInput
from engine.interface.request import AnalysisRequest
from engine.prediction.plans.plan import plan
from engine.script.batch_sizes import trace_script_at_every_batch_size
from engine.script.tests.scripts import written

SMALL: dict[str, object] = {"model": "resnet-18", "image_size": 32, "gpu": "t4"}
"""Its last feature map is one pixel."""

NORMED = """
import torch
from torch import nn

def make_step(batch_size):
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64))
    optimizer = torch.optim.AdamW(model.parameters())
    def step():
        optimizer.zero_grad()
        model(torch.randn(batch_size, 64)).relu().sum().backward()
        optimizer.step()
    return step
"""

pytestmark = pytest.mark.usefixtures("small_models", "kept_traces")


@pytest.mark.longer
@pytest.mark.parametrize(
    "command", [["predict", "--batch-size"], ["analyze", "--current-batch-size"]]
)
def test_batch_one_is_refused_in_one_line(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    name, flag = command
    given = ["resnet-18", "--image-size", "32", "--gpu", "t4"]
    assert main([name, *given, flag, "1"]) == BAD_INPUT
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"error: {flag}: batch norm needs more than one value")
    assert main([name, *given, flag, "2", "--json"]) == OK


def test_a_search_may_start_from_batch_one() -> None:
    """It starts from the smallest batch when the current one does not fit."""
    asked = {"current_batch_size": 60_000, "memory_limit_bytes": 300 * 2**20}
    result = analyze(AnalysisRequest.parse(SMALL | asked), lambda _: None)
    assert result.largest_batch_size > 1
    assert result.recommended_batch_size > 1


@pytest.mark.slow
def test_a_plan_may_start_from_batch_one() -> None:
    made = plan(AnalysisRequest.parse(SMALL | {"gpu": "local"}), lambda _: None)
    assert all(option.largest_batch_size > 1 for option in made.options)
    with pytest.raises(InvalidInput, match="batch norm"):
        plan(AnalysisRequest.parse(SMALL | {"current_batch_size": 1}), lambda _: None)


@pytest.mark.longer
def test_a_script_is_refused_at_batch_one_and_searched_from_there(folder: Path) -> None:
    name = written(folder, NORMED).name
    with pytest.raises(InvalidInput, match="batch norm"):
        engine.analyze(name, gpu="t4", current_batch_size=1)
    found = engine.analyze(
        name, gpu="t4", current_batch_size=65_536, memory_limit_bytes=160 * 2**20
    )
    assert found.largest_batch_size > 1


def test_a_script_traced_at_every_size_has_a_stand_in_for_batch_one(folder: Path) -> None:
    """It does different things at different sizes, so each size is traced separately."""
    unlike = NORMED.replace(
        "zero_grad()", "zero_grad(), [torch.zeros(1) for _ in range(batch_size)]"
    )
    traces = trace_script_at_every_batch_size(written(folder, unlike), None, lambda _: None)
    assert traces.at(1).stands_in
    assert traces.at(1).sizes == traces.at(2).sizes


@pytest.mark.longer
def test_batch_one_is_predicted_where_a_channel_has_several_values() -> None:
    assert (
        main(["predict", "resnet-18", "--image-size", "64", "--gpu", "t4", "--batch-size", "1"])
        == OK
    )
