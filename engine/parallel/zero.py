"""Memory and copies of DeepSpeed's ZeRO, beside a traced forward and backward pass.

DeepSpeed does not run on fake tensors, so its part is written here from its source, 0.19.8
(deepspeed/runtime/zero/stage_1_and_2.py, stage3.py and partitioned_param_coordinator.py): what it
allocates, in its order. Weights are in bf16; their fp32 copies, and what the optimizer keeps, are
flat and divided among all GPUs. Stage 2 divides gradients too, stage 3 also the weights, which
:mod:`engine.parallel.zero_gathering` gathers. What is offloaded follows
:mod:`engine.parallel.zero_offload`. ``benchmarks/deepspeed_steps.py`` compares it with DeepSpeed's
own steps on a CPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import Variable

from ..core.choices import ZERO, Parallelism, Precision
from ..interface.workload import Workload
from ..step.optimizers import make_optimizer
from ..tracing.trace import Category
from .offload import Host
from .zero_division import WEIGHTS, Division, Parts
from .zero_gathering import Gathering, reduce_scatter
from .zero_offload import HostPartition


def computed_alone(workload: Workload) -> Workload:
    """The workload of one GPU with ZeRO: DeepSpeed's engine casts the whole model to bf16."""
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
    """Optimizer of one GPU's part of the weights; ``None`` where the workload has none."""
    held = torch.nn.ParameterList([master])
    return make_optimizer(computed_alone(workload), held, predicting=True)


