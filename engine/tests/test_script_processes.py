"""Scripts that start processes of their own, or send them objects; traced as the first one."""

from __future__ import annotations

from typing import Any

import pytest

from engine.gpus import GPUS
from engine.script.machine import pretended_machine
from engine.tests.scripts import A10


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
