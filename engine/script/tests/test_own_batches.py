"""Batches that a script chooses itself: the largest of an epoch is traced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler

from engine.core.errors import InvalidInput
from engine.script.data.loaders import ENOUGH_BATCHES, Loaders
from engine.script.data.own_batches import OwnBatches, chooses_itself
from engine.script.program import Program
from engine.script.request import ScriptRequest
from engine.script_analysis import predict_script

pytestmark = pytest.mark.torch

LENGTHS = [3, 9, 4, 30, 28, 2, 2, 2, 2, 2]


class Sentences(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(LENGTHS[index])


class ByTokens:
    """Each batch has as many sentences as fit into a number of tokens."""

    def __init__(self, batches: list[list[int]]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)


BATCHES = [[0, 1, 2], [3, 4], [5, 6, 7, 8, 9]]


def padded(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def test_the_largest_batch_has_the_most_numbers_with_its_padding() -> None:
    own = OwnBatches()
    epoch = own.chosen_by(ByTokens(BATCHES), Sentences())
    assert epoch is not None
    assert (list(epoch.largest), epoch.count, own.differ) == ([3, 4], 3, True)
    (caveat,) = own.caveats
    assert "ByTokens" in caveat
    assert "largest of 3 (2 samples)" in caveat


def test_of_batches_that_fill_a_budget_alike_the_longest_counts() -> None:
    epoch = OwnBatches().chosen_by(ByTokens([[0, 2] * 9, [3, 4], [1]]), Sentences())
    assert epoch is not None
    assert list(epoch.largest) == [0, 2] * 9  # 72 numbers, and 60
    epoch = OwnBatches().chosen_by(ByTokens([[0] * 20, [3, 4], [1]]), Sentences())
    assert epoch is not None
    assert list(epoch.largest) == [3, 4]


def test_batches_of_one_number_of_samples_lie_on_a_line() -> None:
    own = OwnBatches()
    assert own.chosen_by(ByTokens([[0, 1], [3, 4], [5]]), Sentences())
    assert not own.differ
    (caveat,) = own.caveats
    assert "largest of an epoch" in caveat  # the answer is for another number of samples


@pytest.mark.parametrize("batches", [[], [[(0, 64), (1, 64)]], [0, 1]])
def test_what_has_no_numbers_of_samples_is_left_alone(batches: list[list[int]]) -> None:
    assert OwnBatches().chosen_by(ByTokens(batches), Sentences()) is None


def test_a_wrapper_of_pytorchs_sampler_chooses_nothing_itself() -> None:
    class Shard(ByTokens):
        batch_sampler = BatchSampler(SequentialSampler(LENGTHS), 2, drop_last=False)

    assert not chooses_itself(Shard(BATCHES))
    assert chooses_itself(BATCHES)  # a list of batches


def test_steps_get_the_largest_batch_and_never_run_out_of_it() -> None:
    loaders = Loaders()
    with loaders.followed(at_home=True):
        loader = DataLoader(Sentences(), batch_sampler=ByTokens(BATCHES), collate_fn=padded)
        shapes = [tuple(batch.shape) for batch in loader]
    assert shapes == [(2, 30)] * ENOUGH_BATCHES


def test_without_a_flag_the_sampler_is_named() -> None:
    loaders = Loaders()
    with loaders.followed(at_home=True):
        loader = DataLoader(Sentences(), batch_sampler=ByTokens(BATCHES), collate_fn=padded)
        next(iter(loader))
        loaders.passed()
        with pytest.raises(InvalidInput, match="ByTokens chooses the batches"):
            loaders.feeding()


class InBuckets:
    """Sentences of about the same length, as many as an attribute says."""

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)

    def __iter__(self) -> Iterator[list[int]]:
        size = next(value for name, value in vars(self).items() if "b" in name)
        order = sorted(range(len(LENGTHS)), key=LENGTHS.__getitem__)
        return iter([order[first : first + size] for first in range(0, len(order), size)])


@pytest.mark.parametrize("name", ["batch_size", "bs", "bsz", "_batch_size", "batchSize", "batch"])
def test_a_sampler_says_how_many_it_chooses_by_any_usual_name(name: str) -> None:
    def first_batch(positions: tuple[int, ...], batch_size: int | None) -> tuple[int, Loaders]:
        loaders = Loaders(positions, batch_size)
        with loaders.followed(at_home=True):
            sampler = InBuckets(**{name: 2, "epoch": 3, "drop_last": True})
            loader = DataLoader(Sentences(), batch_sampler=sampler, collate_fn=padded)
            samples = len(next(iter(loader)))
            loaders.passed()
        return samples, loaders

    assert first_batch((), None)[1].feeding().batch_size == 2
    assert first_batch((0,), 5)[0] == 5


SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader

budget, lengths = int(sys.argv[2]), [8] * 40 + [4] * 40
data = [torch.zeros(length) for length in lengths]
batches = [[]]
for index, length in enumerate(lengths):
    if batches[-1] and lengths[batches[-1][0]] * (len(batches[-1]) + 1) > budget:
        batches.append([])
    batches[-1].append(index)
batches.reverse()
pad = lambda rows: torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
model = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(data, batch_sampler=batches, collate_fn=pad):
    model(x.cuda().flatten()[:, None]).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
def test_a_budget_of_tokens_is_predicted_at_its_worst_batch(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    request = ScriptRequest.parse(
        Program.of(path, (), "--max-tokens"), {"gpu": "a10", "current_batch_size": 64}
    )
    found = predict_script(request, lambda _: None)
    assert any("largest of" in caveat for caveat in found.caveats)
    assert any("traced were those of 64." in caveat for caveat in found.caveats)
