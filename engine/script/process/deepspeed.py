"""A script that trains with DeepSpeed: what it sees of it on fake tensors.

DeepSpeed does not run on fake tensors. In the place of its engine stands one that keeps and moves
what :mod:`engine.parallel.zero` computes from DeepSpeed's source, for the script's own model,
optimizer and config. What that does not know is refused, with the command that describes the same
training run where there is one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from shlex import join
from typing import Any, NoReturn, cast

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from ...core.errors import NotPredictable
from ...interface.request import as_flags
from ...parallel.zero import Partitions
from ...versions.loaded_modules import namespace, namespaces
from ...versions.patches import patch_names_for_good
from ..devices.process_group import world_size
from ..machine import Machine
from ..on_import import when_imported
from .deepspeed_config import (
    batch_sizes,
    division_of,
    fields_of,
    not_followed,
    number_format,
    read,
    updates_on_host,
)


def follow_deepspeed(machine: Machine) -> None:
    """Put the engine in its place as soon as a script imports DeepSpeed.

    Nothing of it can be undone; for a process that traces a script.

    Args:
        machine: The machine that the script runs on. It learns that a part of the trace is
            computed.
    """
    when_imported({"deepspeed": partial(_take_its_place, machine)})


def _take_its_place(machine: Machine) -> None:
    deepspeed = namespace("deepspeed")
    stand_ins: dict[str, Any] = {
        "DeepSpeedEngine": Engine,
        "FusedAdam": FusedAdam,
        "DeepSpeedCPUAdam": FusedAdam,
        "Init": _WholeWeights,
        "GatheredParameters": _WholeWeights,
    }
    if "init_distributed" in deepspeed:
        stand_ins["init_distributed"] = _without_mpi(deepspeed["init_distributed"])
    patch_names_for_good(
        (
            (names, name, made)
            for names in namespaces("deepspeed")
            for name, made in stand_ins.items()
            if name in names
        ),
        why="its engine and kernels are for GPUs; ours shards and updates as they do",
    )
    patch_names_for_good(
        [(deepspeed, "initialize", partial(_initialize, machine))],
        why="it makes the engine, of which ours takes the place",
    )


def _without_mpi(join: Callable[..., None]) -> Callable[..., None]:
    """DeepSpeed's way to join other processes, which looks for MPI where no launcher is."""

    def joined(*given: Any, **named: Any) -> None:
        join(*given, **{**named, "auto_mpi_discovery": False})

    return joined


class ScriptHost:
    """The host of a script's machine, which knows where each tensor is."""

    device: torch.device | None = torch.device("cpu")

    def copy(
        self, source: torch.Tensor, target: torch.Tensor, place: str, *, waits: bool = False
    ) -> None:
        """As :class:`engine.parallel.offload.Host` says."""
        target.copy_(source)

    def copied(
        self, tensor: torch.Tensor, place: str, *, waits: bool | None = None
    ) -> torch.Tensor:
        """As :class:`engine.parallel.offload.Host` says."""
        return tensor.to("cpu" if place == "host" else "cuda", copy=True)


