"""Values that fake tensors keep: those that say where tokens stand and how large images are."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)

from engine.tracing.known_values import KnownValues

pytestmark = pytest.mark.torch


def test_what_is_given_can_be_asked() -> None:
    real = torch.tensor([[3, 1], [0, 2]])
    with KnownValues() as mode:
        given = mode.given(real)
        assert (given * 2).tolist() == [[6, 2], [0, 4]]
        assert given.prod(-1).tolist() == [3, 0]
        assert [part.shape[0] for part in torch.arange(3).split(given[0, :1].tolist())] == [3]


def test_masks_choose_as_many_as_they_do_for_real() -> None:
    real = torch.tensor([[1, 0, 1], [0, 0, 1]])
    with KnownValues() as mode:
        mask, numbers = mode.given(real) == 1, torch.rand(2, 3, 4)
        assert numbers[mask].shape == (3, 4)
        assert numbers[..., 0].masked_select(mask).shape == (3,)
        assert mask.nonzero().shape == (3, 2)
        assert torch.rand(2, 3).index_put((mask,), torch.rand(3)).shape == (2, 3)


def test_masks_of_real_numbers_choose_as_many_as_they_do_for_real() -> None:
    with KnownValues():
        first = torch.zeros(3, 400, 1)
        first[:, 200:] = 1
        assert (1 - first).squeeze(-1).nonzero().shape == (600, 2)


def test_all_but_a_diagonal_are_as_many_as_they_are_for_real() -> None:
    with KnownValues():
        assert torch.rand(4, 4, 2)[~torch.eye(4, dtype=torch.bool)].shape == (12, 2)
        assert torch.rand(3, 5).masked_select(torch.eye(3, 5) == 1).shape == (3,)


def test_masks_of_one_value_choose_all_or_nothing() -> None:
    with KnownValues():
        language, numbers = 2 * torch.ones(5), torch.rand(5, 4)
        assert numbers[language == 2].shape == (5, 4)
        assert numbers[language == 1].shape == (0, 4)


def test_a_mask_for_each_number_of_an_embedding_is_only_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.tracing.kept_values.MAX_KNOWN", 6)
    real = torch.tensor([[1, 0, 1], [0, 0, 1]])
    with KnownValues() as mode:
        mask, embedded = mode.given(real) == 1, torch.rand(2, 3, 1_000)
        assert embedded[mask[..., None].expand_as(embedded)].shape == (3_000,)
        assert embedded[:, mask[1]].shape == (2, 1, 1_000)


def test_what_is_picked_by_indices_that_nobody_knows_is_not_known() -> None:
    with KnownValues():
        known, indices = torch.arange(8), torch.rand(8).sort()[1]
        for picked in (known[indices], known.gather(0, indices), known.repeat(2)[indices]):
            with pytest.raises(DataDependentOutputException):
                picked[0].item()


def test_room_that_code_makes_keeps_what_is_written_into_it() -> None:
    with KnownValues():
        shifted = torch.empty_like(torch.arange(3))
        shifted[1:], shifted[0] = torch.arange(2), 7
        assert shifted.tolist() == [7, 0, 1]


def test_a_view_shares_the_memory_of_the_values() -> None:
    with KnownValues():
        mask = torch.ones(2, 3, dtype=torch.int64)
        mask[1, 1:] = 0
        assert mask.sum(1).tolist() == [3, 1]
        assert mask.view(-1)[4:].tolist() == [0, 0]


def test_real_numbers_are_not_kept() -> None:
    real = torch.rand(2, 3)
    with KnownValues() as mode, pytest.raises(DynamicOutputShapeException):
        (mode.given(real) > 0.5).nonzero()


def test_values_that_are_overwritten_by_unknown_ones_are_forgotten() -> None:
    with KnownValues():
        mask = torch.ones(4, dtype=torch.int64)
        mask[:] = torch.rand(4) > 0.5
        with pytest.raises(DynamicOutputShapeException):
            mask.nonzero()


def test_whole_numbers_that_are_copied_into_a_buffer_are_kept_there() -> None:
    """As a script fills its tensors of targets and lengths anew for each batch."""

    class Keeping(KnownValues):
        keeps_copies = True

    with Keeping():
        buffer = torch.empty(4, dtype=torch.int32)
        buffer.resize_(3).copy_(torch.tensor([2, 0, 5]))
        assert buffer.tolist() == [2, 0, 5]
        buffer.copy_(torch.tensor([1, 0, 0]))
        assert len(buffer.nonzero()) == 1
        buffer[0] = torch.randint(2, (1,))[0]
        part, reals = torch.empty(4, dtype=torch.int32), torch.empty(1)
        part[:2].copy_(torch.tensor([1, 2]))
        reals.copy_(torch.tensor([2]))
        for unknown in (buffer, part, reals):
            with pytest.raises((DynamicOutputShapeException, DataDependentOutputException)):
                unknown.nonzero()


def test_large_tensors_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.tracing.kept_values.MAX_KNOWN", 3)
    with KnownValues():
        assert torch.arange(3).nonzero().shape == (2, 1)
        with pytest.raises(DynamicOutputShapeException):
            torch.arange(4).nonzero()


def test_positions_of_many_tokens_are_not_compared_for_real() -> None:
    computed: list[int] = []

    class Counting(KnownValues):
        def may_turn_const(self, t: torch.Tensor) -> bool:
            computed.append(t.numel())
            return super().may_turn_const(t)

    with Counting():
        tokens = torch.arange(1100)
        mask = tokens[:, None] >= tokens[None, :]
        assert mask.shape == (1100, 1100)
        assert int(tokens.max()) == 1099  # the positions themselves are still known
    assert max(computed) == 1100


LIKE = torch.empty(2, 3, 4)


@pytest.mark.parametrize(
    "other",
    [
        LIKE.bfloat16(),
        LIKE.transpose(0, 1).contiguous().transpose(0, 1),
        torch.empty(2, 3, 5)[..., :4],
        torch.empty(2, 3, 4, requires_grad=True),
        torch.empty(3, 2, 4),
        torch.empty(2, 3, 4, dtype=torch.complex64).conj(),
    ],
    ids=["format", "strides", "part", "gradient", "shape", "conjugate"],
)
def test_results_are_those_of_tensors_that_are_alike_in_all(other: torch.Tensor) -> None:
    def computed(tensor: torch.Tensor) -> list[torch.Tensor]:
        return [tensor.neg(), tensor[:, 1:] * 2, tensor.sum(0)]

    for real in (LIKE, other, LIKE, other):
        expected = computed(real)
        with KnownValues() as mode:
            found = computed(mode.given(real))
        for fake, true in zip(found, expected, strict=True):
            assert (fake.shape, fake.stride(), fake.dtype) == (
                true.shape,
                true.stride(),
                true.dtype,
            )
            assert (fake.is_conj(), fake.requires_grad) == (true.is_conj(), true.requires_grad)


def test_a_view_in_inference_mode_is_one_of_its_tensor() -> None:
    """A result that is found again belongs to what was made in that mode, or before it."""
    with KnownValues():
        before = torch.empty(4)
        with torch.inference_mode():
            within = torch.empty(4)
            for tensor in (within, before, within):
                assert tensor.unsqueeze(1).is_inference() == tensor.is_inference()
