"""Scripts that start processes of their own, or send them objects; traced as the first one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import NotPredictable
from engine.gpus import GPUS
from engine.script.machine import pretended_machine
from engine.script.program import Program
from engine.script.tests.scripts import A10
from engine.script.trace import trace_script


def on_a10(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    with pretended_machine(A10, GPUS["a10"]):
        exec(code, names)  # noqa: S102 - the test's own code
    return names


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("mp.spawn(fn=work, args=(5,), nprocs=1)", [(0, 5)]),
        ("mp.spawn(work, (5,), 1, join=False).join()", [(0, 5)]),
        ("mp.start_processes(work, args=(5,), nprocs=1, start_method='fork')", [(0, 5)]),
    ],
)
def test_a_spawned_function_runs_as_the_first_process(call: str, expected: object) -> None:
    code = "import torch.multiprocessing as mp\nran = []\nwork = lambda *given: ran.append(given)"
    assert on_a10(f"{code}\n{call}")["ran"] == expected


def test_objects_that_processes_send_each_other_are_those_of_the_first() -> None:
    code = """
import torch.distributed as dist
dist.init_process_group("nccl", world_size=2, rank=0)
gathered, sent, part = [None, None], ["mine"], [None]
dist.all_gather_object(gathered, {"loss": 1})
dist.broadcast_object_list(sent, src=0)
dist.scatter_object_list(part, ["first", "second"], src=0)
"""
    names = on_a10(code)
    assert names["gathered"] == [{"loss": 1}] * 2
    assert (names["sent"], names["part"]) == (["mine"], ["first"])


START = """
import multiprocessing, time
import torch, torch.multiprocessing as mp
ran = []
def work(*given, **named): ran.append((given, named))
def started(cls, *given, **named):
    one = cls(target=work, args=given, kwargs=named)
    one.start()
    return one
"""


@pytest.mark.parametrize(
    "call",
    [
        "started(mp.Process, 0, 5).join()",
        "started(multiprocessing.Process, 0, 5).join(timeout=9)",
        "started(mp.get_context('spawn').Process, 0, 5).join()",
        "while started(mp.Process, 0, 5).is_alive(): time.sleep(1)",
    ],
)
def test_a_process_that_is_waited_for_runs_here(call: str) -> None:
    assert on_a10(f"{START}\n{call}")["ran"] == [((0, 5), {})]


def test_of_several_processes_the_first_with_their_function_runs_first() -> None:
    code = """
def watch(): ran.append("watched")
watching = mp.Process(target=watch)
watching.start()
all_of_them = [watching, *(started(mp.Process, rank, 2) for rank in range(2))]
assert [one.exitcode for one in all_of_them] == [None] * 3
for one in all_of_them: one.join()
assert [one.exitcode for one in all_of_them] == [0] * 3
"""
    ran = on_a10(START + code)["ran"]
    assert ran == [((0, 2), {}), "watched", ((1, 2), {})]


def test_a_process_with_a_pipe_is_started_as_usual() -> None:
    code = """
mine, other = mp.Pipe()
def answer(pipe): pipe.send(pipe.recv() + 1)
one = mp.get_context("fork").Process(target=answer, args=(other,))
one.start()
mine.send(1)
got = mine.recv()
one.join()
"""
    assert on_a10(START + code)["got"] == 2


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_processes_that_train_the_same_weights_are_refused(place: str) -> None:
    code = f"""
model = torch.nn.Linear(2, 2).to("{place}").share_memory()
several = [started(mp.Process, rank, model=model) for rank in range(3)]
several[0].join()
"""
    with pytest.raises(NotPredictable, match="3 processes train the same weights"):
        on_a10(START + code)


def test_one_process_that_trains_is_predicted(tmp_path: Path) -> None:
    code = """
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def train(rank, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, in DataLoader(TensorDataset(torch.randn(64, 32)), batch_size=8):
        optimizer.zero_grad()
        model(x.cuda()).sum().backward()
        optimizer.step()

if __name__ == "__main__":
    mp.set_start_method("spawn", force=True)
    model = nn.Linear(32, 32).cuda()
    model.share_memory()
    process = mp.Process(target=train, args=(0, model))
    process.start()
    process.join()
"""
    file = tmp_path / "train.py"
    file.write_text(code)
    trace = trace_script(Program.of(file), 8, A10)
    assert 8 * 32 * 4 in trace.sizes
