"""The log-probability of each token of an answer, without the logits of all tokens at once.

TRL's trainers that score answers project the last hidden states through the head in tiles, and in
backward once more. Source: TRL 1.16, ``kernels/chunked_logprob.py`` (``ChunkedLogProbFunction``)
and ``trainer/utils.py`` (``add_fused_lm_head``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from ..tracing.operations import OWN_KERNELS, own_products

TILE_TOKENS, TILE_WORDS = 4_096, 32_768
"""Tokens and words of the vocabulary in a tile of logits."""

_ROWS = 64
"""Tokens that a kernel works on at once, so that its own temporaries stay small."""

_kernels = torch.library.Library(OWN_KERNELS, "FRAGMENT")
_kernels.define(
    "score_tiles(Tensor(a!) tile, Tensor(b!)[] casts, Tensor hidden, Tensor weight, "
    "Tensor targets, Tensor(c!) scores, Tensor(d!) log_sums) -> ()",
    tags=torch.Tag.pt2_compliant_tag,
)
_kernels.define(
    "score_tiles_backward(Tensor(a!) tile, Tensor(b!)[] casts, Tensor hidden, Tensor weight, "
    "Tensor targets, Tensor log_sums, Tensor gradient, Tensor(c!) of_hidden, "
    "Tensor(d!)? of_weight) -> ()",
    tags=torch.Tag.pt2_compliant_tag,
)


def log_probabilities(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """The log-probability of each target, in fp32.

    Args:
        hidden: Input of the head, of shape (N, H).
        weight: Weight of the head, of shape (V, H).
        targets: Words, of shape (N,).

    Returns:
        One log-probability per target, of shape (N,).
    """
    return _Scores.apply(hidden, weight, targets)  # type: ignore[no-any-return,no-untyped-call]  # PyTorch has no type for it


class _Scores(torch.autograd.Function):
    """Scores: tensors that the caching allocator sees are made here, the rest is one kernel."""

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        device = hidden.device.type
        mixed = torch.is_autocast_enabled(device)
        ctx.dtype = torch.get_autocast_dtype(device) if mixed else hidden.dtype
        scores = torch.zeros_like(targets, dtype=torch.float32)
        log_sums = torch.full_like(scores, float("-inf"))
        tile, casts = _scratch(hidden, weight, ctx.dtype)
        torch.ops.memorymark.score_tiles(tile, casts, hidden, weight, targets, scores, log_sums)
        ctx.save_for_backward(hidden, weight, targets, log_sums)
        return scores

    @staticmethod
    def backward(
        ctx: Any, *gradients: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        hidden, weight, targets, log_sums = ctx.saved_tensors
        of_hidden = torch.zeros_like(hidden, dtype=torch.float32)
        trains_head = ctx.needs_input_grad[1]
        of_weight = torch.zeros_like(weight, dtype=torch.float32) if trains_head else None
        tile, casts = _scratch(hidden, weight, ctx.dtype, at_once=2)
        torch.ops.memorymark.score_tiles_backward(
            tile, casts, hidden, weight, targets, log_sums, gradients[0], of_hidden, of_weight
        )
        return (
            of_hidden.to(hidden.dtype),
            None if of_weight is None else of_weight.to(weight.dtype),
            None,
        )


def _scratch(
    hidden: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype, at_once: int = 1
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """A tile of logits, and what the product of one has to cast: hidden states, weights.

    TRL takes fewer rows where there are fewer tokens in all. These are never fewer, so that the
    memory of every batch follows from that of two.

    Args:
        hidden: Hidden states of all tokens.
        weight: Weights of all words.
        dtype: Number format of the products.
        at_once: Number of casts of each that are alive; backward keeps those of the tile before
            until there are new ones.
    """
    tile = hidden.new_empty(TILE_TOKENS, TILE_WORDS, dtype=dtype)
    return tile, casts_of((hidden, weight), dtype, at_once)


def casts_of(
    given: Sequence[torch.Tensor], dtype: torch.dtype, at_once: int = 1
) -> list[torch.Tensor]:
    """Casts that the product of a tile needs: of hidden states and weights, by turns."""
    return [
        one.new_empty(min(len(one), most) if place % 2 else most, one.shape[1], dtype=dtype)
        for place, one in enumerate(given)
        for most in ((TILE_TOKENS, TILE_WORDS)[place % 2],)
        if one.dtype is not dtype
        for _ in range(at_once)
    ]


def _tiles(
    hidden: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype
) -> Iterator[tuple[slice, slice, torch.Tensor, torch.Tensor]]:
    """The rows of each tile, its words, its hidden states and its weights."""
    for begin in range(0, len(hidden), _ROWS):
        rows = slice(begin, begin + _ROWS)
        read = hidden[rows].to(dtype)
        for first in range(0, len(weight), TILE_WORDS):
            words = slice(first, first + TILE_WORDS)
            yield rows, words, read, weight[words].to(dtype)


def _score(
    tile: torch.Tensor,
    casts: list[torch.Tensor],
    hidden: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    scores: torch.Tensor,
    log_sums: torch.Tensor,
) -> None:
    """Score each target: its logit without the logarithm of the sum over all words."""
    for rows, words, read, part in _tiles(hidden, weight, tile.dtype):
        logits = (read @ part.T).float()
        log_sums[rows] = torch.logaddexp(log_sums[rows], logits.logsumexp(-1))
        place = targets[rows] - words.start
        inside = (place >= 0) & (place < logits.shape[1])
        found = logits.gather(1, place.clamp(0, logits.shape[1] - 1).unsqueeze(1)).squeeze(1)
        scores[rows] = torch.where(inside, found, scores[rows])
    scores -= log_sums


def _score_backward(
    tile: torch.Tensor,
    casts: list[torch.Tensor],
    hidden: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    log_sums: torch.Tensor,
    gradient: torch.Tensor,
    of_hidden: torch.Tensor,
    of_weight: torch.Tensor | None,
) -> None:
    """The gradients of scores: of a logit, whether it is the target's less its probability."""
    for rows, words, read, part in _tiles(hidden, weight, tile.dtype):
        chances = ((read @ part.T).float() - log_sums[rows].unsqueeze(1)).exp()
        numbers = torch.arange(words.start, words.start + len(part), device=hidden.device)
        is_target = (targets[rows].unsqueeze(1) == numbers).float()
        of_logits = (is_target - chances) * gradient[rows].unsqueeze(1)
        of_hidden[rows] += of_logits @ part.float()
        if of_weight is not None:
            of_weight[words] += of_logits.T @ read.float()


_kernels.impl("score_tiles", _score, "CompositeExplicitAutograd")
_kernels.impl("score_tiles_backward", _score_backward, "CompositeExplicitAutograd")
for _kernel in ("score_tiles", "score_tiles_backward"):
    _kernels.impl(_kernel, lambda *given: None, "Meta")
    own_products[getattr(torch.ops.memorymark, _kernel)] = (2, 3)


@register_flop_formula(torch.ops.memorymark.score_tiles)
def _flops(tile: Any, casts: Any, hidden: Any, weight: Any, *given: Any, **named: Any) -> int:
    """FLOPs of the product with the head, from the shapes."""
    return 2 * int(hidden[0]) * int(weight[0]) * int(weight[1])


@register_flop_formula(torch.ops.memorymark.score_tiles_backward)
def _flops_backward(*given: Any, **named: Any) -> int:
    """FLOPs of the product once more, and of those that make the gradients."""
    products = 2 if given[-1] is None else 3
    return products * _flops(*given)
