"""Sparse tensors and gradients in a script: refused by name, with a way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.script.program import Program
from engine.script.tests.scripts import A10, written
from engine.script.trace import CannotTrace, trace_script

TRAINED = """
import torch
from torch import nn

def make_step(batch_size):
    table = nn.Embedding(100, 8, sparse={sparse}).cuda()
    optimizer = torch.optim.{optimizer}(table.parameters())
    def step():
        table(torch.randint(0, 100, (batch_size, 4)).cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return step
"""

MADE = """
import torch
from torch import nn

def make_step(batch_size):
    layer = nn.Linear(8, 8).cuda()
    dense = torch.eye(batch_size)
    index, ones = torch.arange(batch_size).repeat(2, 1), torch.ones(batch_size)
    {made}
    def step():
        torch.sparse.mm(graph, layer(torch.rand(batch_size, 8).cuda())).sum().backward()
    return step
"""


@pytest.mark.parametrize("optimizer", ["SparseAdam", "SGD"])
def test_sparse_gradients_are_refused_by_that_name(folder: Path, optimizer: str) -> None:
    code = TRAINED.format(sparse=True, optimizer=optimizer)
    says = r"line 9 .*sparse tensors.*without sparse=True.*measure it"
    with pytest.raises(CannotTrace, match=says) as refused:
        trace_script(written(folder, code), 4, A10)
    assert "fix that" not in str(refused.value)


def test_the_same_with_dense_ones_is_predicted(folder: Path) -> None:
    code = TRAINED.format(sparse=False, optimizer="Adam")
    assert trace_script(written(folder, code), 4, A10).sizes


@pytest.mark.parametrize(
    "made",
    [
        "graph = torch.sparse_coo_tensor(index, ones, (batch_size, batch_size)).cuda()",
        "graph = torch.sparse_coo_tensor(index, ones, dense.shape, device='cuda').coalesce()",
        "graph = dense.to_sparse().cuda()",
        "graph = dense.cuda().to_sparse_csr()",
        "graph = torch.sparse_csr_tensor(torch.arange(batch_size + 1), index[0], ones).cuda()",
        "graph = torch.sparse.spdiags(ones, torch.zeros(1).long(), dense.shape).cuda()",
    ],
)
@pytest.mark.parametrize("sees", [True, False], ids=["on the GPU", "on the CPU in its place"])
def test_sparse_matrices_are_refused_by_that_name(folder: Path, made: str, sees: bool) -> None:
    code = MADE.replace("{made}", made)
    if not sees:
        code = code.replace(".cuda()", "").replace(", device='cuda'", "")
    with pytest.raises(CannotTrace, match=r"line 9 .*sparse tensors.*index_add") as refused:
        trace_script(written(folder, code), 4, A10)
    assert "fix that" not in str(refused.value)


def test_one_that_was_made_before_is_refused_too(folder: Path) -> None:
    code = MADE.replace("{made}", "graph = GRAPH").replace(
        "def make_step", "GRAPH = torch.eye(4).to_sparse()\ndef make_step"
    )
    with pytest.raises(CannotTrace, match=r"line 12 .*sparse tensors"):
        trace_script(written(folder, code), 4, A10)


READ = """
import torch
from torch import nn
from torch.utils.data import DataLoader

class Rows:
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.sparse_coo_tensor(torch.tensor([[1, 3]]), torch.ones(2), (16,)){dense}

layer = nn.Linear(16, 2).cuda()
optimizer = torch.optim.SGD(layer.parameters())
for rows in DataLoader(Rows(), batch_size=2{options}):
    torch.sparse.mm(rows.cuda(), layer.weight.t()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def read(folder: Path, dense: str, options: str) -> Program:
    path = folder / "train.py"
    path.write_text(READ.replace("{dense}", dense).replace("{options}", options))
    return Program(str(path), (), "", "", (0,))


def test_data_may_be_sparse_as_long_as_batches_are_not(folder: Path) -> None:
    program = read(folder, ".to_dense()", "")
    program.folder.joinpath("train.py").write_text(
        Path(program.path).read_text().replace("torch.sparse.mm(", "torch.mm(")
    )
    assert trace_script(program, 2, A10).sizes


def test_sparse_batches_are_refused_by_that_name(folder: Path) -> None:
    with pytest.raises(CannotTrace, match=r"line 1[45] .*sparse tensors") as refused:
        trace_script(read(folder, "", ", collate_fn=torch.stack"), 2, A10)
    assert "fix that" not in str(refused.value)
