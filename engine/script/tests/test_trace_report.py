"""Sights of a script's trace, as an answer reports them."""

from __future__ import annotations

from pathlib import Path

import pytest

import engine
from engine.script.batch_sizes import trace_script_at_every_batch_size
from engine.script.tests.scripts import A10, written

CODE = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

def make_step(batch_size):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Linear(64, 64).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    kept = torch.zeros(batch_size, 2**18)

    def step():
        x = torch.randn(batch_size, 2, 16, 64, device=device)
        with torch.autocast(device, torch.bfloat16):
            y = model(x)
            loss = scaled_dot_product_attention(y, y, y).square().mean()
        loss.backward()
        if loss.item() > 100:
            print("high")
        optimizer.step()
        optimizer.zero_grad()

    return step
"""


def test_formats_kernels_optimizer_values_and_what_stays_on_the_host_are_told(
    folder: Path,
) -> None:
    warned: list[str] = []
    traces = trace_script_at_every_batch_size(written(folder, CODE), A10, warned.append)
    first, values, host = traces.at(8).caveats
    assert first == (
        "3 steps were traced. The last one has matrix products in bf16, FlashAttention, "
        "AdamW (fused)."
    )
    assert values.startswith("Placeholders stood for values read at mine.py, line 18 (if loss")
    assert host.startswith("At batch 8, up to 8.0 MiB of tensors are on the host at once")


@pytest.mark.longer
def test_an_answer_and_a_prediction_say_so(folder: Path) -> None:
    factory = written(folder, CODE)
    result = engine.analyze(factory.name, gpu="a10")
    assert any("FlashAttention" in caveat for caveat in result.caveats)
