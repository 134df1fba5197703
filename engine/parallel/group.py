"""Process groups of GPUs that share a training run: a fake one to predict, a real one to measure.

For a prediction, the first GPU (rank 0, which never holds less than another) is traced in a single
process, with a fake process group in the place of NCCL. For a measurement, each member runs
PyTorch's own DistributedDataParallel or ``fully_shard``; the latter is set up by the function that
is traced.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._redistribute import _gen_transform_infos
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from ..core.choices import ZERO, Attention, Parallelism, Quantization
from ..core.errors import EngineError, InvalidInput
from ..interface.workload import Workload
from ..step.context import NOT_ON_A_CPU
from ..step.methods import trained_in
from ..step.pipelining import Stage, cut, load_schedule
from ..tracing.recorded import Recorded, Temporaries
from ..tracing.recorder import MemoryRecorder
from ..tracing.trace import Category
from .ddp import Buckets
from .experts import divide_experts, expert_mesh, routing_evenly
from .fsdp import (
    gathered_format,
    mesh_of,
    only_the_first,
    recording_shards,
    shard,
    shard_experts,
    shard_frozen,
)
from .group_recorder import GroupRecorder, own_part
from .offload import HostTensors, copying_shards
from .tensor import split
from .zero import Partitions, flat_optimizer
from .zero_division import Division


class Alone:
    """A single GPU.

    Args:
        workload: The workload, with its settings of offloading.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._host: HostTensors | None = None

    def spread(self, model: torch.nn.Module) -> torch.nn.Module:
        """This GPU's part of a model on fake tensors."""
        return model

    def optimizer(self, whole: torch.optim.Optimizer | None) -> torch.optim.Optimizer | None:
        """The optimizer of this GPU's weights, where one GPU alone would take the given one."""
        return whole

    def recorder(
        self, training: Recorded, batch_size: int, temporaries: Temporaries | None
    ) -> MemoryRecorder:
        """A recorder of the steps of what :meth:`spread` returned."""
        self._host = self._offloaded(training)
        if self._host is None:
            return MemoryRecorder(training, batch_size, temporaries)
        return GroupRecorder(training, batch_size, temporaries, lambda: None, host=self._host)

    def _offloaded(self, training: Recorded) -> HostTensors | None:
        """Offloaded activations or torchao's optimizer; ``None`` where both stay on the GPU."""
        if not (self._workload.activation_offload or self._workload.optimizer_offload):
            return None

        def phase() -> str:
            return "optimizer" if getattr(training.optimizer, "is_at_work", False) else ""

        return HostTensors([], phase, waits=True)

    def generating(self, model: torch.nn.Module) -> AbstractContextManager[None]:
        """The context in which what :meth:`spread` returned generates."""
        return nullcontext()

    def on_host(self) -> HostTensors | None:
        """Tensors on the host, once there is a recorder; ``None`` if nothing is there."""
        return self._host


class Together(Alone):
    """One of several GPUs that share a training run.

    Args:
        workload: The workload, with the number of GPUs and how they share it.
    """

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self._buckets: Buckets | None = None
        self._partitions: Partitions | None = None
        self._recorder: GroupRecorder | None = None

    def spread(self, model: torch.nn.Module) -> torch.nn.Module:
        """The model with gradient buckets, or a part of it."""
        if self._workload.parallelism is Parallelism.DDP:
            self._buckets = Buckets(
                model,
                self._workload.world_size,
                self._workload.gradient_as_bucket_view,
                lambda category: self.current_recorder().making(category),
            )
            return model
        if self._workload.parallelism in ZERO:
            self._partitions = Partitions(
                trained_in(model),
                Division.of(self._workload),
                partial(flat_optimizer, self._workload),
                lambda category: self.current_recorder().making(category),
                self.on_host,
            )
        with only_the_first():
            model = _divided(model, self._workload, "cpu")
        if self._partitions is not None:
            self._partitions.follow(model)
        return model

    def optimizer(self, whole: torch.optim.Optimizer | None) -> torch.optim.Optimizer | None:
        """The optimizer; with ZeRO one of this GPU's part of all weights, flat."""
        partitions: Any = self._partitions
        return whole if partitions is None else partitions

    def recorder(
        self, training: Recorded, batch_size: int, temporaries: Temporaries | None
    ) -> MemoryRecorder:
        """A recorder that knows shards, and which tensors are for parameters or gradients."""
        host = self._offloaded(training) if self._workload.activation_offload else None
        if self._workload.cpu_offload or self._workload.optimizer_offload:
            weights = training.model.parameters() if self._workload.cpu_offload else []
            shards = [part for one in weights if (part := own_part(one)) is not one]
            at_work = self._partitions or training
            host = HostTensors(shards, lambda: at_work.phase)
        self._recorder = GroupRecorder(
            training, batch_size, temporaries, self._before_step, host=host
        )
        return self._recorder

    def generating(self, model: torch.nn.Module) -> AbstractContextManager[None]:
        """Gather all weights with ZeRO 3, as TRL does (``ds3_gather_for_generation``)."""
        if self._partitions is None:
            return nullcontext()
        return self._partitions.all_whole()

    def _before_step(self) -> None:
        if self._buckets is not None:
            self._buckets.prepare()
        if self._partitions is not None:
            self._partitions.prepare()

    def close(self) -> None:
        if self._buckets is not None:
            self._buckets.close()

    def on_host(self) -> HostTensors | None:
        """Offloaded tensors; ``None`` if there are none, or while the model is being sharded."""
        return None if self._recorder is None else self._recorder.host

    def recorder_so_far(self) -> GroupRecorder | None:
        return self._recorder

    def current_recorder(self) -> GroupRecorder:
        if self._recorder is None:
            raise EngineError("several GPUs are traced under a recorder only")
        return self._recorder


