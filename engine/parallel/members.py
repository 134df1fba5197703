"""Several GPUs, measured: a real process group, and what each of its members runs.

What a member holds is made by PyTorch's own DistributedDataParallel or ``fully_shard``; the latter
is set up by the very function that is traced for a prediction.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore
from torch.nn.parallel import DistributedDataParallel

from engine.errors import InvalidInput
from engine.parallel.group_recorder import GroupRecorder
from engine.parallel.sharding import shard, told_apart
from engine.tracing.recorder import MemoryRecorder, Recorded
from engine.tracing.trace import Category
from engine.workload import Parallelism, Workload

_EMPTY = torch.ops.aten.empty.memory_format
_PATIENCE = timedelta(seconds=120)
"""How long a member waits for another; whoever started them has a deadline for all."""


def join_group(device: str, rank: int, world_size: int, meeting_file: str) -> None:
    """Make this process one of those that share a training, for the rest of its life.

    Nobody leaves: a member that has run out of memory would wait for ever for those that are still
    in the middle of a step.

    Args:
        device: ``cuda`` gives each member a GPU of its own, and NCCL; ``cpu`` a share of the
            cores, and Gloo.
        rank: This one's number.
        world_size: How many there are.
        meeting_file: Where they find each other.

    Raises:
        InvalidInput: If the machine has too few GPUs, or its kind cannot share.
    """
    if device not in ("cuda", "cpu"):
        raise InvalidInput({"parallelism": f"{device} devices cannot share a training"})
    own: torch.device | None = None
    if device == "cuda":
        if rank >= torch.cuda.device_count():
            raise InvalidInput(
                {"world_size": f"this machine has {torch.cuda.device_count()} GPU(s); ask for less"}
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
        timeout=_PATIENCE,
        device_id=own,  # else NCCL would take its memory only in the first step
    )


def slowest(seconds: float, device: str) -> float:
    """The longest of the times that the members of a group took for a step.

    They have to agree, or one would run a step more than another and wait for it.
    """
    longest = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return float(longest)


def place(model: torch.nn.Module, workload: Workload, device: str) -> torch.nn.Module:
    """Put what this member holds of a model on its device.

    Args:
        model: On the host. It is changed.
        workload: Says how it is shared.
        device: ``cuda``, ``mps`` or ``cpu``.

    Raises:
        InvalidInput: If the model or the optimizer cannot be sharded.
    """
    match workload.parallelism:
        case Parallelism.DDP:
            views = workload.gradient_as_bucket_view
            return DistributedDataParallel(model.to(device), gradient_as_bucket_view=views)
        case Parallelism.FSDP:  # moves each block by itself: the whole may be too large
            return shard(model, workload, device)
    return model.to(device)


@contextmanager
def recording(
    training: Recorded, batch_size: int, workload: Workload | None, limit_bytes: int | None
) -> Iterator[MemoryRecorder]:
    """A recorder of a member's steps, for as long as the context lasts.

    Args:
        training: What is recorded.
        batch_size: Samples per step and GPU.
        workload: Says how it is shared; ``None`` for a person's own code.
        limit_bytes: The most that tensors may take.
    """
    shared = Parallelism.NONE if workload is None else workload.parallelism
    if workload is not None and shared is Parallelism.FSDP:
        sharded = GroupRecorder(
            training, batch_size, None, workload.world_size, lambda: None, limit_bytes
        )
        with told_apart(lambda: sharded):
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
        """What the wrapper itself makes empty, before the model runs, are gradient buckets."""
        if func is _EMPTY and phase == "forward" and not self._modules.at_work():
            return Category.GRADIENTS
        return super()._category(phase, func, args)
