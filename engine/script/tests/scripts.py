"""Users' training code, written to a file for a test."""

from __future__ import annotations

from pathlib import Path

import numpy
import torch

from engine.gpus import GPUS
from engine.interface.trial import Trial
from engine.measurement import cpu, programs
from engine.measurement.protocol import TrialOrder
from engine.script.factory import Factory
from engine.script.machine import pretended_machine
from engine.script.process.fork import Done, in_a_fork
from engine.script.program import Program
from engine.tracing.lowering import cuda_behaviour

EXAMPLE = "engine.examples.my_training:make_step"
A10 = cuda_behaviour(8.6)

LINEAR = """
import torch
from torch import nn

def make_step(batch_size):
    model = nn.Linear(64, 64)
    optimizer = torch.optim.{optimizer}
    x = torch.randn(batch_size, 64)
    def step():
        optimizer.zero_grad()
        loss = model(x).relu().sum()
        loss.backward()
        optimizer.step()
        {last}
    return step
"""
ADAM = "AdamW(model.parameters())"

BY_VALUE = "torch.zeros(int(loss.item()))"
"""Memory that depends on a value, so that no trace tells what it is."""

ACCUMULATING = """
import torch
from torch import nn

def make_step(batch_size, gradient_accumulation=1):
    model = nn.Linear(512, 512)
    optimizer = torch.optim.AdamW(model.parameters())
    kept = []
    def step():
        optimizer.zero_grad()
        kept.clear()
        for _ in range(gradient_accumulation):
            x = torch.randn(batch_size, 512)
            (model(x).relu().sum() / gradient_accumulation).backward()
            {last}
        optimizer.step()
    return step
"""


def written(folder: Path, code: str, name: str = "mine") -> Factory:
    (folder / f"{name}.py").write_text(code)
    return Factory.of(f"{name}:make_step")


def linear(folder: Path, optimizer: str = ADAM, last: str = "pass") -> Factory:
    return written(folder, LINEAR.format(optimizer=optimizer, last=last))


def real(program: Program, batch_size: int) -> Trial:
    """Memory that a real run takes on the CPU."""
    order = TrialOrder(program, batch_size)

    def run(done: Done[Trial]) -> None:
        torch.set_num_threads(1)  # OpenMP's do not survive fork()
        programs.run_program(order, cpu.ProgramWatch(order), done)

    return in_a_fork(run)


def on_a10(code: str) -> dict[str, object]:
    """The names that code leaves behind which runs on a machine with an A10."""
    names: dict[str, object] = {"torch": torch, "numpy": numpy}
    with pretended_machine(A10, GPUS["a10"]):
        exec(code, names)  # noqa: S102 - the test's own code
    return names
