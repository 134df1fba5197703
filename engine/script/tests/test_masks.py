"""Attention masks in scripts: dropped where a real step drops them, however they are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.measurement import cpu
from engine.measurement.protocol import TrialOrder
from engine.script.tests.scripts import written
from engine.script.trace import trace_script
from engine.tests.shared import slow

CODE = """
import torch
from transformers import {family}Config, {family}{head}

def make_step(b):
    model = {family}{head}({family}Config({sizes}vocab_size=100))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    ids = torch.randint(0, 100, (b, 20))
    mask = {mask}
    {padding}
    def step():
        optimizer.zero_grad()
        model(input_ids=ids, attention_mask=mask, labels={labels}).loss.backward()
        optimizer.step()
    return step
"""
BERT = {
    "family": "Bert",
    "head": "ForSequenceClassification",
    "sizes": "num_hidden_layers=1, hidden_size=32, num_attention_heads=2, intermediate_size=64, ",
    "labels": "torch.zeros(b, dtype=torch.long)",
}
GPT2 = {
    "family": "GPT2",
    "head": "LMHeadModel",
    "sizes": "n_layer=1, n_embd=32, n_head=2, use_cache=False, ",
    "labels": "ids",
}


COLLATED = "torch.stack([torch.tensor([1] * 20) for _ in range(b)])", ""
PADDED = "torch.ones_like(ids)", "mask[-1, -1] = 0"


@pytest.mark.longer
@pytest.mark.parametrize(
    ("model", "mask", "padding"),
    [
        (BERT, *COLLATED),
        (GPT2, *PADDED),
        slow(BERT, *PADDED),
        slow(GPT2, *COLLATED),
        *(
            slow(model, mask, "")
            for model in (BERT, GPT2)
            for mask in ("None", "torch.ones(b, 20, dtype=torch.long)")
        ),
    ],
)
def test_a_mask_takes_what_it_takes_in_a_real_step(
    folder: Path, model: dict[str, str], mask: str, padding: str
) -> None:
    factory = written(folder, CODE.format(**model, mask=mask, padding=padding))
    measured = cpu.run_trial(TrialOrder(factory, 3))
    assert trace_script(factory, 3, None).peak_by_category()[0] == measured.peak_allocated_bytes
