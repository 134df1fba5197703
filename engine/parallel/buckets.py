"""The gradient buckets of DistributedDataParallel.

Its reducer is compiled and reads tensors' values, so it does not run on fake tensors; these buckets
make what it makes, in the same order. A test compares them with the real one.
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

from engine.parallel.group_recorder import GroupRecorder
from engine.tracing.trace import Category
from engine.workload import Workload

FIRST_BUCKET_BYTES = _DEFAULT_FIRST_BUCKET_BYTES
BUCKET_BYTES = 25 * 2**20
"""``bucket_cap_mb``'s default."""


class Buckets:
    """Buckets for the gradients of a model, filled and reduced in every backward pass.

    By default every gradient exists twice: as the parameter's and in a bucket. With
    ``gradient_as_bucket_view`` it is copied into the bucket as it comes, and that place is the
    parameter's gradient from then on. ``find_unused_parameters`` is off. In the first step one
    bucket holds all of them; before the second, they are dealt out to smaller ones in the order in
    which they came (``Reducer::initialize_buckets`` and ``rebuild_buckets`` in
    torch/csrc/distributed/c10d/reducer.cpp). Left out are the broadcasts of the model at
    construction and of its buffers in forward, which take memory before or between, and so never
    at the peak.

    Args:
        model: Its trainable parameters get buckets.
        workload: Says how many GPUs share the work, and whether gradients lie in the buckets.
        recorder: Gives the recorder that is at work.
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
        self._came: list[torch.Tensor] = []  # in the order of the first backward pass
        self._rebuilt = False
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._reduce)
            for parameter in self._parameters
        ]

    def close(self) -> None:
        """Let go of the model: parameters and hooks hold one another where no collector looks."""
        for hook in self._hooks:
            hook.remove()

    def get_ready(self) -> None:
        """Make the buckets before the first step, and deal them out anew before the second.

        The reducer does that when it is made, and at the begin of its second forward pass.
        """
        if not self._buckets:
            self._make(self._parameters, [sys.maxsize])
            self._buckets.reverse()
        elif not self._rebuilt and len(self._came) == len(self._parameters):
            self._make(self._came, [FIRST_BUCKET_BYTES, BUCKET_BYTES])
            self._rebuilt = True

    def _make(self, parameters: Sequence[torch.Tensor], limits: list[int]) -> None:
        dealt, _ = _compute_bucket_assignment_by_size(list(parameters), limits)
        self._places.clear()
        self._buckets.clear()  # freed before the new ones are made
        with self._recorder().making(Category.GRADIENTS):
            self._buckets += [_Bucket([parameters[index] for index in one]) for one in dealt]
        for bucket in self._buckets:
            self._places |= bucket.places

    @torch.no_grad()
    def _reduce(self, parameter: torch.Tensor) -> None:
        """Put a gradient into its bucket; the last of all sends every bucket round and back."""
        if parameter.grad is None:
            return
        torch.mul(parameter.grad, self._share, out=self._places[parameter])
        if self._as_view:
            parameter.grad = self._places[parameter]
        if not self._rebuilt:
            self._came.append(parameter)
        for bucket in self._buckets:
            if bucket.completed_by(parameter):
                dist.all_reduce(bucket.flat)
        if not any(bucket.missing for bucket in self._buckets):
            Variable._execution_engine.queue_callback(self._hand_back)

    @torch.no_grad()
    def _hand_back(self) -> None:
        for bucket in self._buckets:
            for parameter, place in bucket.places.items():
                if parameter.grad is not None and not self._as_view:
                    parameter.grad.copy_(place)
            bucket.missing = set(bucket.places)


class _Bucket:
    """A flat buffer with a place for the gradient of each of its parameters."""

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        sizes = [parameter.numel() for parameter in parameters]
        self.flat = parameters[0].new_empty(sum(sizes))
        self.places = {
            parameter: part.view_as(parameter)
            for parameter, part in zip(parameters, self.flat.split(sizes), strict=True)
        }
        self.missing = set(parameters)

    def completed_by(self, parameter: torch.Tensor) -> bool:
        """Whether this was the last gradient that it waited for."""
        if parameter not in self.missing:
            return False
        self.missing.remove(parameter)
        return not self.missing
