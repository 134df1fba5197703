"""Passes without gradients in a row are run as far as they show something new."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from engine.script.program import Program
from engine.script.tests.scripts import A10, real
from engine.script.trace import Followed, follow
from engine.tests.shared import slow

pytestmark = pytest.mark.torch

SCRIPT = """
import sys
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

batch = int(sys.argv[2]) if len(sys.argv) > 1 else 1
WORDS, WIDTH = 50, 32
GPU = torch.cuda.is_available()
device = "cuda" if GPU else "cpu"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.drop = nn.Embedding(WORDS, WIDTH), nn.Dropout(0.1)
        self.qkv, self.head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WORDS)
        self.seen = []

    def forward(self, ids, t=0):
        q, k, v = self.qkv(self.drop(self.words(ids))).chunk(3, -1)
        {inside}
        return self.head((q @ k.transpose(1, 2)).softmax(-1) @ v), None


loader = DataLoader(TensorDataset(torch.randint(WORDS, (64, 8))), batch_size=batch)
held_out = DataLoader(TensorDataset(torch.randint(WORDS, ({samples}, 8))), batch_size=16)
model = Model().to(device)
head = nn.Linear(WORDS, WORDS).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.no_grad()
def generate(tokens, limit=10_000):
    ids = torch.zeros(4, 1, dtype=torch.long, device=device)
    for _ in range(tokens):
        logits, _ = model(ids[:, -limit:])
        top, _ = torch.topk(logits[:, -1] / 0.8, 5)
        odds = F.softmax(logits[:, -1].masked_fill(logits[:, -1] < top[:, [-1]], -1e9), -1)
        ids = torch.cat((ids, torch.multinomial(odds, 1)), 1)
    return ids


@torch.no_grad()
def denoise(steps):
    kept, ids = [], torch.zeros(64, 8, dtype=torch.long, device=device)
    for _ in range(steps):
        kept.append(model(ids)[0])
    return torch.cat(kept)


@torch.no_grad()
def count_down(steps):
    ids = torch.zeros(32, 8, dtype=torch.long, device=device)
    for t in reversed(range(steps)):
        ids = model(ids, t)[0].argmax(-1)


@torch.no_grad()
def in_turn(tokens):
    ids = torch.zeros(8, 1, dtype=torch.long, device=device)
    kept = []
    for _ in range(tokens):
        logits, _ = model(ids)
        kept.append(head(logits))
        ids = torch.cat((ids, kept[-1][:, -1].argmax(-1, keepdim=True)), 1)
        if ids.shape[1] % 20 == 0:
            ids = ids[:, :1]


@torch.no_grad()
def evaluate():
    return torch.cat([model(ids.to(device))[0] for (ids,) in held_out])


for step, (ids,) in enumerate(loader):
    optimizer.zero_grad()
    logits, _ = model(ids.to(device))
    F.cross_entropy(logits.flatten(0, 1), ids.flatten().to(device)).backward()
    optimizer.step()
    if step % 3 == {at}:
        model.eval()
        {does}
        model.train()
"""


def program(folder: Path, does: str, at: int = 0, inside: str = "", samples: int = 16) -> Program:
    path = folder / "train.py"
    path.write_text(SCRIPT.format(does=does, at=at, inside=inside, samples=samples))
    return Program.of(path, (), "--batch")


def operators(traced: Followed) -> int:
    return traced.values.operators


ROWS = [
    "generate(24)",
    "generate(24, 8)",
    "[generate(n) for n in (16, 5, 20)]",
    "denoise(20)",
    "evaluate()",
    "count_down(12)",
    "in_turn(45)",
    "generate(12), denoise(9), evaluate()",
]
FAST = {("generate(24)", 0), ("count_down(12)", 1), ("generate(12), denoise(9), evaluate()", 1)}


@pytest.mark.longer
@pytest.mark.parametrize(
    ("does", "at"),
    [
        ((does, at) if (does, at) in FAST else slow(does, at))
        for does, at in itertools.product(ROWS, (0, 1))
    ],
)
def test_they_take_what_they_take_on_real_tensors(tmp_path: Path, does: str, at: int) -> None:
    one = program(tmp_path, does, at, samples=200)
    peak, _ = follow(one, 1, None, None).trace.peak_by_category()
    assert peak == real(one, 1).peak_allocated_bytes


@pytest.mark.longer
def test_they_run_in_their_own_precision_within_another_one(tmp_path: Path) -> None:
    one = program(tmp_path, "denoise(40)")
    code = Path(one.path).read_text()
    plain = "    logits, _ = model(ids.to(device))\n"
    cast = "    with torch.autocast(device, torch.bfloat16): logits, _ = model(ids.to(device))\n"
    Path(one.path).write_text(code.replace(plain, cast))
    peak, _ = follow(one, 1, None, None).trace.peak_by_category()
    assert peak == real(one, 1).peak_allocated_bytes


@pytest.mark.longer
@pytest.mark.parametrize(("does", "each"), [slow("generate({})", 20), ("denoise({})", 6)])
def test_more_of_them_take_a_few_operators_each(tmp_path: Path, does: str, each: int) -> None:
    some, more = (follow(program(tmp_path, does.format(n)), 1, A10, None) for n in (20, 40))
    assert operators(more) - operators(some) <= 20 * each
    told = next(one for one in more.trace.caveats if "were not run" in one)
    assert told.startswith("37 forward passes without gradients")


@pytest.mark.longer
@pytest.mark.parametrize(
    "inside",
    [
        "self.seen.append(q)",
        slow("self.seen.append(0); q = q + torch.ones(500 * len(self.seen)).sum()"),
    ],
    ids=["keeps what it makes", "takes more each time"],
)
def test_one_that_leaves_something_behind_is_run_each_time(tmp_path: Path, inside: str) -> None:
    one = program(tmp_path, "model.seen.clear(); denoise(12)", 1, inside)
    traced = follow(one, 1, None, None).trace
    assert traced.peak_by_category()[0] == real(one, 1).peak_allocated_bytes
    assert not any("were not run" in caveat for caveat in traced.caveats)


@pytest.mark.longer
def test_a_frozen_teacher_is_run_in_each_step(tmp_path: Path) -> None:
    one = program(tmp_path, "pass", inside="pass")
    code = (
        Path(one.path)
        .read_text()
        .replace(
            "    optimizer.zero_grad()\n",
            "    optimizer.zero_grad()\n    with torch.no_grad(): model(ids)\n",
        )
    )
    Path(one.path).write_text(code)
    traced = follow(one, 1, None, None).trace
    assert traced.peak_by_category()[0] == real(one, 1).peak_allocated_bytes
    assert not any("were not run" in caveat for caveat in traced.caveats)


@pytest.mark.longer
def test_a_module_may_be_given_anything_by_name(tmp_path: Path) -> None:
    one = program(tmp_path, "evaluate()")
    code = Path(one.path).read_text()
    for without, with_name in (
        ("ids, t=0):", "ids, t=0, module=None):"),
        ("model(ids.to(device))", "model(ids.to(device), module=0)"),
    ):
        assert without in code
        code = code.replace(without, with_name)
    Path(one.path).write_text(code)
    assert (
        follow(one, 1, None, None).trace.peak_by_category()[0] == real(one, 1).peak_allocated_bytes
    )
