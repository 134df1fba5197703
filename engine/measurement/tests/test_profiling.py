"""The trace of a measured step, as PyTorch's profiler writes it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.measurement.profiling import profile_step
from engine.measurement.protocol import TrialOrder
from engine.tests.shared import small_workload

TRAINED = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
size = parser.parse_args().batch_size
model = nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (rows,) in DataLoader(TensorDataset(torch.rand(512, 64)), batch_size=size):
    model(rows).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def events_of(file: Path) -> list[dict[str, Any]]:
    """The operators and marks of a trace."""
    return [one for one in json.loads(file.read_text())["traceEvents"] if one.get("ph") == "X"]


@pytest.mark.torch
@pytest.mark.usefixtures("small_models")
def test_the_trace_is_that_of_one_whole_step(tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    workload = small_workload("bert", sequence_length=8)
    assert profile_step(TrialOrder(workload, 2, file=str(file))).fits
    events = events_of(file)
    steps = [one for one in events if one["name"].startswith("Optimizer.step")]
    assert len(steps) == 1
    assert any("Backward" in one["name"] for one in events)
    products = [one for one in events if one["name"] == "aten::addmm"]
    assert all(one["args"]["Input Dims"] for one in products)


@pytest.mark.slow
def test_a_script_has_one_too(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINED)
    file = tmp_path / "step.json"
    asked = ["train.py", "--batch-size", "8", "--memory-limit", "1GiB", "--chrome-trace", str(file)]
    command = [sys.executable, "-m", "engine", "measure", *asked]
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": root}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (product,) = (one for one in events_of(file) if one["name"] == "aten::addmm")
    assert [8, 64] in product["args"]["Input Dims"]
