"""Differences between builds of PyTorch in the choice of an attention kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from ..versions.software import minor

_CUDNN_OF_RELEASE = {
    (2, 6): 90100,
    (2, 7): 90501,
    (2, 8): 91002,
    (2, 9): 91002,
    (2, 10): 91002,
    (2, 11): 91900,
    (2, 12): 92000,
    (2, 13): 92000,
    (2, 14): 92400,
}
"""The cuDNN that pip installs beside each release's CUDA build, as cuDNN numbers itself."""

_DATACENTER = (9.0, 10.0, 10.3)
"""Hopper and the large Blackwell GPUs, the only ones for which cuDNN is first."""


@dataclass(frozen=True)
class AttentionBuild:
    """A build of PyTorch, as the choice of an attention kernel depends on it.

    Source of all rules: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp. Which release has
    which was looked up in the messages that its ``libtorch_cuda.so`` contains.

    Attributes:
        release: Release of PyTorch, such as (2, 11).
        cudnn: Version of cuDNN as it numbers itself: 91900 for 9.19.0.
    """

    release: tuple[int, int]
    cudnn: int

    def prefers_cudnn(self, compute_capability: float) -> bool:
        """Whether cuDNN comes first where nobody has set priorities.

        Off by default after 2.5; on again in 2.9, from cuDNN 9.9; and from 2.10 only above cuDNN
        9.15.0, whose predecessors fail at lengths that are no multiple of 128.
        """
        if self.release >= (2, 10):
            return self.cudnn > 91500 and compute_capability in _DATACENTER
        return self.release == (2, 9) and self.cudnn >= 90900 and compute_capability in (9.0, 10.0)

    def cudnn_takes_widths(
        self, compute_capability: float, head: int, value: int, has_gradient: bool
    ) -> bool:
        """Whether cuDNN takes heads that wide: at most 128, and wider ones in some builds."""
        if head % 8 or value % 8:
            return False
        if max(head, value) <= 128:
            return True
        if self.release <= (2, 9):
            wide = self.release == (2, 9) and self.cudnn >= 91000 and compute_capability == 9.0
            return wide and max(head, value) <= 256
        if self.release >= (2, 14) and self.cudnn > 92200 and compute_capability in _DATACENTER:
            known = (head, value) in ((192, 128), (256, 256))
            return known or (not has_gradient and max(head, value) <= 256)
        # DeepSeek's heads
        return (
            self.release >= (2, 11)
            and self.cudnn >= 91100
            and compute_capability in (10.0, 10.3)
            and (head, value) == (192, 128)
        )

    @property
    def efficient_takes_groups(self) -> bool:
        """Whether the memory-efficient kernel takes heads of a query that share a key."""
        return self.release >= (2, 14)

    @property
    def broadcasts_single_heads(self) -> bool:
        """Whether fused kernels take one head of keys for all of a query without ``enable_gqa``."""
        return self.release >= (2, 14)


@cache
def installed_build() -> AttentionBuild:
    """The PyTorch that is installed, with the cuDNN of its CUDA build if this one has none."""
    release = minor(torch.__version__)
    newest = max(_CUDNN_OF_RELEASE)
    bundled = _CUDNN_OF_RELEASE.get(release, _CUDNN_OF_RELEASE[newest])
    return AttentionBuild(release, torch.backends.cudnn.version() or bundled)
