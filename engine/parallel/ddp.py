"""The gradient buckets of DistributedDataParallel.

The real reducer is compiled code that reads tensors' values, so it does not run on fake tensors.
These buckets allocate the same in the same order, which a test compares with the real one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    _DEFAULT_FIRST_BUCKET_BYTES,
    _compute_bucket_assignment_by_size,
)
from torch.autograd import Variable

from ..tracing.trace import Category
from ..workload import Workload
from .group_recorder import GroupRecorder

FIRST_BUCKET_BYTES = _DEFAULT_FIRST_BUCKET_BYTES
BUCKET_BYTES = 25 * 2**20
"""``bucket_cap_mb``'s default."""


class Buckets:
    """Buckets for a model's gradients, filled and reduced in every backward pass.

    By default every gradient exists twice: as the parameter's and in a bucket. With
    ``gradient_as_bucket_view`` it is copied into the bucket when it is computed, and from then on
    that place is the parameter's gradient. ``find_unused_parameters`` is off. In the first step one
    bucket holds all gradients; before the second they are distributed over smaller ones in the
    order in which they were computed (``Reducer::initialize_buckets`` and ``rebuild_buckets`` in
    torch/csrc/distributed/c10d/reducer.cpp). The broadcasts of the model at construction and of its
    buffers in forward are left out: they never take memory at the peak.

    Args:
        model: Its trainable parameters get buckets.
        workload: The number of GPUs, and whether gradients are views of the buckets.
        recorder: Returns the current recorder.
    """

    def __init__(
        self, model: torch.nn.Module, workload: Workload, recorder: Callable[[], GroupRecorder]
    ) -> None:
        self._parameters = [
            parameter for parameter in model.parameters() if parameter.requires_grad
        ]
        self._share = 1 / workload.world_size
        self._as_view = workload.gradient_as_bucket_view
        self._recorder = recorder
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
            self._make(self._parameters, [sys.maxsize])
            self._buckets.reverse()
        elif not self._rebuilt and len(self._order) == len(self._parameters):
            self._make(self._order, [FIRST_BUCKET_BYTES, BUCKET_BYTES])
            self._rebuilt = True

    def _make(self, parameters: Sequence[torch.Tensor], limits: list[int]) -> None:
        assigned, _ = _compute_bucket_assignment_by_size(list(parameters), limits)
        self._places.clear()
        self._buckets.clear()  # freed before the new ones are made
        with self._recorder().making(Category.GRADIENTS):
            self._buckets += [_Bucket([parameters[index] for index in one]) for one in assigned]
        for bucket in self._buckets:
            self._places |= bucket.places

    @torch.no_grad()
    def _reduce(self, parameter: torch.Tensor) -> None:
        """Copy a gradient into its bucket; reduce each bucket when it is complete."""
        if parameter.grad is None:
            return
        torch.mul(parameter.grad, self._share, out=self._places[parameter])
        if self._as_view:
            parameter.grad = self._places[parameter]
        if not self._rebuilt:
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
