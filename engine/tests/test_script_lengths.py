"""Training scripts whose samples differ in length: each traced batch has the longest."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.data import BatchSampler, SequentialSampler

from engine.script.batch_sizes import trace_script_at_every_batch_size
from engine.script.longest import Longest
from engine.script.program import Program
from engine.tests.scripts import A10

PADDING = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader

class Texts:
    def __init__(self, lengths):
        self.lengths = lengths
    def __len__(self):
        return len(self.lengths)
    def __getitem__(self, index):
        return {{"input_ids": [1] * self.lengths[index]}}

def padded(samples):
    texts = [torch.tensor(one["input_ids"]) for one in samples]
    return nn.utils.rnn.pad_sequence(texts, batch_first=True)

data = Texts({lengths})
loader = DataLoader(data, int(sys.argv[2]), shuffle=True, collate_fn=padded)
model = nn.Sequential(nn.Embedding(10, 64), nn.Linear(64, 64)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(9):
    for texts in loader:
        optimizer.zero_grad()
        model(texts.cuda()).square().mean().backward()
        optimizer.step()
"""


def script(folder: Path, lengths: str) -> Program:
    path = folder / "train.py"
    path.write_text(PADDING.format(lengths=lengths))
    return Program(str(path), ("--batch-size", "8"), "--batch-size")


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_every_batch_is_padded_as_the_worst_one_is(tmp_path: Path, batch_size: int) -> None:
    warned: list[str] = []
    differing = script(tmp_path, "[8 + 7 * n % 50 for n in range(100)] + [96] + [20] * 9")
    found = trace_script_at_every_batch_size(differing, A10, warned.append)(batch_size)
    alike = script(tmp_path, "[96] * 100")
    expected = trace_script_at_every_batch_size(alike, A10, warned.append)(batch_size)
    assert warned == []
    assert found.peak_by_category() == expected.peak_by_category()
    (said,) = (one for one in found.caveats if one not in expected.caveats)
    assert "the longest of the 110 that were read, 96 tokens" in said


def batch_of(data: object) -> list[int]:
    sampler = BatchSampler(SequentialSampler(data), 2, drop_last=False)  # type: ignore[arg-type]  # any data
    return Longest().put_into([0, 1], sampler)


def test_samples_are_texts_by_name_or_by_their_tokens() -> None:
    lengths = (2, 3, 9, 4)
    assert batch_of([{"input_ids": [1] * n} for n in lengths]) == [2, 1]
    assert batch_of([(torch.ones(n, dtype=torch.long), 0) for n in lengths]) == [2, 1]
    assert batch_of([[1] * n for n in lengths]) == [2, 1]


@pytest.mark.parametrize(
    "data",
    [
        [{"input_ids": [1, 2]}] * 4,
        [{"pixels": torch.ones(n)} for n in (1, 2, 3)],
        [(torch.ones(n), 0) for n in (1, 2, 3)],
        [torch.ones(3, n) for n in (1, 2, 3)],
        ["a", "bc"],
        [*[[1]] * 16, None],
        [],
    ],
)
def test_other_data_is_left_as_it_is(data: object) -> None:
    assert batch_of(data) == [0, 1]
