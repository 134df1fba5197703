"""Padded inputs that PyTorch would nest while it evaluates."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.script.devices.nested import PADDED
from engine.script.tests.scripts import A10, written
from engine.script.trace import trace_script

pytestmark = pytest.mark.torch

SCRIPT = """
import torch
from torch import nn


def make_step(batch_size):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(batch_size, 8, 16, device="cuda")
    padding = torch.zeros(batch_size, 8, dtype=torch.bool, device="cuda")

    def step():
        model.train()
        model(x, src_key_padding_mask=padding).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            model(x, src_key_padding_mask=padding)

    return step
"""


@pytest.mark.longer
def test_they_stay_padded(folder: Path) -> None:
    trace = trace_script(written(folder, SCRIPT), 2, A10)
    assert PADDED in trace.caveats
