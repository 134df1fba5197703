"""Expert parallelism by transformers' own plans, on any tensors.

GPUs of a group each have a part of every layer's experts, and send tokens to one another: once to
the experts and once back (``AllToAllEP`` of transformers, by ``base_model_ep_plan`` of a config).
How many go where depends on values. In a prediction each expert gets as many as any other, or those
of this GPU as many more as the workload says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.utils._python_dispatch import _disable_current_modes

from ..core.errors import InvalidInput
from ..interface.workload import Workload
from ..versions.patches import patched

try:
    from transformers.distributed import expert_parallel
except ImportError:  # releases without it
    expert_parallel = None

_FIELD = "expert_parallel"


def expert_mesh(workload: Workload, device: str) -> DeviceMesh:
    """The GPUs, as experts see them: which hold copies and shards, and which have other experts."""
    groups = workload.weight_sharers // workload.shard_count
    with unset_fake_temporarily():  # a mesh needs real values
        return init_device_mesh(
            device,
            (groups, workload.shard_count // workload.expert_parallel, workload.expert_parallel),
            mesh_dim_names=("replicate", "shard", "experts"),
        )


def divide_experts(model: Any, group: DeviceMesh, alone: DeviceMesh) -> list[Any]:
    """Leave a model this GPU's part of all experts.

    Args:
        model: A transformers model, on the host or on fake tensors. It is changed.
        group: The GPUs with parts of the same experts, of one dimension.
        alone: The GPUs with the same batch: this one.

    Returns:
        The modules that hold experts.

    Raises:
        InvalidInput: If transformers has no plan for the model, or it does not divide evenly.
    """
    plan = _plan(model)
    dispatching = [name for name, style in plan.items() if style == _DISPATCHING]
    holders = [model.get_submodule(name) for name in dispatching]
    for holder in holders:
        if holder.num_experts % group.size():
            message = f"enter a number that divides the {holder.num_experts:,} experts"
            raise InvalidInput({_FIELD: message})
    expert_parallel.apply_expert_parallelism(model, group, alone, plan, "all_to_all")
    return holders


_DISPATCHING = "ep_dispatch_experts"


def _plan(model: Any) -> dict[str, str]:
    """Transformers' plan for a model's modules and parameters, by their full names."""
    plan = getattr(model, "ep_plan", None)
    if expert_parallel is not None and plan:
        found: dict[str, str] = model._expand_parallel_plan(plan)
        if _DISPATCHING in found.values():
            return found
    message = "transformers has no plan to divide this model's experts; leave it at 1"
    raise InvalidInput({_FIELD: message})


@contextmanager
def routing_evenly(workload: Workload) -> Iterator[None]:
    """Send as many tokens to each expert as to any other, for as long as the context lasts.

    GPUs send one another the number of tokens. Here that is written in place of their messages.

    Args:
        workload: The workload, with this GPU's load relative to the mean one.
    """
    if workload.expert_parallel == 1 or expert_parallel is None:
        yield
        return
    implementation = expert_parallel.AllToAllEP
    dispatch = implementation._dispatch_tokens
    choices = 0

    def count_and_dispatch(self: Any, hidden: Any, chosen: torch.Tensor, weights: Any) -> Any:
        nonlocal choices
        choices = chosen.numel()
        return dispatch(self, hidden, chosen, weights)

    def tell(received: torch.Tensor, sent: torch.Tensor, group: Any) -> None:
        experts = sent.numel()
        ends = [choices * expert // experts for expert in range(experts + 1)]
        _write(sent, [end - begin for begin, end in pairwise(ends)])
        _write(received, [choices * workload.expert_load // 100 // experts] * experts)

    with (
        patched(
            implementation,
            "_dispatch_tokens",
            count_and_dispatch,
            why="the number of tokens to send is known here alone",
        ),
        patched(
            expert_parallel,
            "all_to_all_single",
            tell,
            why="how many tokens arrive depends on values; here they are spread evenly",
        ),
    ):
        yield


def _write(tensor: torch.Tensor, numbers: list[int]) -> None:
    """Write whole numbers into a tensor; a fake one then knows them."""
    with _disable_current_modes():
        real = torch.tensor(numbers).view(tensor.shape)
    if not isinstance(tensor, FakeTensor):
        tensor.copy_(real)
        return
    tensor.constant = real
    tensor.fake_mode.fake_tensor_converter.add_constant_storage_mapping(tensor)