class _WholeWeights(nullcontext[None]):
    """Stands for contexts that divide weights, or gather them, while they last."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


class FusedAdam(torch.optim.AdamW):
    """Stands for DeepSpeed's kernels, which update in place as PyTorch's do.

    Args:
        parameters: The parameters that it updates.
        adam_w_mode: Changes values only.
        bias_correction: As above.
        set_grad_none: As above. **options: As for AdamW.
    """

    def __init__(
        self,
        parameters: Any,
        *,
        adam_w_mode: bool = True,
        bias_correction: bool = True,
        set_grad_none: bool = True,
        **options: Any,
    ) -> None:
        for unlike in ("torch_adam", "fused", "amsgrad", "adamw_mode", "fp32_optimizer_states"):
            options.pop(unlike, None)
        super().__init__(parameters, fused=True, **options)


def _initialize(
    machine: Machine,
    args: Any = None,
    model: torch.nn.Module | None = None,
    optimizer: Any = None,
    model_parameters: Any = None,
    training_data: Any = None,
    lr_scheduler: Any = None,
    distributed_port: Any = None,
    mpu: Any = None,
    dist_init_required: Any = None,
    collate_fn: Any = None,
    config: Any = None,
    mesh_param: Any = None,
    config_params: Any = None,
) -> tuple[Engine, torch.optim.Optimizer, DataLoader[Any] | None, Any]:
    """``deepspeed.initialize``: an engine, and the optimizer, loader and scheduler it uses."""
    settings = read(config or config_params or getattr(args, "deepspeed_config", None))
    if model is None or type(model).__name__ == "PipelineModule":
        _refuse("DeepSpeed's PipelineModule is not traced", settings)
    if unknown := list(not_followed(settings)):
        _refuse(f"what {', '.join(unknown)} does is not computed for a script", settings)
    if not dist.is_initialized():
        dist.init_process_group("nccl")
    division = division_of(settings, dist.get_world_size())
    machine.computes(
        f"ZeRO {division.stage} is computed from DeepSpeed 0.19's source, with this script's "
        f"config: buckets of {division.bucket_elements:,} gradients, "
        f"{division.gpus:,} {'GPU' if division.gpus == 1 else 'GPUs'}. DeepSpeed itself was not "
        "run."
    )
    host = None
    if updates_on_host(settings):
        host = ScriptHost()
        machine.note(
            "The optimizer runs on the host. Step times leave out its work there, and count what "
            "is copied as if it stayed on the GPU, so a real step takes longer."
        )
    model = _cast(model, number_format(settings))
    given = model_parameters if model_parameters is not None else model.parameters()
    made = _optimizer(optimizer, given, settings)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    partitions = Partitions(
        [model], division, partial(_take_over, made), machine.making, lambda: host, device
    )
    model.to(device)
    partitions.follow(model)
    partitions.prepare()
    scheduler = _scheduler(lr_scheduler, made, settings)
    loader = None
    if training_data is not None:
        size, _ = batch_sizes(settings, division.gpus)
        loader = DataLoader(training_data, batch_size=size, shuffle=True, collate_fn=collate_fn)
    return Engine(model, partitions, made, scheduler, settings), made, loader, scheduler


def _cast(model: torch.nn.Module, weights: torch.dtype | None) -> torch.nn.Module:
    return model if weights is None else model.to(weights)


def _optimizer(
    given: Any, parameters: Iterable[Any], settings: Mapping[str, Any]
) -> torch.optim.Optimizer:
    """The script's own optimizer, or the one that the config names."""
    if given is not None:
        made = given if isinstance(given, torch.optim.Optimizer) else given(parameters)
        if isinstance(made, torch.optim.Optimizer):
            return made
        _refuse(f"{type(made).__name__} is not an optimizer of PyTorch", settings)
    named = settings.get("optimizer")
    if not named:
        _refuse("a config without an optimizer, and none given, trains nothing", settings)
    kind, options = str(named["type"]), dict(named.get("params") or {})
    trained = [one for one in parameters if isinstance(one, dict) or one.requires_grad]
    if kind.lower() in ("adam", "adamw"):
        return FusedAdam(trained, **options)
    maker = getattr(torch.optim, kind, None)
    if maker is None:
        _refuse(f"DeepSpeed's {kind} is not traced; use AdamW", settings)
    return cast(torch.optim.Optimizer, maker(trained, **options))


def _scheduler(given: Any, optimizer: torch.optim.Optimizer, settings: Mapping[str, Any]) -> Any:
    """The script's own scheduler of the learning rate, or the one that the config names."""
    if given is not None:
        return given(optimizer) if callable(given) else given
    named = settings.get("scheduler")
    if not named:
        return None
    schedules = sys.modules["deepspeed.runtime.lr_schedules"]
    return getattr(schedules, named["type"])(optimizer, **(named.get("params") or {}))


