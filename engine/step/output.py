"""What a forward pass of our own modules returns."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Output:
    """What a forward pass returns, as transformers' models do."""

    loss: torch.Tensor
