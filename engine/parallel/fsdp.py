"""PyTorch's own ``fully_shard`` (FSDP2), on fake and on real tensors.

Memory is that of the real implementation: shards with their padding, unsharded parameters,
all-gather and reduce-scatter buffers, and when each is freed. References in Python decide that, on
the CPU as on CUDA (``record_stream`` is never used). The caching allocator has a pool for each CUDA
stream, so the recorder notes the stream in which a tensor is made.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.distributed.fsdp._fully_shard import _fsdp_param, _fsdp_param_group
from torch.distributed.fsdp._fully_shard._fsdp_collectives import foreach_reduce
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.tensor import DTensor, _op_schema
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import _disable_current_modes

from ..core.choices import Parallelism, Precision, ReduceDtype
from ..core.errors import InvalidInput
from ..interface.workload import Workload
from ..step.methods import Learner, trained_in
from ..step.quantizing import place_quantized
from ..tracing.trace import Category
from ..versions.patches import patched
from . import collectives  # noqa: F401  # so that collectives run on fake tensors
from .group_recorder import GroupRecorder

_VIEWS = "FSDP2-wrapped module .* returned a view tensor"
_MIXED = {Precision.BF16_MIXED: torch.bfloat16, Precision.FP16_MIXED: torch.float16}
_REDUCED = {ReduceDtype.FP32: torch.float32, ReduceDtype.BF16: torch.bfloat16}


def shard(model: torch.nn.Module, workload: Workload, mesh: DeviceMesh) -> torch.nn.Module:
    """Shard a model in the usual way: each repeated block by itself, the rest at the root.

    In mixed precision, blocks are gathered and gradients reduced in the lower precision, as Hugging
    Face Accelerate sets it up, unless the workload says otherwise. Gradients are reduced after
    every micro-batch. Of models that learn from answers, so is each that is trained.

    Args:
        model: On the host, or on fake tensors. It is changed.
        workload: The number of GPUs and the precision.
        mesh: As :func:`mesh_of` makes it.

    Raises:
        InvalidInput: If the model cannot be sharded.
    """
    options = _options(workload, mesh)
    try:
        for trained in trained_in(model):
            for module in (*repeated_blocks(trained), trained):
                _check_formats(module)
                place_quantized(module, mesh.device_type)
                fully_shard(module, **options)
    except ValueError as error:  # a parameter without dimensions, as CLIP has
        raise InvalidInput({"parallelism": f"{str(error).rstrip('.')}, or choose ddp"}) from error
    shard_frozen(model, workload, mesh)
    return model


def shard_frozen(model: torch.nn.Module, workload: Workload, mesh: DeviceMesh) -> None:
    """Shard what a model never trains, of those that learn from answers."""
    for frozen in model.frozen if isinstance(model, Learner) else ():
        _shard_frozen(frozen, workload, mesh)


def _shard_frozen(frozen: torch.nn.Module, workload: Workload, mesh: DeviceMesh) -> None:
    """Shard what is never trained as TRL 1.16 does, or put a whole copy on each GPU.

    With FSDP2 a reference is one group, all of which is gathered while it reads
    (``prepare_fsdp`` in ``models/utils.py``), and a teacher stays whole (``prepare_model`` of
    Accelerate with ``evaluation_mode``). ZeRO 3 divides a reference or a reward model as it does
    the policy (``prepare_deepspeed``), and nothing of it stays gathered.
    """
    options = _options(workload, mesh)
    options["reshard_after_forward"] = workload.reshard_after_forward is not False
    if workload.parallelism is Parallelism.ZERO_3:
        for block in repeated_blocks(frozen):
            fully_shard(block, **options)
        fully_shard(frozen, **options)
    elif workload.teacher is None:
        fully_shard(frozen, **options)
    else:
        frozen.to(mesh.device_type)


def shard_experts(holders: Sequence[Any], workload: Workload, mesh: DeviceMesh) -> None:
    """Shard modules that hold experts, each by itself; before the model that they are a part of.

    Their gradients are divided by the batches of all GPUs, whose tokens they saw, as transformers
    does (``apply_fully_sharded_data_parallelism``).

    Args:
        holders: The modules. They are changed.
        workload: As for :func:`shard`.
        mesh: The GPUs with the same experts, as for :func:`shard`.
    """
    for holder in holders:
        fully_shard(holder, **_options(workload, mesh))
        holder.set_gradient_divide_factor(float(workload.weight_sharers))
        if mesh["shard"].size() > 1:
            holder.set_force_sum_reduction_for_comms(True)


def _options(workload: Workload, mesh: DeviceMesh) -> dict[str, Any]:
    low = gathered_format(workload)
    reduced = _REDUCED.get(workload.reduce_dtype, low)
    options: dict[str, Any] = {
        "mesh": mesh[_data_axes(workload)],
        "mp_policy": MixedPrecisionPolicy(param_dtype=low, reduce_dtype=reduced),
    }
    if workload.reshard_after_forward is not None:  # before 2.8, leaving it out is the only default
        options["reshard_after_forward"] = workload.reshard_after_forward
    if workload.cpu_offload:
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=mesh.device_type != "cpu")
    return options


def gathered_format(workload: Workload) -> torch.dtype | None:
    """The number format of gathered weights; ``None`` where it is that of the shards."""
    return _MIXED.get(workload.precision)


def mesh_of(workload: Workload, device: str) -> DeviceMesh:
    """The GPUs: which have a stage, which hold copies and shards of it, and which split layers."""
    groups = workload.weight_sharers // workload.shard_count
    with unset_fake_temporarily():  # a mesh needs real values
        return init_device_mesh(
            device,
            (
                workload.pipeline_parallel,
                groups,
                workload.shard_count,
                workload.tensor_parallel,
            ),
            mesh_dim_names=("stage", "replicate", "shard", "tensor"),
        )


def _data_axes(workload: Workload) -> tuple[str, ...]:
    return ("shard",) if workload.shard_size is None else ("replicate", "shard")


def _check_formats(module: torch.nn.Module) -> None:
    """Refuse what FSDP refuses in its first step: gradients of one group in several formats."""
    trained = {
        parameter.dtype
        for parameter in module.parameters()
        if parameter.requires_grad and not isinstance(parameter, DTensor)
    }
    if len(trained) > 1:
        message = (
            "FSDP reduces gradients of one number format, and here adapters are trained in fp32 "
            "and other weights in bf16; choose bf16-mixed"
        )
        raise InvalidInput({"precision": message})


@contextmanager
def only_the_first() -> Iterator[None]:
    """Let :func:`shard` make only the first GPU's shards: those of 1,024 GPUs take a minute."""
    with (
        patched(
            _fsdp_param,
            "_chunk_with_empty",
            _first_chunk,
            why="the shards of 1,024 GPUs take a minute; only the first is needed",
        ),
        patched(
            DeviceMesh,
            "_concatenate",
            _concatenate,
            why="as for shards: it makes those of all GPUs",
            is_missing_in_some=True,
        ),
    ):
        yield