@contextmanager
def among_gpus(workload: Workload, rank: int = 0) -> Iterator[Alone]:
    """Make this process one of the workload's GPUs while the context lasts.

    Enter it before fake tensors, since a process group needs real ones.

    Raises:
        EngineError: If this process belongs to a process group already.
    """
    if workload.world_size == 1 and workload.parallelism is Parallelism.NONE:
        yield Alone(workload)
        return
    if dist.is_initialized():
        raise EngineError(
            "this process already belongs to a torch.distributed process group; predict several "
            "GPUs in a separate process"
        )
    if workload.pipeline_parallel > 1:
        load_schedule()
    together = Together(workload)
    _forget_groups(rank)
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=workload.world_size)
    try:
        with (
            recording_shards(together.recorder_so_far),
            copying_shards(
                together.on_host,
                gradients=workload.cpu_offload and workload.parallelism is Parallelism.FSDP,
            ),
            routing_evenly(workload),
        ):
            yield together
    finally:
        together.close()
        dist.destroy_process_group()
        _forget_groups(rank)


def _forget_groups(rank: int) -> None:
    """Let PyTorch forget how it moved shards: it remembers the groups of the first GPU by name."""
    if rank:
        # torch.distributed.tensor.debug has a function for this, in some releases only.
        DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding.cache.cache_clear()
        getattr(torch._C, "_clear_DTensor_sharding_propagator_cache", lambda: None)()
        _gen_transform_infos.cache_clear()


_EMPTY = torch.ops.aten.empty.memory_format
_TIMEOUT = timedelta(seconds=120)
"""Timeout of members that wait for each other; their parent has a deadline for all of them."""


def join_group(device: str, rank: int, world_size: int, meeting_file: str) -> None:
    """Make this process a member of a group that shares a training run, until it exits.

    Members do not leave: one that has run out of memory would wait forever for those in the middle
    of a step.

    Args:
        device: ``cuda`` gives each member its own GPU, and NCCL; ``cpu`` a share of the cores, and
            Gloo.
        rank: The number of this member.
        world_size: The number of members.
        meeting_file: The file of the store through which they connect.

    Raises:
        InvalidInput: If the machine has too few GPUs, or its kind cannot share.
    """
    if device not in ("cuda", "cpu"):
        raise InvalidInput({"parallelism": f"{device} devices cannot share a training run"})
    own: torch.device | None = None
    if device == "cuda":
        if rank >= torch.cuda.device_count():
            raise InvalidInput(
                {"world_size": f"this machine has {torch.cuda.device_count()} GPU(s); use fewer"}
            )
        own = torch.device("cuda", rank)
        torch.cuda.set_device(own)
    else:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // world_size))
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        store=FileStore(meeting_file, world_size),
        rank=rank,
        world_size=world_size,
        timeout=_TIMEOUT,
        device_id=own,  # else NCCL allocates its memory only in the first step
    )


def slowest(seconds: float, device: str) -> float:
    """The longest time that a member of the group took for a step.

    Members must agree on it, or one would run more steps than another and wait for it.
    """
    longest = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return float(longest)


