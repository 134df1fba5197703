"""Finding a script's model from outside, whatever it was wrapped in on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.script.tests.scripts import written
from engine.script.trace import trace_script

UNET = """
import torch
from torch import nn

class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(4, 32, 3, padding=1)
        self.to_q = nn.Linear(32, 32)
        self.up = nn.Conv2d(32, 4, 3, padding=1)

    def forward(self, x):
        x = self.down(x)
        return self.up(self.to_q(x.movedim(1, -1)).movedim(-1, 1))

def adapted(model):
    {adapt}

def make_step(batch_size):
    model = UNet().requires_grad_(False)
    adapted(model)
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    noise = torch.randn(batch_size, 4, 8, 8)
    def step():
        optimizer.zero_grad()
        nn.functional.mse_loss(model(noise), noise).backward()
        optimizer.step()
    return step
"""
FROZEN = 4 * (4 * 32 * 9 + 32 + 32 * 32 + 32 + 32 * 4 * 9 + 4)
INPUTS = 4 * 4 * 8 * 8


def test_a_frozen_model_is_still_parameters_after_its_wrapper_has_gone(folder: Path) -> None:
    wrapped = "nn.ModuleList([model]); model.up.requires_grad_()"
    found = trace_script(written(folder, UNET.format(adapt=wrapped)), 4, None)
    _, held = found.peak_by_category()
    assert (held["parameters"], held["inputs"]) == (FROZEN, 4 * INPUTS)


def test_lora_put_into_a_frozen_unet_leaves_its_weights_parameters(folder: Path) -> None:
    pytest.importorskip("peft")
    adapters = (
        "from peft import LoraConfig, inject_adapter_in_model; "
        "inject_adapter_in_model(LoraConfig(r=2, target_modules=['to_q']), model)"
    )
    found = trace_script(written(folder, UNET.format(adapt=adapters)), 4, None)
    _, held = found.peak_by_category()
    lora = 4 * (2 * 32 + 32 * 2)
    assert held["parameters"] == FROZEN + lora
    assert held["gradients"] <= lora
    assert held["optimizer_state"] >= 2 * lora
    assert held["inputs"] == 4 * INPUTS
    assert "to_q.base_layer" in found.modules
