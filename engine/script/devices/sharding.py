"""Models that a script shards by itself: PyTorch's own ``fully_shard`` (FSDP2), on fake tensors.

It is called by the script and runs as it is, among processes that answer at once
(:mod:`.process_group`), and :mod:`engine.parallel.fsdp` records it as it does for the engine's own
models. What is sharded in other ways is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

import torch
import torch.distributed.tensor.parallel  # so that all that is refused below has been imported
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.distributed.tensor import DTensor, _dispatch, _random
from torch.utils._python_dispatch import _disable_current_modes

from ...core.errors import NotPredictable
from ...parallel.fsdp import only_the_first, recording_shards
from ...parallel.group_recorder import GroupRecorder
from ...versions.loaded_modules import namespaces
from ...versions.patches import Change, patched, patched_names
from .cuda_device import CPU

_TENSOR_PARALLEL = ("distribute_tensor", "distribute_module", "parallelize_module")


@contextmanager
def followed_shards(recorder: Callable[[], GroupRecorder | None]) -> Iterator[None]:
    """Follow ``fully_shard``, and refuse other ways to shard, for as long as the context lasts.

    Args:
        recorder: Returns the current recorder; ``None`` while there is none.
    """
    make_mesh, make_parameter = DeviceMesh.__init__, FSDPParam.__init__
    make_wrapper = torch.Tensor._make_wrapper_subclass

    def mesh_of_numbers(mesh: DeviceMesh, /, *args: Any, **kwargs: Any) -> None:
        with _disable_current_modes():  # it reads the numbers of the processes
            make_mesh(mesh, *args, **kwargs)

    def checked_parameter(
        self: FSDPParam, param: torch.nn.Parameter, *args: Any, **kwargs: Any
    ) -> None:
        if any(isinstance(value, CPUOffloadPolicy) for value in (*args, *kwargs.values())):
            _refuse("CPUOffloadPolicy (shards on the host)", "leave the policy out")
        if isinstance(param, DTensor):
            _refuse_tensor_parallel()
        make_parameter(self, param, *args, **kwargs)

    def wrapper_like_its_shard(kind: type[torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
        if issubclass(kind, DTensor):
            kwargs["device"] = CPU  # to C++, which compares it with a gradient's
        return make_wrapper(kind, *args, **kwargs)

    with ExitStack() as stack:
        stack.enter_context(only_the_first())
        stack.enter_context(recording_shards(recorder))
        for owner, name, stand_in in (
            (DeviceMesh, "__init__", mesh_of_numbers),
            (FSDPParam, "__init__", checked_parameter),
            (torch.Tensor, "_make_wrapper_subclass", wrapper_like_its_shard),  # before 2.10
            (_random, "_rng_tracker", None),  # it would read the state of a random generator
            (_random, "is_rng_supported_mesh", lambda mesh: False),
            (_dispatch, "is_rng_supported_mesh", lambda mesh: False),
            (FullyShardedDataParallel, "__init__", _refuse_old),
            (DTensor, "from_local", _refuse_tensor_parallel),
        ):
            stack.enter_context(
                patched(
                    owner,
                    name,
                    stand_in,
                    why="a script's own shards are followed, or refused",
                )
            )
        stack.enter_context(
            patched_names(
                _tensor_parallel(), why="tensor parallelism of a script is refused, not followed"
            )
        )
        yield


def _tensor_parallel() -> Iterator[Change]:
    """Changes that refuse tensor parallelism, wherever PyTorch has imported it."""
    for names in namespaces("torch.distributed"):
        for name in _TENSOR_PARALLEL:
            if name in names:
                yield names, name, _refuse_tensor_parallel


_INSTEAD_OF_OLD = (
    "use fully_shard (FSDP2), or predict the model as sharded so: memorymark predict MODEL "
    "--parallelism fsdp"
)


def _refuse_old(*_: Any, **__: Any) -> NoReturn:
    _refuse("FullyShardedDataParallel (FSDP1)", _INSTEAD_OF_OLD)


def _refuse_tensor_parallel(*_: Any, **__: Any) -> NoReturn:
    _refuse("tensor parallelism", "shard with fully_shard alone")


def _refuse(what: str, instead: str) -> NoReturn:
    raise NotPredictable(f"{what} is not traced; {instead}")
