"""Training scripts whose samples differ in size: each traced batch has the largest."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler

from engine.script.batch_sizes import trace_script_at_every_batch_size
from engine.script.data.largest_samples import (
    LargestSamples,
    own_draws,
    sample_at,
    samples_alike,
)
from engine.script.program import Program
from engine.script.tests.scripts import A10

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


@pytest.mark.longer
def test_every_batch_is_padded_as_the_worst_one_is(tmp_path: Path) -> None:
    warned: list[str] = []
    differing = script(tmp_path, "[8 + 7 * n % 50 for n in range(100)] + [96] + [20] * 9")
    found_at = trace_script_at_every_batch_size(differing, A10, warned.append)
    alike = script(tmp_path, "[96] * 100")
    expected_at = trace_script_at_every_batch_size(alike, A10, warned.append)
    assert warned == []
    for batch_size in (1, 2, 5):
        found, expected = found_at.at(batch_size), expected_at.at(batch_size)
        assert found.peak_by_category() == expected.peak_by_category()
        (said,) = (one for one in found.caveats if one not in expected.caveats)
        assert "the largest of the 110 that were read (up to 96 long)" in said
        assert "The longest sample has index 100, counted from 0 (96 long): put it first" in said


JOINED = """
import random
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader

class Clouds:
    def __len__(self):
        return 200
    def __getitem__(self, index):
        return torch.randn({points}, 64)

model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).cuda()
optimizer = torch.optim.SGD(model.parameters())
for points in DataLoader(Clouds(), int(sys.argv[2]), shuffle=True, collate_fn=torch.cat):
    optimizer.zero_grad()
    loss = model(points.cuda()).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


