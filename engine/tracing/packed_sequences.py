"""Packed sequences (``torch.nn.utils.rnn``) of fake tensors: their lengths decide their sizes.

PyTorch's operators read the lengths in C++, where fake tensors have none. Lengths that are not
known are taken to be the longest there can be. Source: aten/src/ATen/native/PackedSequence.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes


def packing_operators() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Operators that read lengths, by name."""
    yield "_pack_padded_sequence", _pack
    yield "_pad_packed_sequence", _pad


class _Rows(torch.autograd.Function):
    """Rows in another shape, and back: both are copies, written row by row."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        ctx.shape = rows.shape
        return rows.new_zeros(shape)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient.new_zeros(ctx.shape), None


def _rows(rows: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    shaped: torch.Tensor = _Rows.apply(rows, tuple(shape))  # type: ignore[no-untyped-call]  # PyTorch has none
    return shaped


def _pack(
    given: Any, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of all samples, time after time, and how many samples there are at each.

    Args:
        given: Input of shape (T, B, ...), or (B, T, ...) if ``batch_first``.
        lengths: Length of each sample, on the host.
        batch_first: See there.
    """
    times, count = given.shape[batch_first], given.shape[not batch_first]
    known: Any = getattr(lengths, "constant", None)
    each: list[int] = [times] * count
    if known is not None:
        with _disable_current_modes():
            each = known.tolist()
    sizes = [sum(length > time for length in each) for time in range(max(each))]
    return _rows(given, (sum(each), *given.shape[2:])), _known(given, sizes)


def _pad(
    data: Any, batch_sizes: torch.Tensor, batch_first: bool, padding: float, total_length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    sizes: list[int] = batch_sizes.tolist()
    times = max(len(sizes), total_length)
    padded = _rows(data, (times, sizes[0], *data.shape[1:]))
    lengths = [sum(size > sample for size in sizes) for sample in range(sizes[0])]
    return padded.transpose(0, 1) if batch_first else padded, _known(data, lengths)


def _known(beside: Any, numbers: list[int]) -> torch.Tensor:
    """A fake tensor on the host with these values."""
    with _disable_current_modes():
        real = torch.tensor(numbers)
    known: torch.Tensor = beside.fake_mode.given(real)
    return known
