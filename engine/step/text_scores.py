"""The log-probability of each token of an answer from all logits, text after text.

As TRL's ``selective_log_softmax`` (TRL 1.12, ``trainer/utils.py``): for one text at a time it makes
what the softmax needs, and in backward the gradients of all texts and then a tensor of them. One
operator stands for the texts, so that a step does the same with any number of them.
"""

from __future__ import annotations

from typing import Any

import torch

from ..tracing.operations import OWN_KERNELS

_kernels = torch.library.Library(OWN_KERNELS, "FRAGMENT")
_kernels.define(
    "score_texts(Tensor(a!) scores, Tensor(b!)? kept, Tensor logits, Tensor targets) -> ()",
    tags=torch.Tag.pt2_compliant_tag,
)
_kernels.define(
    "score_texts_backward(Tensor(a!) of_logits, Tensor logits, Tensor targets, Tensor gradient)"
    " -> ()",
    tags=torch.Tag.pt2_compliant_tag,
)


def text_scores(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The log-probability of each target, in the format of the logits.

    Args:
        logits: Logits of shape (B, T, V).
        targets: Words, of shape (B, T).

    Returns:
        Log-probabilities of shape (B, T).
    """
    return _TextScores.apply(logits, targets)  # type: ignore[no-any-return,no-untyped-call]  # PyTorch has no type for it


class _TextScores(torch.autograd.Function):
    """Keeps the logits of fp32; of half formats also their log-softmax, as the original does."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        ctx.is_half = logits.dtype is not torch.float32
        scores = logits.new_empty(targets.shape)
        kept = torch.empty_like(logits) if ctx.is_half and logits.requires_grad else None
        one = None if kept is not None else logits.new_empty(logits.shape[1:])
        torch.ops.memorymark.score_texts(scores, kept, logits, targets)
        del one
        ctx.save_for_backward(logits, targets, kept)
        return scores

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        logits, targets, _ = ctx.saved_tensors
        of_texts = torch.empty_like(logits)
        of_logits = torch.empty_like(logits)
        del of_texts
        of_targets = None if ctx.is_half else torch.empty_like(logits)
        torch.ops.memorymark.score_texts_backward(of_logits, logits, targets, gradients[0])
        del of_targets
        return of_logits, None


def _score(
    scores: torch.Tensor, kept: torch.Tensor | None, logits: torch.Tensor, targets: torch.Tensor
) -> None:
    for text, words, found in zip(logits, targets, scores, strict=True):
        chances = text.log_softmax(-1)
        found.copy_(chances.gather(-1, words.unsqueeze(-1)).squeeze(-1))


def _score_backward(
    of_logits: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor, gradient: torch.Tensor
) -> None:
    for text, words, given, found in zip(logits, targets, gradient, of_logits, strict=True):
        found.copy_(-text.softmax(-1) * given.unsqueeze(-1))
        found.scatter_add_(-1, words.unsqueeze(-1), given.unsqueeze(-1).to(found.dtype))


_kernels.impl("score_texts", _score, "CompositeExplicitAutograd")
_kernels.impl("score_texts_backward", _score_backward, "CompositeExplicitAutograd")
for _kernel in ("score_texts", "score_texts_backward"):
    _kernels.impl(_kernel, lambda *given: None, "Meta")
