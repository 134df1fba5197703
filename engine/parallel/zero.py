"""What DeepSpeed's ZeRO keeps and moves, beside a traced forward and backward pass.

DeepSpeed does not run on fake tensors, so its part is written here from its source, 0.19.8
(deepspeed/runtime/zero/stage_1_and_2.py, stage3.py and partitioned_param_coordinator.py): what it
allocates, in its order. Weights are in bf16; their fp32 copies, and what the optimizer keeps, are
flat and divided among all GPUs. Stage 2 divides gradients too, stage 3 also the weights, which are
gathered here as PyTorch's ``fully_shard`` does, block by block. What is offloaded follows
:mod:`engine.parallel.zero_offload`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import Variable

from ..choices import ZERO, Parallelism, Precision, Quantization
from ..step.optimizers import make_optimizer
from ..tracing.trace import Category
from ..workload import Workload
from .fsdp import repeated_blocks
from .group_recorder import own_part
from .offload import HostTensors
from .zero_offload import HostPartition

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
        quantized: Whether weights are packed, so that all are whole on each GPU at first.
    """

    stage: int
    gpus: int
    bucket_elements: int = 500_000_000
    overlaps: bool = False
    micro_batches: int = 1
    weights_on_host: bool = False
    reused_elements: int = REUSED
    quantized: bool = False

    @classmethod
    def of(cls, workload: Workload) -> Division:
        """What a workload says of it."""
        return cls(
            stage=1 + ZERO.index(workload.parallelism),
            gpus=workload.world_size,
            bucket_elements=workload.bucket_elements,
            overlaps=workload.overlap_comm,
            micro_batches=workload.gradient_accumulation,
            weights_on_host=workload.cpu_offload,
            quantized=workload.quantization is not Quantization.NONE,
        )


def computed_alone(workload: Workload) -> Workload:
    """How one GPU computes with ZeRO: DeepSpeed's engine casts the whole model to bf16."""
    if workload.parallelism not in ZERO:
        return workload
    return replace(
        workload,
        precision=Precision.BF16_TRUE,
        parallelism=Parallelism.NONE,
        world_size=1,
        vllm_tensor_parallel=1,
        reduce_bucket_size=None,
        overlap_comm=False,
        cpu_offload=False,
        optimizer_offload=False,
    )


def cast_trained(model: torch.nn.Module, workload: Workload) -> torch.nn.Module:
    """Cast what peft keeps in fp32, as DeepSpeed's engine does."""
    if workload.parallelism in ZERO:
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(torch.bfloat16)
    return model


def flat_optimizer(workload: Workload, master: torch.nn.Parameter) -> torch.optim.Optimizer | None:
    """What updates one GPU's part of the weights; nothing where the workload has no optimizer."""
    held = torch.nn.ParameterList([master])
    return make_optimizer(computed_alone(workload), held, predicting=True)


