"""Scripts that select rows by what was chosen for them, as hand-written mixtures of experts."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.measurement import cpu
from engine.measurement.protocol import TrialOrder
from engine.script.batch_sizes import trace_script_at_every_batch_size
from engine.script.tests.scripts import A10, written
from engine.script.trace import trace_script
from engine.tests.shared import rest_slow, slow

MIXTURE = """
import torch
from torch import nn
from torch.nn import functional as F

EXPERTS, CHOSEN = 4, 2

class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(32, EXPERTS)
        make = lambda: nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))
        self.experts = nn.ModuleList(make() for _ in range(EXPERTS))

    def forward(self, x):
        weights, chosen = {choosing}
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            {selecting}
        return out

def make_step(batch_size):
    torch.manual_seed(0)
    model = Mixture()
    optimizer = torch.optim.AdamW(model.parameters())
    def step():
        model(torch.randn(64 * batch_size, 32)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return step
"""
TOPK = "self.gate(x).softmax(-1).topk(CHOSEN, dim=-1)"
WHERE = """row, slot = torch.where(chosen == number)
            out.index_add_(0, row, expert(x[row]) * weights[row, slot, None])"""
ONE_HOT = """slot, row = torch.where(F.one_hot(chosen, EXPERTS).permute(2, 1, 0)[number])
            out.index_add_(0, row, expert(x[row]) * weights[row, slot, None])"""
MASK = """mask = (chosen == number).any(dim=-1)
            if not mask.any(): continue
            out[mask] += expert(x[mask]) * weights[mask].sum(-1, keepdim=True)"""

SPLIT = """if number: break
            order = chosen.flatten().argsort()
            counts = torch.bincount(chosen.flatten(), minlength=EXPERTS).tolist()
            rows = order // chosen.shape[-1]
            parts = zip(self.experts, x[rows].split(counts))
            made = torch.cat([one(part) for one, part in parts])
            out.index_add_(0, rows, made * weights.flatten()[order, None])"""
GATES = "gates = torch.zeros(len(x), EXPERTS).scatter(1, chosen, weights)"
GATED = f"""if number: break
            {GATES}
            order = torch.nonzero(gates).sort(0)[1][:, 1]
            rows = torch.nonzero(gates)[order, 0]
            counts = (gates > 0).sum(0).tolist()
            made = [one(part) for one, part in zip(self.experts, x[rows].split(counts))]
            out = out.index_add(0, rows, torch.cat(made))"""
COLUMN = f"""{GATES}
            row, = torch.where(gates[:, number] != 0)
            out.index_add_(0, row, expert(x[row]) * gates[row, number, None])"""
SET = """mask = torch.zeros(len(x), EXPERTS, dtype=torch.bool)
            mask.scatter_(-1, chosen, True)
            row = mask[:, number].nonzero().squeeze(1)
            out.index_add_(0, row, expert(x[row]))"""
WAYS = {
    "where": WHERE,
    "one_hot": ONE_HOT,
    "mask": MASK,
    "split": SPLIT,
    "gates": GATED,
    "column of gates": COLUMN,
    "mask set at choices": SET,
}


MAX = "self.gate(x).softmax(-1).max(-1, keepdim=True)"


@pytest.mark.parametrize(
    ("choosing", "selecting"),
    [
        *rest_slow(((TOPK, selecting) for selecting in WAYS.values()), fast=2),
        *(slow(MAX, selecting) for selecting in WAYS.values()),
    ],
    ids=[*WAYS, *(f"{name} of the maximum" for name in WAYS)],
)
def test_all_experts_together_get_what_was_chosen(
    folder: Path, choosing: str, selecting: str
) -> None:
    factory = written(folder, MIXTURE.format(choosing=choosing, selecting=selecting))
    measured = cpu.run_trial(TrialOrder(factory, 8)).peak_allocated_bytes
    peak, _ = trace_script(factory, 8, None).peak_by_category()
    assert measured is not None
    assert peak == pytest.approx(measured, rel=0.05)  # some experts are chosen more often


@pytest.mark.longer
def test_the_answer_says_what_was_taken_to_be_alike(folder: Path) -> None:
    factory = written(folder, MIXTURE.format(choosing=TOPK, selecting=WHERE))
    warned: list[str] = []
    caveats = trace_script_at_every_batch_size(factory, A10, warned.append).at(8).caveats
    assert warned == []
    (said,) = (caveat for caveat in caveats if "a choice among several" in caveat)
    assert "torch.where(chosen == number)" in said


@pytest.mark.longer
def test_what_a_model_gets_right_may_be_everything(folder: Path) -> None:
    selecting = """labels = torch.randint(0, EXPERTS, (len(x),))
            right = x[chosen == labels]
            out = out + expert(x)"""
    choosing = "self.gate(x).max(-1)"
    factory = written(folder, MIXTURE.format(choosing=choosing, selecting=selecting))
    caveats = trace_script(factory, 8, A10).caveats
    assert any("as large as it can be" in caveat for caveat in caveats)
    assert not any("a choice among several" in caveat for caveat in caveats)
