"""Where the host waits for the GPU within a step, as traces of models and scripts show it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from engine.prediction.caveats import waiting_caveats
from engine.prediction.timing.launch_queue import PHASES
from engine.prediction.timing.work import StepTime
from engine.script.program import Program
from engine.script.tests.scripts import A10
from engine.script.trace import trace_script
from engine.tests.shared import small_workload
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.recorder import MemoryRecorder
from engine.tracing.trace import Operation

SCRIPT = """
import sys, torch
from torch import nn
size = int(sys.argv[2])
first, second = nn.Linear(8, 8).cuda(), nn.Linear(8, 1).cuda()
model = nn.ModuleList([first, second])
optimizer = torch.optim.Adam(model.parameters(), foreach=False)
for batch in range(20):
    x = first(torch.randn(size, 8).cuda())
    {within}
    loss = second(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {after}
"""


def waits(operations: list[Operation]) -> list[tuple[str, str]]:
    """Phase and name of each operation that the host waits at."""
    return [(one.phase, one.name.rpartition(".")[2]) for one in operations if one.waits]


def recorded(step: Callable[[torch.Tensor], object]) -> list[tuple[str, str]]:
    """The waits of a step over a tensor with numbers from 0 to 5."""
    training = SimpleNamespace(model=torch.nn.Linear(2, 2), optimizer=None, phase="forward")
    recorder = MemoryRecorder(training, 1)
    numbers = torch.arange(6.0)
    with recorder.recording():
        step(numbers)
    return waits(recorder.finish().operations)


def scripted(folder: Path, within: str = "", after: str = "") -> list[tuple[str, str]]:
    """The waits of a script within the phases of its step."""
    path = folder / "train.py"
    path.write_text(SCRIPT.format(within=within or "pass", after=after or "pass"))
    found = trace_script(Program.of(path, (), "--batch-size", None), 4, A10).operations
    return [(phase, name) for phase, name in waits(found) if phase in PHASES]


@pytest.mark.parametrize(
    ("step", "name"),
    [
        (lambda x: x * x.sum().item(), "mul"),  # what comes after the value
        (lambda x: x.exp() if (x > 2).any() else x, "exp"),
        (lambda x: x.nonzero(), "nonzero"),
        (lambda x: torch.where(x > 2), "nonzero"),
        (lambda x: x.masked_select(x > 2), "masked_select"),
        (lambda x: x[x > 2], "index"),
        (lambda x: x.index_put_((x > 2,), torch.tensor(0.0)), "index_put_"),
        (lambda x: x.unique(), "_unique2"),
        (lambda x: torch.equal(x, x), "equal"),
    ],
)
def test_what_a_value_decides_is_waited_for(
    step: Callable[[torch.Tensor], object], name: str
) -> None:
    assert recorded(step) == [("forward", name)]


@pytest.mark.parametrize(
    "step",
    [
        lambda x: x[torch.tensor([1, 2])],
        lambda x: x.masked_fill(x > 2, 0),
        lambda x: torch.where(x > 2, x, 0),
        lambda x: x[1:3].to(torch.float64),
        lambda x: x.index_put_((torch.tensor([1]),), torch.tensor(0.0)),
    ],
)
def test_what_no_value_decides_is_not(step: Callable[[torch.Tensor], object]) -> None:
    assert recorded(step) == []


def test_values_read_in_a_row_are_waited_for_once() -> None:
    assert len(recorded(lambda x: x + sum([one.item() for one in x]))) == 1
    assert len(recorded(lambda x: x + sum([(one + 1).item() for one in x]))) == 6


def test_a_value_read_at_the_end_of_a_step_is_not_waited_for_in_the_next() -> None:
    assert recorded(lambda x: (x + 1).sum().item()) == []


def test_the_number_of_steps_that_an_optimizer_keeps_is_on_the_host() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.NAdam([parameter], foreach=False)
    model = torch.nn.ParameterList([parameter])
    training = SimpleNamespace(model=model, optimizer=optimizer, phase="optimizer")
    recorder = MemoryRecorder(training, 1)
    for _ in range(2):
        parameter.grad = torch.ones(3)
        recorder.record_step(optimizer.step)
    assert waits(recorder.finish().operations) == []


@pytest.mark.longer
@pytest.mark.usefixtures("small_models")
def test_a_speech_model_waits_for_what_it_hides() -> None:
    found = trace(small_workload("wav2vec2"), 2, cuda_behaviour(9.0)).operations
    assert ("forward", "index_put_") in waits(found)
    assert "backward" in dict(waits(found))


@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize("model", ["bert", "gpt2", "vit-b", "resnet"])
def test_most_models_wait_only_where_they_look_at_the_mask(model: str) -> None:
    found = trace(small_workload(model), 2, cuda_behaviour(9.0)).operations
    assert len(waits(found)) <= 1
    assert "backward" not in dict(waits(found))


@pytest.mark.longer
def test_a_script_waits_where_it_reads_values_from_the_gpu(tmp_path: Path) -> None:
    chosen = scripted(tmp_path, "x = x[x.sum(1) > 0]")
    assert chosen == [("forward", "index"), ("backward", "index_put")]
    copied = scripted(tmp_path, "seen = (x * 2).cpu(); x = x + torch.ones(8).cuda()")
    assert copied == 2 * [("forward", "_to_copy")]
    ahead = (
        "x = x + torch.ones(8).to('cuda', non_blocking=True)"
        " + torch.ones(8).pin_memory().cuda(non_blocking=True)"
    )
    assert scripted(tmp_path, ahead) == []


@pytest.mark.slow
def test_a_loss_that_is_printed_is_read_between_steps(tmp_path: Path) -> None:
    assert scripted(tmp_path, after="print(loss.item())") == []


@pytest.mark.parametrize(("ahead", "told"), [(0.08, True), (0.0999, False), (0.1, False)])
def test_an_answer_says_what_waiting_costs(ahead: float, told: bool) -> None:
    step = StepTime(0.1, 0.09, 0.05, filled=0.9, fastest=0.1, slowest=0.1, ahead=ahead)
    found = waiting_caveats(24, step)
    assert bool(found) is told
    assert all("100 ms, of which 20.0 ms are for waiting (predicted)" in one for one in found)
