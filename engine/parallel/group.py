"""Several GPUs, predicted: what one of them holds when they share a training.

The first GPU of the group (rank 0, which never holds less than another) is traced in one process: a
process group that talks to nobody takes the place of NCCL.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from engine.errors import EngineError
from engine.parallel.buckets import Buckets
from engine.parallel.group_recorder import GroupRecorder
from engine.parallel.sharding import only_the_first, shard, told_apart
from engine.tracing.recorder import MemoryRecorder, Recorded, Temporaries
from engine.workload import Parallelism, Workload


class Alone:
    """One GPU, which shares with nobody."""

    def spread(self, model: torch.nn.Module) -> torch.nn.Module:
        """What this GPU holds of a model on fake tensors."""
        return model

    def recorder(
        self, training: Recorded, batch_size: int, temporaries: Temporaries | None
    ) -> MemoryRecorder:
        """A recorder of the training of what :meth:`spread` gave."""
        return MemoryRecorder(training, batch_size, temporaries)


class Together(Alone):
    """One of several GPUs that share a training.

    Args:
        workload: Says how many there are and how they share.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._buckets: Buckets | None = None
        self._recorder: GroupRecorder | None = None

    def spread(self, model: torch.nn.Module) -> torch.nn.Module:
        """The model with gradient buckets, or a shard of it."""
        if self._workload.parallelism is Parallelism.DDP:
            self._buckets = Buckets(model, self._workload, self.working_recorder)
            return model
        with only_the_first():
            return shard(model, self._workload)

    def recorder(
        self, training: Recorded, batch_size: int, temporaries: Temporaries | None
    ) -> MemoryRecorder:
        """A recorder that knows shards, and what is for parameters or gradients."""
        self._recorder = GroupRecorder(
            training, batch_size, temporaries, self._workload.world_size, self._before_step
        )
        return self._recorder

    def _before_step(self) -> None:
        if self._buckets is not None:
            self._buckets.get_ready()

    def close(self) -> None:
        """Let go of the model."""
        if self._buckets is not None:
            self._buckets.close()

    def working_recorder(self) -> GroupRecorder:
        """The recorder that was made."""
        if self._recorder is None:
            raise EngineError("a training among several GPUs runs under its recorder only")
        return self._recorder


@contextmanager
def among_gpus(workload: Workload) -> Iterator[Alone]:
    """Make this process one of the workload's GPUs, for as long as the context lasts.

    Enter it before fake tensors come in: a process group wants real ones.

    Raises:
        EngineError: If this process belongs to a process group already.
    """
    if workload.parallelism is Parallelism.NONE:
        yield Alone()
        return
    if dist.is_initialized():
        raise EngineError(
            "this process belongs to a torch.distributed process group already; several GPUs are "
            "predicted in a process of its own"
        )
    together = Together(workload)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=workload.world_size)
    try:
        with told_apart(together.working_recorder):
            yield together
    finally:
        together.close()
        dist.destroy_process_group()
