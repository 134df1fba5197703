"""What DeepSpeed's ZeRO keeps and moves, beside a traced forward and backward pass.

DeepSpeed does not run on fake tensors, so its part is written here from its source, 0.19.8
(deepspeed/runtime/zero/stage_1_and_2.py, stage3.py and partitioned_param_coordinator.py): what it
allocates, in its order. Weights are in bf16; their fp32 copies, and what the optimizer keeps, are
flat and divided among all GPUs. Stage 2 divides gradients too, stage 3 also the weights, which are
gathered here as PyTorch's ``fully_shard`` does, block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import Variable

from ..choices import ZERO, Parallelism, Precision
from ..step.optimizers import make_optimizer
from ..tracing.trace import Category
from ..workload import Workload
from .fsdp import repeated_blocks
from .group_recorder import own_part

REUSED = 500_000_000 + 50_000_000
"""Weights that stage 3 keeps gathered in backward, by default: a weight stays if it is used again
within 1e9 weights (``stage3_max_reuse_distance``), which half of them are on the way back; and it
fetches 5e7 ahead (``stage3_prefetch_bucket_size``)."""


def computed_alone(workload: Workload) -> Workload:
    """How one GPU computes with ZeRO: DeepSpeed's engine casts the whole model to bf16."""
    if workload.parallelism not in ZERO:
        return workload
    return replace(
        workload,
        precision=Precision.BF16_TRUE,
        parallelism=Parallelism.NONE,
        world_size=1,
        reduce_bucket_size=None,
    )


def cast_trained(model: torch.nn.Module, workload: Workload) -> torch.nn.Module:
    """Cast what peft keeps in fp32, as DeepSpeed's engine does."""
    if workload.parallelism in ZERO:
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(torch.bfloat16)
    return model


