"""Scripts that update their weights without an optimizer of PyTorch's."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.script.program import Program
from engine.script.trace import found_loaders, trace_script
from engine.tests.scripts import A10

SCRIPT = """
import os, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Momentum:
    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.moving = [torch.zeros_like(parameter) for parameter in self.parameters]
    def step(self):
        for parameter, moving in zip(self.parameters, self.moving):
            moving.mul_(0.9).add_(parameter.grad)
            parameter.data = parameter.data - 0.1 * moving
    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
optimizer = {optimizer}
data = TensorDataset(torch.rand(640, 256), torch.rand(640, 256))
for index, (x, y) in enumerate(DataLoader(data, batch_size=int(os.environ.get("BATCH", 16)))):
    loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
    loss.backward()
    {update}
"""
SGD = "torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)"
STEP = "optimizer.step(); optimizer.zero_grad()"
BY_HAND = {
    "written to": """with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
            p.grad = None""",
    "written to as data": """for p in model.parameters():
        p.data.add_(p.grad.data, alpha=-0.1)
    model.zero_grad()""",
    "all at once": """weights = list(model.parameters())
    torch._foreach_add_([p.data for p in weights], [p.grad for p in weights], alpha=-0.1)
    model.zero_grad()""",
}


def program(folder: Path, update: str, optimizer: str = "None") -> Program:
    path = folder / "train.py"
    path.write_text(SCRIPT.format(update=update, optimizer=optimizer))
    return Program.of(path)


@pytest.mark.parametrize("update", BY_HAND.values(), ids=BY_HAND)
def test_a_step_by_hand_takes_what_plain_sgd_takes(folder: Path, update: str) -> None:
    fed, size = found_loaders(program(folder, update), A10)
    assert size == 16
    by_hand = trace_script(fed, 32, A10)
    fed, _ = found_loaders(program(folder, STEP, SGD), A10)
    plain = trace_script(fed, 32, A10)
    # An update may make one gradient anew, and the batch before is still there.
    gradient, batch = 4 * 256 * 512, 4 * 256 * 32
    more = by_hand.peak_of_last_step() - plain.peak_of_last_step()
    assert 0 <= more <= gradient + 2 * batch
    assert by_hand.micro_batches == 1


def test_an_optimizer_of_the_scripts_own_is_followed(folder: Path) -> None:
    fed, _ = found_loaders(program(folder, STEP, "Momentum(model.parameters())"), A10)
    own = trace_script(fed, 32, A10)
    fed, _ = found_loaders(program(folder, STEP, SGD), A10)
    state = 4 * (256 * 512 * 2 + 512 + 256)
    assert own.peak_of_last_step() >= trace_script(fed, 32, A10).peak_of_last_step() + state


def test_gradients_that_accumulate_end_no_step(folder: Path) -> None:
    update = BY_HAND["written to"].replace("\n    ", "\n        ")
    fed, _ = found_loaders(program(folder, f"if index % 4 == 3:\n      {update}"), A10)
    assert trace_script(fed, 32, A10).micro_batches == 4
