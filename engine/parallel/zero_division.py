"""How DeepSpeed's ZeRO divides weights among GPUs, and which of them stage 3 keeps whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from ..choices import ZERO, Quantization
from ..workload import Workload
from .fsdp import repeated_blocks

WEIGHTS = 3
"""The stage that divides the weights."""

REUSED = 500_000_000 + 50_000_000
"""Weights that stage 3 keeps gathered in backward, by default: a weight stays if it is used again
within 1e9 weights (``stage3_max_reuse_distance``), which half of them are on the way back; and it
fetches 5e7 ahead (``stage3_prefetch_bucket_size``)."""


@dataclass(frozen=True)
class Division:
    """How ZeRO divides a training run.

    Attributes:
        stage: Optimizer state is divided from 1, gradients from 2, weights from 3.
        gpus: Among how many.
        bucket_elements: Gradients that are reduced at a time.
        overlaps: Whether a second bucket fills while the first is reduced.
        micro_batches: Whose gradients are added up in a step.
        weights_on_host: Whether this GPU's part of the weights stays on the host.
        reused_elements: Weights that stage 3 keeps gathered in backward.
        small_elements: Weights of as many numbers or fewer stage 3 keeps whole.
        quantized: Whether weights are packed, so that all are whole on each GPU at first.
    """

    stage: int
    gpus: int
    bucket_elements: int = 500_000_000
    overlaps: bool = False
    micro_batches: int = 1
    weights_on_host: bool = False
    reused_elements: int = REUSED
    small_elements: int = 100_000
    quantized: bool = False

    @classmethod
    def of(cls, workload: Workload) -> Division:
        """What a workload says of it."""
        return cls(
            stage=1 + ZERO.index(workload.parallelism),
            gpus=workload.world_size,
            bucket_elements=workload.bucket_elements,
            overlaps=workload.overlap_comm,
            micro_batches=min(2, workload.gradient_accumulation),  # those that are traced
            weights_on_host=workload.cpu_offload,
            quantized=workload.quantization is not Quantization.NONE,
        )


class Parts:
    """Weights one after the other, cut into parts of equal size.

    Args:
        sizes: Numbers of each weight.
        gpus: How many parts there are.

    Attributes:
        size: Numbers of a part.
        whole: Numbers of the weights that lie in a part with at least one, in the part where they
            are most.
    """

    def __init__(self, sizes: list[int], gpus: int) -> None:
        self.size = -(-sum(sizes) // gpus)
        ends = list(accumulate(sizes))
        self._of = [
            range((end - size) // self.size, (end - 1) // self.size + 1)
            for size, end in zip(sizes, ends, strict=True)
        ]
        held: Counter[int] = Counter()
        for size, parts in zip(sizes, self._of, strict=True):
            held.update(dict.fromkeys(parts, size))
        self.whole = max(held.values())

    def holds(self, weights: Iterable[int]) -> bool:
        """Whether these weights, by their numbers, lie in one part."""
        return len({part for weight in weights for part in self._of[weight]}) == 1


def kept_whole(models: Sequence[torch.nn.Module], division: Division) -> tuple[int, int]:
    """Numbers that stage 3 keeps whole throughout, and from forward to the end of backward.

    Weights outside the repeated blocks are not among them: ``fully_shard`` keeps those. One GPU
    alone gathers nothing.
    """
    if division.stage != WEIGHTS or division.gpus == 1:
        return 0, 0
    blocks = [block for model in models for block in repeated_blocks(model)]
    inside = {one for block in blocks for one in block.parameters()}
    small = sum(one.numel() for one in inside if one.numel() <= division.small_elements)
    count = sum(one.numel() for model in models for one in model.parameters())
    outside = sum(map(outside_blocks, models))
    return small, max(0, min(division.reused_elements, count - small) - outside)


def outside_blocks(model: torch.nn.Module) -> int:
    """Numbers outside the repeated blocks, which ``fully_shard`` keeps gathered throughout."""
    within = {id(one) for block in repeated_blocks(model) for one in block.parameters()}
    return sum(one.numel() for one in model.parameters() if id(one) not in within)
