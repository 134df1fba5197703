"""Scripts that update their weights without an optimizer of PyTorch's."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.script.program import Program
from engine.script.tests.scripts import A10, real
from engine.script.trace import found_loaders, trace_script
from engine.tracing.trace import Category, Trace

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


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """The script with SGD of PyTorch's."""
    fed, _ = found_loaders(program(tmp_path_factory.mktemp("plain"), STEP, SGD), A10)
    return trace_script(fed, 8, A10)


@pytest.mark.longer
@pytest.mark.parametrize(
    "update",
    [
        pytest.param(update, id=name, marks=() if name == "written to" else pytest.mark.slow)
        for name, update in BY_HAND.items()
    ],
)
def test_a_step_by_hand_takes_what_plain_sgd_takes(folder: Path, update: str, plain: Trace) -> None:
    fed, size = found_loaders(program(folder, update), A10)
    assert size == 16
    by_hand = trace_script(fed, 8, A10)
    # An update may make one gradient anew, and the batch before is still there.
    gradient, batch = 4 * 256 * 512, 4 * 256 * 8
    more = by_hand.peak_of_last_step() - plain.peak_of_last_step()
    assert 0 <= more <= gradient + 2 * batch
    assert by_hand.micro_batches == 1


@pytest.mark.longer
def test_an_optimizer_of_the_scripts_own_is_followed(folder: Path, plain: Trace) -> None:
    fed, _ = found_loaders(program(folder, STEP, "Momentum(model.parameters())"), A10)
    own = trace_script(fed, 8, A10)
    state = 4 * (256 * 512 * 2 + 512 + 256)
    assert own.peak_of_last_step() >= plain.peak_of_last_step() + state


@pytest.mark.slow
def test_gradients_that_accumulate_end_no_step(folder: Path) -> None:
    update = BY_HAND["written to"].replace("\n    ", "\n        ")
    fed, _ = found_loaders(program(folder, f"if index % 4 == 3:\n      {update}"), A10)
    assert trace_script(fed, 8, A10).micro_batches == 4


LOOPS = {
    "plain tensors": """
w, b = (torch.randn(s, device=device, requires_grad=True) for s in ((64, 512), (512,)))
for x in batches:
    loss = (x @ w + b).square().mean()
    loss.backward()
    with torch.no_grad():
        for p in (w, b):
            p -= 0.1 * p.grad
            p.grad = None
""",
    "other plain tensors": """
w, b = (torch.randn(s, device=device, requires_grad=True) for s in ((64, 512), (512,)))
for x in batches:
    loss = (x @ w + b).square().mean()
    loss.backward()
    w = (w - 0.1 * w.grad).detach().requires_grad_()
    b = (b - 0.1 * b.grad).detach().requires_grad_()
""",
    "gradients that are asked for": """
model = nn.Linear(64, 512).to(device)
for x in batches:
    weights = list(model.parameters())
    gradients = torch.autograd.grad(model(x).square().mean(), weights)
    for p, g in zip(weights, gradients):
        p.data.add_(g, alpha=-0.1)
""",
    "gradients as functions": """
model = nn.Linear(64, 512).to(device)
weights = {name: p.detach() for name, p in model.named_parameters()}
def loss_of(weights, x):
    return torch.func.functional_call(model, weights, (x,)).square().mean()
for x in batches:
    gradients = torch.func.grad(loss_of)(weights, x)
    weights = {name: p - 0.1 * gradients[name] for name, p in weights.items()}
""",
    "gradients of each sample": """
model = nn.Linear(64, 512).to(device)
def loss_of(weights, x):
    return torch.func.functional_call(model, weights, (x[None],)).square().mean()
of_each = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0))
for x in batches:
    gradients = of_each({name: p.detach() for name, p in model.named_parameters()}, x)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.sub_(gradients[name].mean(0), alpha=0.1)
""",
    "as soon as a gradient is there": """
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64)).to(device)
@torch.no_grad()
def update(p):
    p.add_(p.grad, alpha=-0.1)
    p.grad = None
for p in model.parameters():
    p.register_post_accumulate_grad_hook(update)
for x in batches:
    model(x).square().mean().backward()
""",
    "two networks in turn": """
maker, critic = nn.Linear(64, 256).to(device), nn.Linear(256, 1).to(device)
def update(model):
    for p in model.parameters():
        p.data.add_(p.grad.data, alpha=-0.1)
        p.grad = None
for x in batches:
    made = maker(x)
    critic(made.detach()).mean().backward()
    update(critic)
    critic(made).mean().backward()
    update(maker)
""",
}
HEAD = """
import sys, torch
from torch import nn

size = int(sys.argv[-1])
device = "cuda" if torch.cuda.is_available() else "cpu"
batches = (torch.randn(size, 64, device=device) for _ in range(12))
"""


def hand_written(folder: Path, loop: str) -> Program:
    path = folder / "train.py"
    path.write_text(HEAD + loop)
    return Program.of(path, (), "size")


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_an_update_by_hand_equals_real_steps_to_the_byte(folder: Path, loop: str) -> None:
    program = hand_written(folder, loop)
    predicted = trace_script(program, 64, None).peak_by_category()[0]
    assert predicted == real(program, 64).peak_allocated_bytes


def test_a_step_of_two_networks_has_both_updates(folder: Path) -> None:
    trace = trace_script(hand_written(folder, LOOPS["two networks in turn"]), 64, A10)
    backward = [one.name for one in trace.operations if one.phase == "backward"]
    assert backward.count("aten.mm") == 1 + 2 + 1  # critic of itself, then critic and maker


def test_plain_weights_are_told_from_activations(folder: Path) -> None:
    trace = trace_script(hand_written(folder, LOOPS["plain tensors"]), 64, A10)
    held = trace.peak_by_category()[1]
    assert held[Category.PARAMETERS] == 4 * (64 * 512 + 512)


def test_weights_that_something_else_follows_end_no_step(folder: Path) -> None:
    """A critic's weights are clamped and an average follows them, as in WGAN."""
    loop = """
model, average = nn.Linear(64, 512).to(device), nn.Linear(64, 512).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for index, x in enumerate(batches):
    model(x).mean().backward()
    for p, q in zip(model.parameters(), average.parameters()):
        p.data.clamp_(-1, 1)
        q.data.lerp_(p.data, 0.1)
    if index % 2:
        optimizer.step()
        optimizer.zero_grad()
"""
    trace = trace_script(hand_written(folder, loop), 64, A10)
    forward = [one.name for one in trace.operations if one.phase == "forward"]
    assert forward.count("aten.addmm") == 2
