"""Divergence of a student's next words from a teacher's, without the logits of all tokens at once.

Source: TRL 1.16, ``kernels/chunked_divergence.py`` (``ChunkedDivergenceFunction``), which projects
the last hidden states of both through their heads in tiles of fp32, and in backward once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from ..tracing.operations import OWN_KERNELS, own_products
from . import scoring

_ROWS = 64
"""Tokens that a kernel works on at once, so that its own temporaries stay small."""

_kernels = torch.library.Library(OWN_KERNELS, "FRAGMENT")
_BOTH = "Tensor hidden, Tensor weight, Tensor others, Tensor other_weight"
_kernels.define(
    f"compare_tiles(Tensor(a!)[] casts, {_BOTH}, Tensor(b!)[] tiles, Tensor(c!) apart) -> ()",
    tags=torch.Tag.pt2_compliant_tag,
)
_kernels.define(
    f"compare_tiles_backward(Tensor(a!)[] casts, {_BOTH}, Tensor(b!)[] tiles, Tensor gradient, "
    "Tensor(c!) of_hidden, Tensor(d!)? of_weight) -> ()",
    tags=torch.Tag.pt2_compliant_tag,
)


def divergences(
    hidden: torch.Tensor, weight: torch.Tensor, others: torch.Tensor, other_weight: torch.Tensor
) -> torch.Tensor:
    """The forward KL divergence of each token, in fp32; only the student has gradients.

    Args:
        hidden: Input of the student's head, of shape (N, H).
        weight: Weight of that head, of shape (V, H).
        others: Input of the teacher's head, of shape (N, T).
        other_weight: Weight of that head, of shape (V, T).

    Returns:
        One divergence per token, of shape (N,).
    """
    return _Divergences.apply(hidden, weight, others, other_weight)  # type: ignore[no-any-return,no-untyped-call]  # PyTorch has no type for it


class _Divergences(torch.autograd.Function):
    """Divergences: tensors that the allocator sees are made here, the rest is one kernel."""

    @staticmethod
    def forward(ctx: Any, *both: torch.Tensor) -> torch.Tensor:
        device = both[0].device.type
        mixed = torch.is_autocast_enabled(device)
        ctx.dtype = torch.get_autocast_dtype(device) if mixed else both[0].dtype
        apart = both[0].new_zeros(len(both[0]), dtype=torch.float32)
        casts = scoring.casts_of(both, ctx.dtype)
        torch.ops.memorymark.compare_tiles(casts, *both, _tiles(both[0]), apart)
        ctx.save_for_backward(*both)
        return apart

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        both = ctx.saved_tensors
        hidden, weight = both[:2]
        of_hidden = torch.zeros_like(hidden, dtype=torch.float32)
        trains_head = ctx.needs_input_grad[1]
        of_weight = torch.zeros_like(weight, dtype=torch.float32) if trains_head else None
        tiles = _tiles(hidden)
        if ctx.dtype is not torch.float32:  # the gradients of a tile's logits
            tiles.append(tiles[0].new_empty(tiles[0].shape, dtype=ctx.dtype))
        casts = scoring.casts_of(both, ctx.dtype)
        torch.ops.memorymark.compare_tiles_backward(
            casts, *both, tiles, gradients[0], of_hidden, of_weight
        )
        in_format = None if of_weight is None else of_weight.to(weight.dtype)
        return of_hidden.to(hidden.dtype), in_format, None, None


def _tiles(hidden: torch.Tensor) -> list[torch.Tensor]:
    """The logits of a tile of the student's and of the teacher's."""
    shape = (scoring.TILE_TOKENS, scoring.TILE_WORDS)
    return [hidden.new_empty(shape, dtype=torch.float32) for _ in range(2)]


def _logarithms(
    both: tuple[torch.Tensor, ...],
) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """Log-probabilities of all words, student's and teacher's, for each slice of tokens."""
    hidden, weight, others, other_weight = both
    for begin in range(0, len(hidden), _ROWS):
        rows = slice(begin, begin + _ROWS)
        student = (hidden[rows].float() @ weight.float().T).log_softmax(-1)
        yield rows, student, (others[rows].float() @ other_weight.float().T).log_softmax(-1)


def _compare(casts: list[torch.Tensor], *given: Any) -> None:
    """Compute the forward KL divergence of each token, teacher's words from student's."""
    *both, _, apart = given
    for rows, student, teacher in _logarithms(tuple(both)):
        apart[rows] = (teacher.exp() * (teacher - student)).sum(-1)


def _compare_backward(casts: list[torch.Tensor], *given: Any) -> None:
    """The gradients: of a student's logit, its probability less the teacher's."""
    *both, _, gradient, of_hidden, of_weight = given
    for rows, student, teacher in _logarithms(tuple(both)):
        of_logits = (student.exp() - teacher.exp()) * gradient[rows].unsqueeze(1)
        of_hidden[rows] += of_logits @ both[1].float()
        if of_weight is not None:
            of_weight += of_logits.T @ both[0][rows].float()


_kernels.impl("compare_tiles", _compare, "CompositeExplicitAutograd")
_kernels.impl("compare_tiles_backward", _compare_backward, "CompositeExplicitAutograd")
for _kernel in ("compare_tiles", "compare_tiles_backward"):
    _kernels.impl(_kernel, lambda *given: None, "Meta")
    own_products[getattr(torch.ops.memorymark, _kernel)] = (1, 2)


@register_flop_formula(torch.ops.memorymark.compare_tiles)
def _flops(casts: Any, hidden: Any, weight: Any, others: Any, *given: Any, **named: Any) -> int:
    """FLOPs of the products with both heads, from the shapes."""
    return 2 * int(hidden[0]) * int(weight[0]) * (int(hidden[1]) + int(others[1]))


@register_flop_formula(torch.ops.memorymark.compare_tiles_backward)
def _flops_backward(*given: Any, **named: Any) -> int:
    """FLOPs of both products once more, and of those that make the student's gradients."""
    hidden, weight = given[1:3]
    more = 1 if given[-1] is None else 2
    return _flops(*given) + more * 2 * int(hidden[0]) * int(weight[0]) * int(hidden[1])