def repeated_blocks(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The layers that a model repeats: all modules of the class in its longest list.

    Raises:
        InvalidInput: If the model has no list of modules.
    """
    lists = [
        module for module in model.modules() if isinstance(module, torch.nn.ModuleList) and module
    ]
    if not lists:
        raise InvalidInput({"parallelism": "the model has no repeated blocks; choose ddp"})
    kind = type(max(lists, key=len)[0])
    return [module for module in model.modules() if type(module) is kind]


@contextmanager
def recording_shards(recorder: Callable[[], GroupRecorder | None]) -> Iterator[None]:
    """Let the recorder see what FSDP makes for parameters and for gradients, and what it resizes.

    FSDP frees unsharded parameters by emptying their storages, which bypasses the dispatcher. And
    to find the shape of a sharded result, PyTorch computes it on fakes of whole tensors, which must
    not be recorded.

    Args:
        recorder: Returns the current recorder; ``None`` while there is none.
    """
    resize = torch.UntypedStorage.resize_

    def resize_and_record(storage: torch.UntypedStorage, size: int) -> Any:
        resized = resize(storage, size)
        if (current := recorder()) is not None:
            current.resized(storage, size)
        return resized

    def making(category: Category, function: Callable[..., Any]) -> Callable[..., Any]:
        def make(*args: Any, **kwargs: Any) -> Any:
            current = recorder()
            with nullcontext() if current is None else current.making(category):
                return function(*args, **kwargs)

        return make

    propagate = ShardingPropagator._propagate_tensor_meta_non_cached

    def propagate_unseen(*args: Any) -> Any:
        with _disable_current_modes():
            return propagate(*args)

    post_backward = FSDPParamGroup.post_backward

    def see_gradients_first(group: Any, *unused: Any) -> None:
        for parameter in group.fsdp_params:
            gradient = getattr(getattr(parameter, "_unsharded_param", None), "grad", None)
            if gradient is not None and (current := recorder()) is not None:
                current.sort_gradient(gradient, parameter.sharded_param)
        post_backward(group, *unused)

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message=_VIEWS)  # keys and values, which nothing changes
        for owner, name, stand_in in (
            (torch.UntypedStorage, "resize_", resize_and_record),
            (FSDPParamGroup, "unshard", making(Category.PARAMETERS, FSDPParamGroup.unshard)),
            (
                FSDPParamGroup,
                "wait_for_unshard",
                making(Category.PARAMETERS, FSDPParamGroup.wait_for_unshard),
            ),
            (ShardingPropagator, "_propagate_tensor_meta_non_cached", propagate_unseen),
            (_op_schema, "_rebuild_tensor_from_dtensor_meta", _whole_tensor),
            (FSDPParamGroup, "post_backward", see_gradients_first),
            (
                _fsdp_param_group,
                "foreach_reduce",
                making(Category.GRADIENTS, foreach_reduce),
            ),
        ):
            stack.enter_context(
                patched(
                    owner,
                    name,
                    stand_in,
                    why="a recorder has to know shards and whole weights when they are made",
                )
            )
        yield


def _whole_tensor(spec: DTensorSpec) -> torch.Tensor:
    """A fake of a whole sharded tensor. PyTorch would make it on a GPU, which need not be there."""
    like = spec.tensor_meta
    if like is None:
        raise AssertionError("DTensorSpec does not contain tensor_meta.")
    return torch.empty_strided(like.shape, like.stride, dtype=like.dtype, device="cpu")


def _concatenate(meshes: list[DeviceMesh]) -> DeviceMesh:
    """A mesh of the axes of several, which needs real values like every mesh."""
    with unset_fake_temporarily():
        made: DeviceMesh = _CONCATENATE(meshes)
        return made


_CONCATENATE: Any = getattr(DeviceMesh, "_concatenate", None)  # see the list of private names


def _first_chunk(tensor: torch.Tensor, count: int, dim: int) -> list[torch.Tensor]:
    """The chunk of the first GPU, which no other exceeds, in the place of each GPU's chunk."""
    return [tensor.narrow(dim, 0, -(-tensor.size(dim) // count))] * count
