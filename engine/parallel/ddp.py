"""The gradient buckets of DistributedDataParallel.

The real reducer is compiled code that reads tensors' values, so it does not run on fake tensors.
These buckets allocate the same in the same order, which a test compares with the real one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    _DEFAULT_FIRST_BUCKET_BYTES,
    _compute_bucket_assignment_by_size,
)
from torch.autograd import Variable

from ..tracing.trace import Category

FIRST_BUCKET_BYTES = _DEFAULT_FIRST_BUCKET_BYTES
BUCKET_BYTES = 25 * 2**20
"""``bucket_cap_mb``'s default."""


class Buckets:
    """Buckets for a model's gradients, filled and reduced in every backward pass.

    By default every gradient exists twice: as the parameter's and in a bucket. With
    ``gradient_as_bucket_view`` it is copied into the bucket when it is computed, and from then on
    that place is the parameter's gradient. In the first step one bucket holds all gradients; before
    the second they are distributed over smaller ones in the order in which they were computed
    (``Reducer::initialize_buckets`` and ``rebuild_buckets`` in
    torch/csrc/distributed/c10d/reducer.cpp); where it looks for unused parameters, they are small
    from the beginning. The broadcasts of the model at construction and of its buffers in forward
    are left out: they never take memory at the peak.

    Args:
        model: Its trainable parameters get buckets.
        world_size: GPUs that share the work.
        as_view: Whether gradients are views of the buckets.
        making: Says what the tensors are for that are made while its context lasts.
        cap_mb: ``bucket_cap_mb``; ``None`` for the default.
        finds_unused: ``find_unused_parameters``.

    Attributes:
        reducing: Whether the next backward pass reduces gradients; not under ``no_sync``.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        world_size: int,
        as_view: bool,
        making: Callable[[Category], AbstractContextManager[None]],
        cap_mb: float | None = None,
        finds_unused: bool = False,
    ) -> None:
        self.reducing = True
        self._parameters = [
            parameter for parameter in model.parameters() if parameter.requires_grad
        ]
        self._share = 1 / world_size
        self._as_view = as_view
        self._making = making
        self._limits = [FIRST_BUCKET_BYTES, BUCKET_BYTES]
        if cap_mb is not None:
            self._limits = [int(cap_mb * 2**20)]
        self._finds_unused = finds_unused
        self._used: list[torch.Tensor] = []
        if finds_unused:  # a mark for each parameter, on the host and on the device
            marks = torch.zeros(len(self._parameters), dtype=torch.int32)
            self._used = [marks, self._parameters[0].new_zeros(len(marks), dtype=torch.int32)]
        self._places: dict[torch.Tensor, torch.Tensor] = {}  # parameter -> its place in a bucket
        self._buckets: list[_Bucket] = []
        self._order: list[torch.Tensor] = []  # of the first backward pass
        self._rebuilt = False
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._reduce)
            for parameter in self._parameters
        ]

    def close(self) -> None:
        """Free the model: parameters and hooks refer to one another, unseen by the collector."""
        for hook in self._hooks:
            hook.remove()

    def prepare(self) -> None:
        """Make the buckets before the first step, and rebuild them before the second.

        The reducer does so at construction, and at the start of its second forward pass.
        """
        if not self._buckets:
            self._make(self._parameters, self._limits if self._finds_unused else [sys.maxsize])
            self._buckets.reverse()
        elif not self._rebuilt and len(self._order) == len(self._parameters):
            self._make(self._order, self._limits)
            self._rebuilt = True

    def _make(self, parameters: Sequence[torch.Tensor], limits: list[int]) -> None:
        assigned, _ = _compute_bucket_assignment_by_size(list(parameters), limits)
        self._places.clear()
        self._buckets.clear()  # freed before the new ones are made
        with self._making(Category.GRADIENTS):
            self._buckets += [_Bucket([parameters[index] for index in one]) for one in assigned]
        for bucket in self._buckets:
            self._places |= bucket.places

    @torch.no_grad()
    def _reduce(self, parameter: torch.Tensor) -> None:
        """Copy a gradient into its bucket; reduce each bucket when it is complete."""
        if parameter.grad is None or not self.reducing:
            return
        torch.mul(parameter.grad, self._share, out=self._places[parameter])
        if self._as_view:
            parameter.grad = self._places[parameter]
        if not self._rebuilt and not self._finds_unused:
            self._order.append(parameter)
        for bucket in self._buckets:
            if bucket.completed_by(parameter):
                dist.all_reduce(bucket.flat)
        if not any(bucket.missing for bucket in self._buckets):
            Variable._execution_engine.queue_callback(self._copy_back)

    @torch.no_grad()
    def _copy_back(self) -> None:
        for bucket in self._buckets:
            for parameter, place in bucket.places.items():
                if parameter.grad is not None and not self._as_view:
                    parameter.grad.copy_(place)
            bucket.missing = set(bucket.places)


class _Bucket:
    """A flat buffer with a place for each of its parameters' gradients."""

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        sizes = [parameter.numel() for parameter in parameters]
        self.flat = parameters[0].new_empty(sum(sizes))
        self.places = {
            parameter: part.view_as(parameter)
            for parameter, part in zip(parameters, self.flat.split(sizes), strict=True)
        }
        self.missing = set(parameters)

    def completed_by(self, parameter: torch.Tensor) -> bool:
        """Whether this was the last missing gradient."""
        if parameter not in self.missing:
            return False
        self.missing.remove(parameter)
        return not self.missing