def place(model: torch.nn.Module, workload: Workload, device: str) -> torch.nn.Module:
    """Put this member's part of a model on its device.

    Args:
        model: On the host. It is changed.
        workload: The workload, with how it is shared.
        device: ``cuda``, ``mps`` or ``cpu``.

    Raises:
        InvalidInput: If the model or the optimizer cannot be sharded.
    """
    _check_measurable(workload, device)
    if workload.parallelism is Parallelism.DDP:
        views = workload.gradient_as_bucket_view
        return DistributedDataParallel(model.to(device), gradient_as_bucket_view=views)
    if workload.pipeline_parallel > 1:
        stage = workload.stage_of(dist.get_rank())
        model = cut(model, stage, workload.pipeline_parallel, workload.layers_of_stages)
    if workload.parallelism is not Parallelism.FSDP:  # block by block: it may be too large
        model = model.to(device)
    return _divided(model, workload, device)


def _check_measurable(workload: Workload, device: str) -> None:
    """Refuse what is predicted only, everywhere or on this kind of device."""
    offloads = [
        name for name in ("activation_offload", "optimizer_offload") if getattr(workload, name)
    ]
    if offloads and device == "cpu":
        message = "a CPU has no other memory to offload to; leave it off or choose a GPU"
        raise InvalidInput(dict.fromkeys(offloads, message))
    if workload.attention is Attention.FLEX and device == "cpu":
        message = "PyTorch has no backward of FlexAttention on a CPU; choose sdpa, or a GPU"
        raise InvalidInput({"attention": message})
    if workload.quantization is Quantization.INT8 and device == "cpu":
        message = "bitsandbytes trains 8-bit layers in another way on a CPU; choose nf4, or a GPU"
        raise InvalidInput({"quantization": message})
    if workload.context_parallel > 1 and device == "cpu":
        raise InvalidInput({"context_parallel": NOT_ON_A_CPU})
    if workload.parallelism in ZERO:
        message = "ZeRO is computed only; choose a catalogue GPU, or measure with fsdp"
        raise InvalidInput({"parallelism": message})
    if workload.cpu_offload:
        message = "offloading is predicted only; choose a catalogue GPU, or leave it off"
        raise InvalidInput({"cpu_offload": message})


def _divided(model: torch.nn.Module, workload: Workload, device: str) -> torch.nn.Module:
    """A model, or a stage of it, whose layers are split and then sharded among other GPUs."""
    if workload.world_size == 1 and workload.parallelism is Parallelism.NONE:
        return model
    mesh = mesh_of(workload, device)
    if workload.parallelism is Parallelism.ZERO_3:
        shard_frozen(model, workload, mesh)
    is_sharded = workload.parallelism is Parallelism.FSDP
    if workload.tensor_parallel > 1:
        split(model, mesh["tensor"], along_sequence=workload.sequence_parallel)
    if workload.pipeline_parallel > 1:
        format_passed = gathered_format(workload) if is_sharded else None
        model = Stage(model, mesh["stage"].get_group(), format_passed)
    if workload.expert_parallel > 1:
        among = expert_mesh(workload, device)
        shard_experts(divide_experts(model, among["experts"], mesh["tensor"]), workload, among)
    return shard(model, workload, mesh) if is_sharded else model


@contextmanager
def recording(
    training: Recorded, batch_size: int, workload: Workload | None, limit_bytes: int | None
) -> Iterator[MemoryRecorder]:
    """A recorder of a member's steps, while the context lasts.

    Args:
        training: The training run to record.
        batch_size: Samples per step and GPU.
        workload: The workload, with how it is shared; ``None`` for a custom step.
        limit_bytes: The most that tensors may take.
    """
    shared = Parallelism.NONE if workload is None else workload.parallelism
    is_split = workload is not None and workload.tensor_parallel > 1
    if workload is None or shared is Parallelism.FSDP or is_split:  # a custom step may shard too
        sharded = GroupRecorder(training, batch_size, None, lambda: None, limit_bytes)
        with recording_shards(lambda: sharded):
            yield sharded
    elif shared is Parallelism.DDP:
        wrapped = _WrappedRecorder(training, batch_size, limit_bytes=limit_bytes)
        yield wrapped
        names = wrapped.trace.modules
        names[:] = [name.removeprefix("module").removeprefix(".") for name in names]
    else:
        yield MemoryRecorder(training, batch_size, limit_bytes=limit_bytes)


class _WrappedRecorder(MemoryRecorder):
    """Records a model inside DistributedDataParallel, which names it ``module``."""

    def _category(self, phase: str, func: Any, args: tuple[Any, ...]) -> Category:
        """Empty tensors that the wrapper makes before the model runs are gradient buckets."""
        if func is _EMPTY and phase == "forward" and not self._modules.at_work():
            return Category.GRADIENTS
        return super()._category(phase, func, args)