@pytest.mark.slow
def test_joined_samples_of_random_sizes_are_a_little_larger_than_the_mean(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    program = Program(str(path), ("--batch-size", "64"), "--batch-size")
    warned: list[str] = []
    peaks = {}
    for points in ("random.randint(100, 300)", "200", "300"):
        path.write_text(JOINED.format(points=points))
        found = trace_script_at_every_batch_size(program, A10, warned.append)
        peaks[points] = [found.at(size).peak_of_last_step() for size in (64, 128)]
    assert warned == []  # as much for each sample at every batch size
    for differing, mean, most in zip(*peaks.values(), strict=True):
        assert mean < differing < 1.3 * mean < most


def test_joined_samples_are_large_enough_in_every_size() -> None:
    sizes = numpy.random.default_rng(0).integers((100, 400), (300, 900), (500, 2))
    graphs: list[tuple[int, int]] = sizes.tolist()
    data = [(torch.empty(nodes, 16), torch.empty(2, edges)) for nodes, edges in graphs]
    *_, other = chosen_of(data, 4)
    for size, mean in zip(graphs[other], (200, 650), strict=True):
        assert 1.1 * mean < size < 1.35 * mean  # those alone that are largest elsewhere are smaller


def test_where_no_sample_is_large_enough_in_every_size_the_nearest_stands_for_all() -> None:
    data = [(torch.empty(n), torch.empty(100 - n)) for n in range(10, 91)]
    *_, other = chosen_of(data, 4)
    assert other in (39, 40, 41)  # about as large in both


def chosen_of(data: object, batch_size: int = 2) -> list[int]:
    sampler = BatchSampler(SequentialSampler(data), batch_size, drop_last=False)  # type: ignore[arg-type]  # any data
    return LargestSamples().put_into([0, 1, 2, 3][:batch_size], sampler)


@dataclass(slots=True)
class Graph:
    """A sample of a class of its own."""

    nodes: torch.Tensor
    formula: str


@pytest.mark.parametrize(
    "make",
    [
        lambda n: {"input_ids": [1] * n},
        lambda n: {"text": "a" * n, "label": 1},
        lambda n: (torch.ones(n, dtype=torch.long), 0),
        lambda n: (torch.ones(n), 16_000, "a"),
        lambda n: (torch.ones(n), "/data/" + "1" * (10 - n) + ".flac"),
        lambda n: (torch.ones(3, n, 5), {"boxes": [1.0] * 4}),
        lambda n: [torch.ones(5, 3), {"boxes": torch.ones(n, 4)}],
        lambda n: [1] * n,
        lambda n: numpy.ones((n, 2)),
        lambda n: {"molecule": "C" * n + "1"},
        lambda n: Graph(torch.ones(n), "CC"),
        lambda n: Graph(torch.ones(3), "C" * n),
        lambda n: SimpleNamespace(_store={"x": torch.ones(n)}),
    ],
)
def test_a_sample_is_as_large_as_its_texts_lists_and_tensors(make: Callable[[int], object]) -> None:
    assert chosen_of([make(n) for n in (4, 2, 9, 5, *[4] * 20)]) == [2, 3]


def test_a_batch_has_the_largest_in_each_dimension() -> None:
    images = [torch.ones(3, *size) for size in ((8, 8), (2, 9), (9, 2), (4, 4), (5, 5))]
    assert chosen_of(images, 4) == [1, 2, 0, 0]
    assert chosen_of(images, 1) == [1]


@pytest.mark.parametrize(
    "data",
    [
        [{"input_ids": [1, 2]}] * 4,
        [1, 2.5, 7],
        [*[[1]] * 16, None],
        [object()] * 4,
        [],
        [(torch.ones(3, 8, 8), f"images/{10**n}.jpg") for n in range(4)],
        [(torch.ones(3, 8, 8), {"name": f"n0144_image-{10**n}"}) for n in range(4)],
        [SimpleNamespace(filename="i" * n, x=torch.ones(2)) for n in range(4)],
        [torch.nn.Linear(n, 2) for n in range(1, 4)],
    ],
)
def test_data_of_one_size_are_left_as_they_are(data: object) -> None:
    assert chosen_of(data) == [0, 1]


class Drawn:
    """Samples drawn at random, by every generator there is."""

    def __getitem__(self, index: int) -> tuple[float, ...]:
        return random.random(), numpy.random.rand(), torch.rand(()).item()  # noqa: S311  # no secret


def test_a_sample_is_drawn_alike_each_time_and_the_step_draws_on() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with own_draws():
        first = sample_at(Drawn(), 3)
    with own_draws():
        assert sample_at(Drawn(), 4) != first
        assert sample_at(Drawn(), 3) == first
    assert torch.equal(torch.rand(3), expected)


class Counted(Dataset[object]):
    """Samples of a kind, which count how many of them were read."""

    def __init__(self, make: Callable[[int], object]) -> None:
        self.make, self.read = make, 0

    def __len__(self) -> int:
        return 500

    def __getitem__(self, index: int) -> object:
        self.read += 1
        return self.make(index)


def without_labels(samples: list[dict[str, object]]) -> torch.Tensor:
    """Takes the labels out of the samples, as collators do."""
    return torch.tensor([sample.pop("label") for sample in samples])


def with_labels_in_pairs(samples: list[tuple[object, dict[str, object]]]) -> torch.Tensor:
    return without_labels([target for _, target in samples])


@pytest.mark.parametrize(
    ("make", "collate"),
    [
        (lambda n: torch.full((2,), n), None),
        (lambda n: (torch.full((2,), n), n), None),
        (lambda n: {"label": n}, without_labels),
        (lambda n: (torch.full((2,), n), {"label": n}), with_labels_in_pairs),
    ],
)
@pytest.mark.parametrize(("different", "read"), [(None, 300), (400, 300), (7, 7)])
def test_a_large_batch_may_be_made_of_few_samples(
    make: Callable[[int], object],
    collate: Callable[[list[object]], object] | None,
    different: int | None,
    read: int,
) -> None:
    data, largest = Counted(make), LargestSamples()
    largest.different = different
    with samples_alike(largest):
        batch = next(iter(DataLoader(data, 300, collate_fn=collate)))
    rows = batch[0] if isinstance(batch, list) else batch
    assert len(rows) == 300
    assert data.read == read
    assert int(rows.float().unique().numel()) == read
