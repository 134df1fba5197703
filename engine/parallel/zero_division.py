"""The division of weights among GPUs by DeepSpeed's ZeRO."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from ..core.choices import ZERO, Quantization
from ..interface.workload import Workload

WEIGHTS = 3
"""The stage that divides the weights."""


@dataclass(frozen=True)
class Division:
    """Division of a training run by ZeRO.

    Attributes:
        stage: Optimizer state is divided from 1, gradients from 2, weights from 3.
        gpus: Number of GPUs.
        bucket_elements: Gradients that are reduced at a time.
        overlaps: Whether a second bucket fills while the first is reduced.
        micro_batches: Micro-batches whose gradients are added up in a step.
        weights_on_host: Whether this GPU's part of the weights stays on the host.
        reuse_elements: Stage 3 keeps a weight gathered that is used again within this many.
        ahead_elements: Weights that stage 3 gathers ahead.
        live_elements: Stage 3 stops gathering ahead once this many are whole.
        small_elements: Weights of as many numbers or fewer stage 3 keeps whole.
        quantized: Whether weights are packed, so that all are whole on each GPU at first.
    """

    stage: int
    gpus: int
    bucket_elements: int = 500_000_000
    overlaps: bool = False
    micro_batches: int = 1
    weights_on_host: bool = False
    reuse_elements: int = 1_000_000_000
    ahead_elements: int = 50_000_000
    live_elements: int = 1_000_000_000
    small_elements: int = 100_000
    quantized: bool = False

    @classmethod
    def of(cls, workload: Workload) -> Division:
        """The division that a workload's settings give."""
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
        gpus: Number of parts.

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
