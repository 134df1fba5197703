"""Workloads that several GPUs share, and what one of them holds in a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from engine.allocator.caching import ALLOCATE
from engine.interface.workload import Workload
from engine.step.batches import make_batch
from engine.step.training import build_model, training_step
from engine.tests.shared import small_workload
from engine.tracing.recorder import MemoryRecorder
from engine.tracing.trace import Category, Trace

BATCH_SIZE = 3


def shared(model: str, parallelism: str, world_size: int = 4, **fields: Any) -> Workload:
    return small_workload(model, parallelism=parallelism, world_size=world_size, **fields)


def bytes_of(traced: Trace, category: Category) -> int:
    """Bytes of a category alive between steps."""
    alive: set[int] = set()
    for kind, tensor in traced.events:
        (alive.add if kind == ALLOCATE else alive.discard)(tensor)
    return sum(traced.sizes[tensor] for tensor in alive if traced.categories[tensor] is category)


def shapes(workload: Workload) -> list[torch.Size]:
    with torch.device("meta"):
        return [parameter.shape for parameter in build_model(workload).parameters()]


@contextmanager
def one_process() -> Iterator[None]:
    """A real process group with only this process."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def two_steps(recorder: MemoryRecorder, training: Any, workload: Workload) -> Trace:
    batch = make_batch(workload, BATCH_SIZE)
    for _ in range(2):
        recorder.record_step(lambda: training_step(training, batch))
    return recorder.trace


def large(sizes: list[int]) -> Counter[int]:
    """Sizes above a few bytes; smaller ones come from code that reads values of real tensors."""
    return Counter(size for size in sizes if size > 64)


def most_alive(traced: Trace, category: Category) -> int:
    alive = most = 0
    for kind, tensor in traced.events:
        if traced.categories[tensor] is category:
            alive += traced.sizes[tensor] if kind == ALLOCATE else -traced.sizes[tensor]
            most = max(most, alive)
    return most


def count(traced: Trace, name: str) -> int:
    return sum(operation.name == name for operation in traced.operations)


def padded(module: torch.nn.Module, world_size: int) -> int:
    """Bytes of a module's parameters, each padded to an equal share for every GPU."""
    shapes = [parameter.shape for parameter in module.parameters()]
    return sum(4 * world_size * -(-shape[0] // world_size) * prod(shape[1:]) for shape in shapes)