class Partitions:
    """One GPU's part of gradients, fp32 weights and optimizer state, and the buffers for them.

    Args:
        model: Of which one GPU has all weights, or for stage 3 before it is sharded.
        workload: The stage, the number of GPUs, the optimizer and the size of a bucket.
        making: Says what the tensors are for that are made while its context lasts.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        workload: Workload,
        making: Callable[[Category], AbstractContextManager[None]],
    ) -> None:
        self._stage = 1 + ZERO.index(workload.parallelism)
        self._workload = workload
        self._making = making
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._device = trained[0].device
        self._own = -(-sum(map(torch.Tensor.numel, trained)) // workload.world_size)
        self._bucket_size = workload.bucket_elements
        self._reused = min(REUSED, sum(map(torch.Tensor.numel, model.parameters())))
        if self._stage == _WEIGHTS:
            self._reused -= _outside_blocks(model)
        self._filled: list[torch.nn.Parameter] = []
        self._buffer: torch.Tensor | None = None
        self._gradients: torch.Tensor | None = None
        self._kept: torch.Tensor | None = None
        self._master: torch.nn.Parameter | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._parameters: list[torch.nn.Parameter] = []

    def follow(self, model: torch.nn.Module) -> None:
        """Take the gradients of a model, sharded for stage 3, as they come."""
        self._parameters = [one for one in model.parameters() if one.requires_grad]
        take = {1: None, 2: self._take, _WEIGHTS: self._take_shard}[self._stage]
        if take is not None:
            for parameter in self._parameters:
                parameter.register_post_accumulate_grad_hook(take)

    @property
    def state(self) -> Mapping[Any, Any]:
        """What the optimizer keeps, and the fp32 weights."""
        if self._master is None or self._optimizer is None:
            return {}
        kept = self._optimizer.state.get(self._master, {})
        return {self._master: {**kept, "master": self._master}}

    def prepare(self) -> None:
        """Make what stays: the fp32 weights, and for stage 3 the buffers."""
        if self._master is not None:
            return
        with self._making(Category.OPTIMIZER_STATE):
            self._master = torch.nn.Parameter(self._empty(self._own, torch.float32))
        held = torch.nn.ParameterList([self._master])
        self._optimizer = make_optimizer(self._workload, held, predicting=True)
        if self._stage == _WEIGHTS:
            with self._making(Category.GRADIENTS):
                self._buffer = self._empty(self._bucket_size)
                self._gradients = self._empty(self._own)
            with self._making(Category.PARAMETERS):
                self._kept = self._empty(max(0, self._reused))

    @torch.no_grad()
    def step(self, closure: object = None) -> None:
        """Reduce what is left to reduce, and update this GPU's part of the weights."""
        if self._master is None or self._optimizer is None:
            return
        if self._stage == 1:
            for parameter in self._parameters:
                self._take(parameter)
            self._reduce()
        if self._gradients is None:
            return
        with self._making(Category.GRADIENTS):
            given = self._gradients
            if self._stage == _WEIGHTS:  # whose buffer stays, so that it is flattened anew
                given = given.clone()
            self._master.grad = given.to(torch.float32)
            del given
        if self._stage != _WEIGHTS:
            self._gradients = None
            for parameter in self._parameters:
                parameter.grad = None
        self._optimizer.step()
        self._master.grad = None
        self._send_weights()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing is left of them."""

    def _send_weights(self) -> None:
        """Gather the updated weights where each GPU has all of them; into their own places.

        Reducing half of them, in place too, sends as much as gathering all.
        """
        if self._stage != _WEIGHTS:
            for parameter in self._parameters:
                flat = parameter.detach().view(-1)
                dist.all_reduce(flat[: flat.numel() // 2])

    @torch.no_grad()
    def _take(self, parameter: torch.nn.Parameter) -> None:
        """Copy a gradient into the bucket, which is reduced when it is full."""
        if parameter.grad is None:
            return
        if self._buffer is None:
            with self._making(Category.GRADIENTS):
                self._buffer = self._empty(self._bucket_size)
            if self._stage == 2:  # the epilogue of each backward pass
                Variable._execution_engine.queue_callback(self._reduce)
        used = sum(one.numel() for one in self._filled)
        if used and used + parameter.numel() > self._bucket_size:
            self._reduce_bucket()
            used = 0
        if parameter.numel() <= self._bucket_size:
            place = self._buffer[used : used + parameter.numel()].view_as(parameter)
            place.copy_(parameter.grad)
            parameter.grad = place
        self._filled.append(parameter)

    @torch.no_grad()
    def _take_shard(self, parameter: torch.nn.Parameter) -> None:
        """Add a reduced shard to the flat partition, which is kept from step to step."""
        if parameter.grad is None or self._gradients is None:
            return
        shard = own_part(parameter.grad).view(-1)
        self._gradients[: shard.numel()].add_(shard)
        parameter.grad = None

    def _reduce_bucket(self) -> None:
        """Reduce the gradients in the bucket; of stage 2, keep this GPU's part alone."""
        if not self._filled:
            return
        if self._gradients is None:
            with self._making(Category.GRADIENTS):
                self._gradients = self._empty(self._own)
        gradients = [one.grad.view(-1) for one in self._filled if one.grad is not None]
        with self._making(Category.GRADIENTS):  # all_reduce and scatter, of a flattened copy
            flat = torch.cat(gradients)
        dist.all_reduce(flat)
        part = flat[: flat.numel() // self._workload.world_size]
        self._gradients[: part.numel()].add_(part)
        if self._stage > 1:
            for parameter in self._filled:
                parameter.grad = None
        self._filled.clear()

    @torch.no_grad()
    def _reduce(self) -> None:
        self._reduce_bucket()
        self._buffer = None

    def _empty(self, count: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.empty(count, dtype=dtype, device=self._device)


_WEIGHTS = 3
"""The stage that divides the weights."""


def _outside_blocks(model: torch.nn.Module) -> int:
    """Weights outside the repeated blocks, which ``fully_shard`` keeps gathered throughout."""
    within = {id(one) for block in repeated_blocks(model) for one in block.parameters()}
    return sum(one.numel() for one in model.parameters() if id(one) not in within)
