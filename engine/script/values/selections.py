"""Selections by values, at their largest: elements under a mask, unlike ones, boxes that remain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .chosen_indices import all_different, chosen
from .routing import expected_true

_aten = torch.ops.aten


class Selecting:
    """Number of elements that are selected.

    Attributes:
        evenly: Whether it was one choice among several, which are taken to be alike.
        is_exact: Whether it is known.
    """

    def __init__(self) -> None:
        self.evenly = self.is_exact = False

    def count(self, mask: torch.Tensor) -> int:
        """Count a mask: all that there can be, unless it is known that others choose the rest."""
        if (count := chosen(mask)) is not None:
            self.is_exact = True
            return count
        expected = expected_true(mask)
        self.evenly |= expected is not None
        return mask.numel() if expected is None else expected


def _any_of(tensor: torch.Tensor, *size: int) -> torch.Tensor:
    """Elements of a tensor, nobody knows which, also where all of its values are known."""
    return torch.empty(size, dtype=tensor.dtype)


def _all_nonzero(selecting: Selecting, tensor: torch.Tensor) -> torch.Tensor:
    indices = torch.empty((selecting.count(tensor), tensor.dim()), dtype=torch.int64)
    return all_different(indices) if tensor.dim() == 1 else indices


def _all_indexed(
    selecting: Selecting, tensor: torch.Tensor, indices: list[torch.Tensor | None]
) -> torch.Tensor:
    """Every element that a mask could choose."""
    rows: list[torch.Tensor | None] = []
    masks = [index for index in indices if index is not None]
    if masks and all(mask.dim() == 0 for mask in masks):  # one truth for all, or for none
        return _any_of(tensor, 1, *tensor.shape)
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            rows += _all_nonzero(selecting, index).unbind(1)
        else:
            rows.append(index)
    indexed: torch.Tensor = _aten.index.Tensor(tensor, rows)
    return indexed


def _all_selected(selecting: Selecting, tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    shape = torch.broadcast_shapes(tensor.shape, mask.shape)
    return _any_of(tensor, selecting.count(mask) * shape.numel() // max(1, mask.numel()))


def _all_unique(
    selecting: Selecting,
    tensor: torch.Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    inverse = tensor.shape if return_inverse else (0,)
    counts = tensor.numel() if return_counts else 0
    return (
        _any_of(tensor, tensor.numel()),
        torch.empty(inverse, dtype=torch.int64),
        torch.empty(counts, dtype=torch.int64),
    )


def _all_consecutive(
    selecting: Selecting,
    tensor: torch.Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if dim is not None:
        return _all_unique_rows(selecting, tensor, dim, True, return_inverse, return_counts)
    return _all_unique(selecting, tensor, True, return_inverse, return_counts)


def _all_unique_rows(
    selecting: Selecting,
    tensor: torch.Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows = tensor.shape[dim]
    return (
        _any_of(tensor, *tensor.shape),
        torch.empty(rows if return_inverse else 0, dtype=torch.int64),
        torch.empty(rows if return_counts else 0, dtype=torch.int64),
    )


def _all_boxes(
    selecting: Selecting, boxes: torch.Tensor, scores: torch.Tensor, overlap: float
) -> torch.Tensor:
    """Indices of boxes that suppress each other, where none does."""
    return all_different(torch.empty(len(boxes), dtype=torch.int64))


_LARGEST: dict[Any, Callable[..., Any]] = {
    _aten.nonzero.default: _all_nonzero,
    _aten.index.Tensor: _all_indexed,
    _aten.masked_select.default: _all_selected,
    _aten._unique2.default: _all_unique,
    _aten.unique_consecutive.default: _all_consecutive,
    _aten.unique_dim.default: _all_unique_rows,
}
"""Operators whose result has as many elements as their input at most."""

_OF_PACKAGES = {"torchvision.nms.default": _all_boxes}
"""The same for operators of packages, which may not be installed, by name."""


def largest_of(func: Any) -> Callable[..., Any] | None:
    """The function that makes the largest result of an operator; ``None`` if there is none."""
    return _LARGEST.get(func) or _OF_PACKAGES.get(str(func))