def _take_over(
    optimizer: torch.optim.Optimizer, master: torch.nn.Parameter
) -> torch.optim.Optimizer:
    """Let an optimizer update flat weights in the place of its own, as DeepSpeed does."""
    optimizer.state.clear()
    for group in optimizer.param_groups:
        group["params"] = []
    optimizer.param_groups[0]["params"] = [master]
    return optimizer


def _refuse(why: str, settings: Mapping[str, Any]) -> NoReturn:
    fields = fields_of(settings, world_size())
    words = join(["memorymark", "analyze", "MODEL", *as_flags(fields)])
    raise NotPredictable(
        f"{why}. Describe the same training run: {words} "
        "(the name of a preset or of a model on the Hub in place of MODEL)"
    )


class Engine(torch.nn.Module):
    """Stands for ``DeepSpeedEngine``; what it does not have itself is its model's.

    Args:
        module: The model, on the GPU.
        partitions: The partitions that ZeRO keeps.
        optimizer: Updates the model.
        scheduler: Scheduler of the learning rate, called after each step; may be ``None``.
        settings: DeepSpeed's config.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        partitions: Partitions,
        optimizer: torch.optim.Optimizer,
        scheduler: Any,
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.module = module
        self.optimizer = optimizer
        self.lr_scheduler = scheduler
        self.config = settings
        self.device = next(module.parameters()).device
        self.local_rank = self.global_rank = 0
        self.world_size = self.dp_world_size = dist.get_world_size()
        self.micro_steps = self.global_steps = 0
        self._partitions = partitions
        self._boundary: bool | None = None

    def __getattr__(self, name: str) -> Any:
        """A part of the engine, or else the model's attribute."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":
                raise
            return getattr(self.module, name)

    def forward(self, *given: Any, **named: Any) -> Any:
        """Run the model."""
        self._partitions.prepare()
        return self.module(*given, **named)

    def backward(self, loss: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """Run the backward pass of one micro-batch."""
        (loss / self.gradient_accumulation_steps()).backward()
        return loss

    def step(self, *_: Any, **__: Any) -> None:
        """Update the weights after the last micro-batch."""
        if self.is_gradient_accumulation_boundary():
            self._partitions.step()
            self.global_steps += 1
            if self.lr_scheduler is not None:
                self.lr_scheduler.step()
        self.micro_steps += 1

    def is_gradient_accumulation_boundary(self) -> bool:
        """Whether this micro-batch is the last of a step."""
        if self._boundary is not None:
            return self._boundary
        return (self.micro_steps + 1) % self.gradient_accumulation_steps() == 0

    def set_gradient_accumulation_boundary(self, is_boundary: bool) -> None:
        """Say whether this micro-batch is the last of a step."""
        self._boundary = is_boundary

    def gradient_accumulation_steps(self) -> int:
        return batch_sizes(self.config, self.world_size)[1]

    def train_micro_batch_size_per_gpu(self) -> int:
        return batch_sizes(self.config, self.world_size)[0]

    def train_batch_size(self) -> int:
        size, micro_batches = batch_sizes(self.config, self.world_size)
        return size * micro_batches * self.world_size

    def zero_optimization_stage(self) -> int:
        return int(self.config["zero_optimization"]["stage"])

    def zero_optimization_partition_weights(self) -> bool:
        return self.zero_optimization_stage() == 3

    def bfloat16_enabled(self) -> bool:
        return number_format(self.config) is torch.bfloat16

    def fp16_enabled(self) -> bool:
        return number_format(self.config) is torch.float16

    def get_global_grad_norm(self) -> float:
        """A placeholder: nothing is computed."""
        return 1.0

    def get_lr(self) -> list[Any]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing: the engine does so itself after each step."""

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Add up gradients without reducing them."""
        yield

    def save_checkpoint(self, *_: Any, **__: Any) -> bool:
        """Nothing: what a script writes is not kept."""
        return True

    save_16bit_model = save_checkpoint

    def destroy(self) -> None:
        """Nothing is left to free."""
