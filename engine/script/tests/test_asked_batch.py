"""Scripts that take few batch sizes: that which was asked for is predicted, and some near it."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from engine.script import batch_sizes
from engine.script.batch_sizes import trace_script_at_every_batch_size
from engine.script.program import Program
from engine.script.tests.scripts import A10
from engine.script.trace import CannotTrace, trace_script
from engine.tests.shared import slow

TRAINED = """
import os
import sys
import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset

size = int(sys.argv[2])
{check}
model = nn.Linear(64, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (rows,) in DataLoader(TensorDataset(torch.rand(999, 64)), batch_size=size):
    model(rows.cuda()).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def script(folder: Path, check: str) -> Program:
    path = folder / "train.py"
    path.write_text(TRAINED.replace("{check}", check))
    return Program(str(path), ("--batch-size", "8"), "--batch-size")


@pytest.mark.longer
@pytest.mark.parametrize(
    ("check", "asked", "traced", "multiple"),
    [
        slow("assert 4096 % size == 0 and size >= 32", 64, "64, 128, 256", 64),
        slow("assert size >= 16", 24, "24, 25, 48", 1),
        ("assert size >= 4 and size % 2 == 0", 10, "10, 12, 20", 2),
        slow("assert size % 8 == 0, 'tensor cores'", 16, "16, 24, 32", 8),
        slow("assert size == 48", 48, "48", 48),
        slow("size = size // 12", 24, "24, 48, 96", 24),
        slow("size = max(1, size // 40)", 80, "80, 160, 320", 80),
    ],
)
def test_the_batch_that_was_asked_for_is_predicted(
    tmp_path: Path, check: str, asked: int, traced: str, multiple: int
) -> None:
    program, warned = script(tmp_path, check), list[str]()
    traces = trace_script_at_every_batch_size(program, A10, warned.append, asked=asked)
    found, alone = traces.at(asked), trace_script(program, asked, A10)
    assert (found.sizes, found.events) == (alone.sizes, alone.events)
    assert found.batch_multiple == multiple
    (said,) = warned
    assert f"cannot be told from a batch of 2; traced were those of {traced}." in said
    assert said in found.caveats
    if traced != str(asked):
        assert traces.at(8 * asked).sizes == trace_script(program, 8 * asked, A10).sizes


@pytest.mark.longer
def test_a_global_batch_may_be_divided_among_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    join = "distributed.init_process_group('nccl')"
    divided = script(tmp_path, f"{join}\nsize //= distributed.get_world_size()")
    traces = trace_script_at_every_batch_size(divided, A10, lambda _: None, asked=16)
    found, more = traces.at(16), traces.at(32)
    assert (found.world_size, found.divided_by) == (4, 4)
    assert any("a GPU has 1/4 of each" in caveat for caveat in found.caveats)
    whole = trace_script(script(tmp_path, join), 4, A10)
    assert whole.divided_by == 1
    assert found.sizes == whole.sizes
    assert more.sizes == trace_script(script(tmp_path, join), 8, A10).sizes


@pytest.mark.longer
def test_what_fails_at_the_batch_that_was_asked_for_is_said(tmp_path: Path) -> None:
    program = script(tmp_path, "raise ValueError(f'no batch of {size}')")
    with pytest.raises(CannotTrace, match="no batch of 24"):
        trace_script_at_every_batch_size(program, A10, lambda _: None, asked=24)


def test_without_one_the_smallest_is(tmp_path: Path) -> None:
    program = script(tmp_path, "assert size > 9, f'no batch of {size}'")
    with pytest.raises(CannotTrace, match="no batch of 2"):
        trace_script_at_every_batch_size(program, A10, lambda _: None)


@pytest.mark.longer
def test_what_no_batch_size_changes_is_refused_at_once(tmp_path: Path) -> None:
    program = script(tmp_path, "torch.eye(size).to_sparse()")
    with (
        patch.object(batch_sizes, "trace_from_the_asked") as asked,
        pytest.raises(CannotTrace, match="sparse tensors"),
    ):
        trace_script_at_every_batch_size(program, A10, lambda _: None, asked=24)
    asked.assert_not_called()
