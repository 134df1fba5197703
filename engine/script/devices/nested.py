"""Nested tensors, into which ``nn.TransformerEncoder`` puts padded inputs while it evaluates.

Fake tensors have none, and what they hold is a matter of the mask's values. Padded inputs stay as
they are instead, which takes at least as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ...versions.patches import patched

PADDED = (
    "Padded inputs of nn.TransformerEncoder stay padded in its evaluation, where PyTorch may leave "
    "the padding out: memory is at most that."
)


@contextmanager
def padding_kept(note: Callable[[str], object]) -> Iterator[None]:
    """Let masks look as if padding were not at the end, for as long as the context lasts.

    Args:
        note: Receives a sentence about what was assumed.
    """

    def is_at_the_end(*_: Any) -> bool:
        note(PADDED)
        return False

    with patched(
        torch,
        "_nested_tensor_from_mask_left_aligned",
        is_at_the_end,
        why="fake tensors cannot be nested, and padded ones are",
    ):
        yield