class Partitions:
    """One GPU's part of gradients, fp32 weights and optimizer state, and the buffers for them.

    Args:
        models: The models with all their weights, which stage 3 divides.
        division: The division among GPUs.
        optimizer: Makes what updates this GPU's part of the weights, flat and in fp32.
        making: Says what the tensors are for that are made while its context lasts.
        host: Returns what is on the host; ``None`` where nothing is offloaded.
        device: Where stage 3 gathers weights; by default where they are.

    Attributes:
        phase: ``optimizer`` while it makes tensors that may be on the host, else empty.
    """

    def __init__(
        self,
        models: Sequence[torch.nn.Module],
        division: Division,
        optimizer: Callable[[torch.nn.Parameter], torch.optim.Optimizer | None],
        making: Callable[[Category], AbstractContextManager[None]],
        host: Callable[[], Host | None],
        device: str | None = None,
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
        self._parts = Parts([one.numel() for one in trained], division.gpus)
        self._own = self._parts.size
        self._largest = max(one.numel() for one in trained)
        overlaps = division.overlaps or division.stage == WEIGHTS
        self._reducing = torch.cpu.Stream() if overlaps else torch.cpu.current_stream()
        self._passes: Counter[torch.nn.Parameter] = Counter()
        self._quantized: list[tuple[int, torch.dtype]] = []
        self._gathering: Gathering | None = None
        if division.stage == WEIGHTS:
            self._own = sum(-(-one.numel() // division.gpus) for one in trained)
            if division.quantized:
                self._quantized = [(one.numel(), one.dtype) for one in weights]
            if division.gpus > 1 or division.weights_on_host:
                self._gathering = Gathering(models, division, making, host, device)
        self._device = torch.device("cpu")
        self._filled: list[torch.nn.Parameter] = []
        self._buffers: list[torch.Tensor] = []
        self._gradients: torch.Tensor | None = None
        self._taken: torch.Tensor | None = None
        self._is_ending = False
        self._master: torch.nn.Parameter | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._parameters: dict[torch.nn.Parameter, int] = {}

    def follow(self, model: torch.nn.Module) -> None:
        """Take the gradients of a model as they come."""
        trained = [one for one in model.parameters() if one.requires_grad]
        self._parameters = {one: number for number, one in enumerate(trained)}
        self._device = trained[0].device
        take = self._take_last if self._division.stage == 1 else self._take
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(take)
        if self._gathering is not None:
            model.register_forward_pre_hook(self._gathering.begin, prepend=True)

    def all_whole(self) -> AbstractContextManager[None]:
        """Have all weights on this GPU while the context lasts."""
        return nullcontext() if self._gathering is None else self._gathering.all_whole()

    @property
    def state(self) -> Mapping[Any, Any]:
        """Optimizer state, and the fp32 weights."""
        if self._master is None or self._optimizer is None:
            return {}
        kept = self._optimizer.state.get(self._master, {})
        return {self._master: {**kept, "master": self._master}}

    def prepare(self) -> None:
        """Make what stays: the fp32 weights, and for stage 3 the bucket and the gradients."""
        if self._master is not None:
            return
        self._divide_quantized()
        with self._making(Category.OPTIMIZER_STATE), self._perhaps_away():
            self._master = torch.nn.Parameter(self._empty(self._own, torch.float32))
        self._optimizer = self._make_optimizer(self._master)
        if (host := self._host()) is not None:
            self._away = self._offloaded(host, self._master)
        if self._division.stage == WEIGHTS:
            self._make_buffers()
            with self._making(Category.GRADIENTS):
                if self._away is None:
                    self._gradients = self._empty(self._own)

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
        """Reduce any remaining gradients, and update this GPU's part of the weights."""
        if self._master is None or self._optimizer is None:
            return
        if self._gathering is not None:
            self._gathering.release_all()
        if self._division.stage == 1:
            if not self._division.overlaps:
                for parameter in self._parameters:
                    self._take(parameter)
            self._reduce()
            self._passes.clear()
        for parameter in self._parameters:
            parameter.grad = None
        if self._away is not None:
            self._step_on_host(self._away, self._optimizer)
            return
        if self._gradients is None:
            return
        with self._making(Category.GRADIENTS):
            self._gradients[: self._counted].to(torch.float64)  # to add up their squares
            flat = self._gradients[: self._own].clone()
            self._master.grad = flat.to(torch.float32)
            del flat
        if self._division.stage != WEIGHTS:
            self._gradients = None
        self._optimizer.step()
        self._master.grad = None
        self._send_weights()

    @property
    def _counted(self) -> int:
        """Gradients of which the norm is computed at once: a GPU's part of the largest weight."""
        if self._division.stage == WEIGHTS:
            return -(-self._largest // self._division.gpus)
        return min(self._largest, self._own)

    def _step_on_host(self, away: HostPartition, optimizer: torch.optim.Optimizer) -> None:
        """Update the weights on the host, and copy them to the GPU unless they stay there too."""
        away.finish(self._parameters)
        with self._perhaps_away():
            optimizer.step()
        away.send_weights(self._parameters)
        self._send_weights()

    def _offloaded(self, host: Host, master: torch.nn.Parameter) -> HostPartition:
        """The host's part; stages 1 and 2 take room for the largest gradient on the GPU."""
        scratch = None
        if self._division.stage != WEIGHTS:
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
        """Gather the updated weights that each GPU has whole; without ZeRO 3 in their own places.

        Reducing half of them, in place too, sends as much as gathering all.
        """
        if self._division.stage == WEIGHTS:
            if self._gathering is not None:
                self._gathering.gather_persistent()
            return
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
        if self._division.stage > 1 and not self._is_ending:  # the epilogue of each backward pass
            Variable._execution_engine.queue_callback(self._reduce)
            self._is_ending = True
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

    def _reduce_bucket(self) -> None:
        """Reduce the gradients in the bucket; of stage 2, keep this GPU's part alone."""
        if not self._filled:
            return
        with torch.cpu.stream(self._reducing):  # of which CUDA's allocator has a pool of its own
            if self._division.stage == WEIGHTS:
                self._scatter_filled()
            else:
                self._reduce_filled()
        if self._division.stage > 1:
            for parameter in self._filled:
                parameter.grad = None
        self._filled.clear()

    def _reduce_filled(self) -> None:
        """Reduce the gradients, and keep those of weights that lie in this GPU's part, whole.

        What belongs to parts of several GPUs is flattened into a copy first.
        """
        gradients = [one.grad.view(-1) for one in self._filled if one.grad is not None]
        with self._making(Category.GRADIENTS):  # average_tensor and copy_grads_in_partition
            flat = self._flat(gradients)
            dist.all_reduce(flat)
            if self._taken is None and self._away is None:
                self._taken = self._empty(self._parts.whole)
        if self._taken is not None:
            part = flat[: flat.numel() // self._division.gpus]
            self._taken[: part.numel()].copy_(part)
        if self._away is not None:
            for gradient in gradients:
                self._away.take(gradient)

    def _scatter_filled(self) -> None:
        """Reduce the gradients, and add this GPU's part of each to what is there of them.

        They are copied first, unless there is only one of even size (``reduce_scatter_coalesced``).
        """
        gradients = [one.grad.view(-1) for one in self._filled if one.grad is not None]
        gpus = self._division.gpus
        parts = [-(-one.numel() // gpus) for one in gradients]
        missing = sum(parts) * gpus - sum(one.numel() for one in gradients)
        with self._making(Category.GRADIENTS):
            flat = gradients[0]
            if len(gradients) > 1 or missing:
                flat = torch.cat([*gradients, self._empty(missing)])
            gradients.clear()
            own = flat[: sum(parts)]
            reduce_scatter(own, flat)
        for shard in own.split(parts):
            if self._away is not None:
                self._away.take(shard)
            elif self._gradients is not None:
                self._gradients[: shard.numel()].add_(shard)

    def _flat(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        """Gradients in one tensor: the bucket itself, if all belong to one GPU's part."""
        if self._parts.holds(self._parameters[one] for one in self._filled):
            count = sum(one.numel() for one in gradients)
            return gradients[0] if len(gradients) == 1 else self._buffers[0][:count]
        return torch.cat(gradients)

    @torch.no_grad()
    def _reduce(self) -> None:
        """Flush the bucket, and add the reduced gradients to those of earlier micro-batches."""
        self._is_ending = False
        self._reduce_bucket()
        if self._division.stage == WEIGHTS:
            return
        self._buffers.clear()
        if self._gradients is None:
            self._gradients = self._taken
        elif self._taken is not None:
            self._gradients.add_(self._taken)
        self._taken = None

    def _make_buffers(self) -> None:
        """Make the bucket; a second one fills while the first is reduced, if that overlaps."""
        with self._making(Category.GRADIENTS):
            self._buffers = [
                self._empty(self._division.bucket_elements)
                for _ in range(1 + self._division.overlaps)
            ]

    def _empty(self, count: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        host = self._host() if self.phase == "optimizer" else None
        there = self._device if host is None or host.device is None else host.device
        return torch.empty(count, dtype=dtype or self._low, device=there)
