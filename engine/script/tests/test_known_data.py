"""Values that a script's step depends on, and that follow from what the script itself has."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from engine.allocator.caching import ALLOCATE
from engine.script.program import Program
from engine.script.tests.scripts import A10
from engine.script.trace import trace_script

_LANGUAGE_MODEL = """
import torch
from torch import nn

n = 35  # of a mask, attention would make a copy in rows of 40
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 2, 128), 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
mask = {mask}
for _ in range(6):
    loss = model(torch.randn(n, 8, 64).cuda(), mask=mask).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
_CAUSAL = {
    "given": "nn.Transformer.generate_square_subsequent_mask(n).cuda()",
    "logarithm": "torch.log(torch.tril(torch.ones(n, n))).cuda()",
    "in place": "torch.full((n, n), float('-inf'), device='cuda').triu_(1)",
    "on the GPU": "torch.triu(torch.full((n, n), float('-inf'), device='cuda'), diagonal=1)",
    "filled": (
        "(torch.triu(torch.ones(n, n)) == 1).transpose(0, 1).float(); "
        "mask = mask.masked_fill(mask == 0, float('-inf')).masked_fill(mask == 1, 0.0).cuda()"
    ),
}
_OTHER = "torch.triu(torch.full((n, n), float('-inf')), diagonal=2).cuda()"
"""Each token also sees the next one."""


def _sizes(folder: Path, mask: str) -> list[int]:
    """The sizes of what the last step allocates."""
    script = folder / "train.py"
    script.write_text(_LANGUAGE_MODEL.format(mask=mask))
    trace = trace_script(Program.of(script), 8, A10)
    return [trace.sizes[one] for kind, one in trace.events[trace.last_step :] if kind == ALLOCATE]


@pytest.mark.parametrize("mask", [mask for name, mask in _CAUSAL.items() if name != "given"])
def test_a_causal_mask_is_known_however_it_is_written(tmp_path: Path, mask: str) -> None:
    """``nn.TransformerEncoder`` compares it with its own, and attends in another way."""
    assert _sizes(tmp_path, mask) == _sizes(tmp_path, _CAUSAL["given"])


def test_another_triangle_is_no_causal_mask(tmp_path: Path) -> None:
    assert _sizes(tmp_path, _OTHER) != _sizes(tmp_path, _CAUSAL["given"])


def test_a_data_set_is_sorted_by_the_labels_of_its_file(tmp_path: Path) -> None:
    """As where pairs are drawn of one class: without its labels, a class would be empty."""
    count = 600
    (tmp_path / "labels").write_bytes(
        struct.pack(">II", 0x801, count) + bytes(number % 10 for number in range(count))
    )
    script = tmp_path / "train.py"
    script.write_text(
        f"""
import random
import numpy, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Pairs(Dataset):
    def __init__(self, file):
        content = bytearray(open(file, "rb").read())
        labels = torch.frombuffer(content, dtype=torch.uint8, offset=8).view({count}).long()
        labels = numpy.array(labels.clone())
        self.of_class = [numpy.where(labels == number)[0] for number in range(10)]
        assert [len(found) for found in self.of_class] == [{count // 10}] * 10
        self.images = torch.rand({count}, 32)
    def __len__(self):
        return {count}
    def __getitem__(self, index):
        found = self.of_class[index % 10]
        return self.images[found[random.randint(0, len(found) - 1)]], torch.tensor(1.0)

model = nn.Linear(32, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, same in DataLoader(Pairs({str(tmp_path / "labels")!r}), batch_size=8):
    loss = nn.functional.mse_loss(model(images.cuda()).squeeze(1), same.cuda())
    loss.backward()
    optimizer.step()
"""
    )
    assert trace_script(Program.of(script), 8, A10).peak_of_last_step()
