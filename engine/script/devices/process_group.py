"""Several GPUs that a script shares its training with: what it sees of ``torch.distributed``.

A script that ``torchrun`` starts is one of ``WORLD_SIZE`` processes. It is traced as the first of
them, or as the only one where that variable is not set: its process group answers at once, and
``DistributedDataParallel`` gets the gradient buckets of :mod:`engine.parallel.ddp`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from ...core.errors import NotPredictable
from ...parallel.ddp import Buckets
from ...tracing.trace import Category
from ...versions.patches import patched, taking_the_same
from .own_processes import processes_in_this_one

Making = Callable[[Category], AbstractContextManager[None]]


def world_size() -> int:
    """Number of processes that share the training run; 1 if nothing is said about it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def gpus_here() -> int:
    """Number of GPUs of the machine of these processes."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", str(world_size())))


def processes_joined() -> int:
    """Number of processes that share the training run, as far as this one has joined them."""
    return dist.get_world_size() if dist.is_initialized() else 1


class _Ended:
    """Processes that have been started and are over."""

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        return True


@contextmanager
def pretended_processes(making: Making) -> Iterator[None]:
    """Let code find other processes, for as long as the context lasts.

    Args:
        making: Says what the tensors are for that are made while its context lasts.
    """
    begin, processes = dist.init_process_group, world_size()
    opened: list[Buckets] = []

    def join(*args: Any, world_size: int = -1, **kwargs: Any) -> None:
        count = world_size if world_size > 0 else processes
        with _disable_current_modes():  # a process group needs real tensors
            begin("fake", store=FakeStore(), rank=0, world_size=count)

    def spawn(fn: Callable[..., Any], args: Iterable[Any], join: bool, **_: Any) -> _Ended | None:
        fn(0, *args)
        return None if join else _Ended()

    with ExitStack() as stack:
        stack.enter_context(processes_in_this_one())
        if "WORLD_SIZE" in os.environ:
            first = {**_FIRST, "LOCAL_WORLD_SIZE": str(processes)}
            stack.enter_context(patch.dict(os.environ, first | dict(os.environ)))
        for owner in (dist, dist.distributed_c10d):
            stack.enter_context(
                patched(
                    owner,
                    "init_process_group",
                    join,
                    why="the group is a fake one, of the number of processes asked about",
                )
            )
            stack.enter_context(
                patched(
                    owner, "is_nccl_available", lambda: True, why="builds for the CPU have no NCCL"
                )
            )
            for name, answer in _OBJECTS.items():
                same = taking_the_same(getattr(owner, name), answer)
                stack.enter_context(
                    patched(owner, name, same, why="other processes send what this one sends")
                )
        for name in ("spawn", "start_processes"):
            spawned = taking_the_same(getattr(torch.multiprocessing, name), spawn)
            stack.enter_context(
                patched(torch.multiprocessing, name, spawned, why="one process stands for all")
            )
        for name, method in _data_parallel(making, opened).items():
            stack.enter_context(
                patched(
                    DistributedDataParallel,
                    name,
                    method,
                    why="gradient buckets are those of the predicted group",
                )
            )
        joined = dist.is_initialized()
        try:
            yield
        finally:
            for buckets in opened:
                buckets.close()
            if dist.is_initialized() and not joined:
                dist.destroy_process_group()


def _gathered(into: list[Any] | None, mine: Any) -> None:
    """Let all processes have the object of the first."""
    if into is not None:
        into[:] = [mine] * len(into)


def _scattered(into: list[Any], all_of_them: list[Any] | None) -> None:
    if all_of_them:
        into[0] = all_of_them[0]


_OBJECTS: dict[str, Callable[..., None]] = {
    "all_gather_object": lambda object_list, obj, **_: _gathered(object_list, obj),
    "gather_object": lambda obj, object_gather_list, **_: _gathered(object_gather_list, obj),
    "broadcast_object_list": lambda **_: None,
    "scatter_object_list": lambda scatter_object_output_list, scatter_object_input_list, **_: (
        _scattered(scatter_object_output_list, scatter_object_input_list)
    ),
}
"""Functions by which processes send each other bytes, which fake tensors do not have."""

_FIRST = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}
"""Environment variables that ``torchrun`` sets for the first process."""


def wants_launcher(error: BaseException) -> bool:
    """Whether a script wants what ``torchrun`` sets, without having been started by it."""
    names = (*_FIRST, "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    is_theirs = isinstance(error, KeyError) and error.args[:1] in [(name,) for name in names]
    return is_theirs and "WORLD_SIZE" not in os.environ


def _data_parallel(making: Making, opened: list[Buckets]) -> dict[str, Any]:
    """Methods of ``DistributedDataParallel``, with buckets in place of its compiled reducer."""

    def init(
        self: Any,
        module: torch.nn.Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        **options: Any,
    ) -> None:
        torch.nn.Module.__init__(self)
        self.module = module
        self.dim, self.device_ids, self.output_device = dim, device_ids, output_device
        self.broadcast_buffers, self.static_graph = broadcast_buffers, static_graph
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.process_group = process_group or dist.distributed_c10d._get_default_group()
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._delay_all_reduce_params = []
        self._use_python_reducer = False
        size = dist.get_world_size(process_group)
        self.device = next(module.parameters()).device
        self._buckets = Buckets(
            module,
            size,
            gradient_as_bucket_view,
            making,
            bucket_cap_mb,
            find_unused_parameters and not static_graph,
        )
        opened.append(self._buckets)
        self._buckets.prepare()

    def forward(self: Any, *inputs: Any, **named: Any) -> Any:
        if torch.is_grad_enabled():
            self._buckets.reducing = self.require_backward_grad_sync
            if self._buckets.reducing:
                self._buckets.prepare()
        if self.device_ids:
            inputs, named = tree_map_only(
                torch.Tensor, lambda tensor: tensor.to(self.device), (inputs, named)
            )
        return self.module(*inputs, **named)

    def refuse_hook(*_: Any, **__: Any) -> Any:
        raise NotPredictable("DistributedDataParallel's communication hooks are not traced")

    return {"__init__": init, "forward": forward, "register_comm_hook": refuse_hook}