class Partitions:
    """One GPU's part of gradients, fp32 weights and optimizer state, and the buffers for them.

    Args:
        models: Of which one GPU has all weights, or for stage 3 before they are sharded.
        division: How it is divided.
        optimizer: Makes what updates this GPU's part of the weights, flat and in fp32.
        making: Says what the tensors are for that are made while its context lasts.
        host: Returns what is on the host; ``None`` where nothing is offloaded.

    Attributes:
        phase: ``optimizer`` while it makes tensors that may be on the host, else empty.
    """

    def __init__(
        self,
        models: Sequence[torch.nn.Module],
        division: Division,
        optimizer: Callable[[torch.nn.Parameter], torch.optim.Optimizer | None],
        making: Callable[[Category], AbstractContextManager[None]],
        host: Callable[[], HostTensors | None],
    ) -> None:
        self.phase = ""
        self._host = host
        self._away: HostPartition | None = None
        self._division = division
        self._make_optimizer = optimizer
        self._making = making
        weights = [parameter for model in models for parameter in model.parameters()]
        trained = [parameter for parameter in weights if parameter.requires_grad]
        self._low = trained[0].dtype
        self._own = -(-sum(map(torch.Tensor.numel, trained)) // division.gpus)
        overlaps = division.overlaps
        self._reducing = torch.cpu.Stream() if overlaps else torch.cpu.current_stream()
        self._passes: Counter[torch.nn.Parameter] = Counter()
        self._reused = min(division.reused_elements, sum(map(torch.Tensor.numel, weights)))
        self._quantized: list[tuple[int, torch.dtype]] = []
        if division.stage == _WEIGHTS:
            self._reused -= sum(map(_outside_blocks, models))
            if division.quantized:
                self._quantized = [(one.numel(), one.dtype) for one in weights]
        self._device = torch.device("cpu")
        self._filled: list[torch.nn.Parameter] = []
        self._buffers: list[torch.Tensor] = []
        self._gradients: torch.Tensor | None = None
        self._kept: torch.Tensor | None = None
        self._master: torch.nn.Parameter | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._parameters: list[torch.nn.Parameter] = []

    def follow(self, model: torch.nn.Module) -> None:
        """Take the gradients of a model, sharded for stage 3, as they come."""
        self._parameters = [one for one in model.parameters() if one.requires_grad]
        self._device = self._parameters[0].device
        take = {1: self._take_last, 2: self._take, _WEIGHTS: self._take_shard}[self._division.stage]
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
        self._divide_quantized()
        with self._making(Category.OPTIMIZER_STATE), self._perhaps_away():
            self._master = torch.nn.Parameter(self._empty(self._own, torch.float32))
        self._optimizer = self._make_optimizer(self._master)
        if (host := self._host()) is not None:
            self._away = self._offloaded(host, self._master)
        if self._division.stage == _WEIGHTS:
            self._make_buffers()
            with self._making(Category.GRADIENTS):
                if self._away is None:
                    self._gradients = self._empty(self._own)
            with self._making(Category.PARAMETERS):
                self._kept = self._empty(max(0, self._reused))

    def _divide_quantized(self) -> None:
        """Hold quantized weights whole, until each GPU keeps its part.

        transformers leaves them on the host, outside ``zero.Init``; DeepSpeed's engine moves the
        whole model to the GPU (``module.to``) before it divides it (parameter_offload.py). It does
        so weight by weight: the parts of as many weights as there are GPUs fill the place of one,
        and the others' places are left whole.
        """
        gpus = self._division.gpus
        places: list[torch.Tensor] = []
        with self._making(Category.PARAMETERS):
            for (size, dtype), count in Counter(self._quantized).items():
                whole, rest = divmod(count * (size - -(-size // gpus)), size)
                places += [self._empty(size, dtype) for _ in range(whole)]
                places.append(self._empty(rest, dtype))
        places.clear()

    @torch.no_grad()
    def step(self, closure: object = None) -> None:
        """Reduce what is left to reduce, and update this GPU's part of the weights."""
        if self._master is None or self._optimizer is None:
            return
        if self._division.stage == 1:
            if not self._division.overlaps:
                for parameter in self._parameters:
                    self._take(parameter)
            self._reduce()
            self._passes.clear()
        if self._away is not None:
            self._step_on_host(self._away, self._optimizer)
            return
        if self._gradients is None:
            return
        with self._making(Category.GRADIENTS):
            given = self._gradients
            if self._division.stage == _WEIGHTS:  # whose buffer stays, so that it is flattened anew
                given = given.clone()
            self._master.grad = given.to(torch.float32)
            del given
        if self._division.stage != _WEIGHTS:
            self._gradients = None
            for parameter in self._parameters:
                parameter.grad = None
        self._optimizer.step()
        self._master.grad = None
        self._send_weights()

    def _step_on_host(self, away: HostPartition, optimizer: torch.optim.Optimizer) -> None:
        """Update the weights on the host, and copy them to the GPU unless they stay there too."""
        away.finish(self._parameters)
        for parameter in self._parameters:
            parameter.grad = None
        with self._perhaps_away():
            optimizer.step()
        away.send_weights(self._parameters)
        self._send_weights()

    def _offloaded(self, host: HostTensors, master: torch.nn.Parameter) -> HostPartition:
        """What the host holds; stages 1 and 2 take room for the largest gradient on the GPU."""
        scratch = None
        if self._division.stage != _WEIGHTS:
            with self._making(Category.GRADIENTS):
                scratch = self._empty(max(map(torch.Tensor.numel, self._parameters)))
        division = self._division
        return HostPartition(
            host,
            master,
            scratch,
            gpus=division.gpus,
            adds_up=division.micro_batches > 1 and division.stage > 1,  # stage 1 reduces once
            weights_stay=division.weights_on_host,
        )

    @contextmanager
    def _perhaps_away(self) -> Iterator[None]:
        """Make tensors on the host while the context lasts, where the optimizer is there."""
        self.phase = "optimizer"
        try:
            yield
        finally:
            self.phase = ""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing is left of them."""

    def _send_weights(self) -> None:
        """Gather the updated weights where each GPU has all of them; into their own places.

        Reducing half of them, in place too, sends as much as gathering all.
        """
        if self._division.stage != _WEIGHTS:
            for parameter in self._parameters:
                flat = parameter.detach().view(-1)
                dist.all_reduce(flat[: flat.numel() // 2])

    @torch.no_grad()
    def _take(self, parameter: torch.nn.Parameter) -> None:
        """Copy a gradient into the bucket, which is reduced when it is full."""
        if parameter.grad is None:
            return
        if not self._buffers:
            self._make_buffers()
            if self._division.stage == 2:  # the epilogue of each backward pass
                Variable._execution_engine.queue_callback(self._reduce)
        used = sum(one.numel() for one in self._filled)
        if used and used + parameter.numel() > self._division.bucket_elements:
            self._reduce_bucket()
            self._buffers.reverse()
            used = 0
        if parameter.numel() <= self._division.bucket_elements:
            place = self._buffers[0][used : used + parameter.numel()].view_as(parameter)
            place.copy_(parameter.grad)
            parameter.grad = place
        self._filled.append(parameter)

    @torch.no_grad()
    def _take_last(self, parameter: torch.nn.Parameter) -> None:
        """Make stage 1's buffers; overlapped, take what the last micro-batch adds a gradient to."""
        if not self._buffers:
            self._make_buffers()
        self._passes[parameter] += 1
        if self._division.overlaps and self._passes[parameter] == self._division.micro_batches:
            self._take(parameter)

    @torch.no_grad()
    def _take_shard(self, parameter: torch.nn.Parameter) -> None:
        """Add a reduced shard to the flat partition, which is kept from step to step."""
        if parameter.grad is None:
            return
        shard = own_part(parameter.grad).view(-1)
        if self._away is not None:
            self._away.take(shard)
        elif self._gradients is not None:
            self._gradients[: shard.numel()].add_(shard)
        parameter.grad = None

    def _reduce_bucket(self) -> None:
        """Reduce the gradients in the bucket; of stage 2, keep this GPU's part alone."""
        if not self._filled:
            return
        with torch.cpu.stream(self._reducing):  # of which CUDA's allocator has a pool of its own
            self._reduce_filled()
        if self._division.stage > 1:
            for parameter in self._filled:
                parameter.grad = None
        self._filled.clear()

    def _reduce_filled(self) -> None:
        """Reduce a flattened copy of the gradients, and keep this GPU's part of them."""
        gradients = [one.grad.view(-1) for one in self._filled if one.grad is not None]
        with self._making(Category.GRADIENTS):  # all_reduce and scatter, of a flattened copy
            if self._gradients is None and self._away is None:
                self._gradients = self._empty(self._own)
            flat = torch.cat(gradients)
        dist.all_reduce(flat)
        if self._gradients is not None:
            part = flat[: flat.numel() // self._division.gpus]
            self._gradients[: part.numel()].add_(part)
        if self._away is not None:
            for gradient in gradients:
                self._away.take(gradient)

    @torch.no_grad()
    def _reduce(self) -> None:
        self._reduce_bucket()
        self._buffers.clear()

    def _make_buffers(self) -> None:
        """Make the bucket; a second one fills while the first is reduced, if that overlaps."""
        with self._making(Category.GRADIENTS):
            self._buffers = [
                self._empty(self._division.bucket_elements)
                for _ in range(1 + self._division.overlaps)
            ]

    def _empty(self, count: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.empty(count, dtype=dtype or self._low, device=self._device)


_WEIGHTS = 3
"""The stage that divides the weights."""


def _outside_blocks(model: torch.nn.Module) -> int:
    """Weights outside the repeated blocks, which ``fully_shard`` keeps gathered throughout."""
    within = {id(one) for block in repeated_blocks(model) for one in block.parameters()}
    return sum(one.numel() for one in model.parameters() if id(one) not in within)
