"""Output of the forward pass of our own modules."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Output:
    """Output of a forward pass, as of transformers' models."""

    loss: torch.Tensor
