"""Tensor and sequence parallelism by PyTorch's own ``parallelize_module``, on any tensors.

Which layers are split, and along which dimension, is what transformers says of each architecture
(``base_model_tp_plan`` of its config and ``_tp_plan`` of its class): the first product of a block
by columns, the second by rows, so that a block adds up once in forward and once in backward. All
other parameters are copies, and sharded tensors too, since optimizers take no mixture.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Placement,
    Replicate,
    Shard,
    distribute_module,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from ..core.errors import InvalidInput

_SEQUENCE = Shard(1)
_HEADS = Shard(2)
_FIELD = "tensor_parallel"


class _Copied(ParallelStyle):
    """A module whose parameters every GPU has, and whose input is whole or divided."""

    def __init__(self, layout: Placement) -> None:
        self._layout = layout

    def _apply(self, module: torch.nn.Module, device_mesh: DeviceMesh) -> torch.nn.Module:
        def whole(_: Any, inputs: Any, mesh: DeviceMesh) -> Any:
            first, *others = inputs
            return DTensor.from_local(first, mesh, [self._layout], run_check=False), *others

        def local(_: Any, output: Any, __: Any) -> Any:
            return output.to_local() if isinstance(output, DTensor) else output

        return distribute_module(module, device_mesh, None, whole, local)


def split(model: Any, mesh: DeviceMesh, *, along_sequence: bool) -> None:
    """Leave a model the part that one GPU of a tensor-parallel group holds.

    Args:
        model: A transformers model, on the host or on fake tensors. It is changed.
        mesh: The group, of one dimension.
        along_sequence: Whether what lies between the split layers is split too, along the sequence,
            as Korthikanti et al. 2022 do (https://arxiv.org/abs/2205.05198).

    Raises:
        InvalidInput: If transformers has no plan for the model, or one that is not known here.
    """
    plan = _plan(model)
    _check_divides(model.config, mesh.size())
    styles = {
        name: _style(kind, along_sequence)
        for name, module in model.named_modules()
        if (kind := plan.get(re.sub(r"\.\d+\.", ".*.", name)))
        or any(True for _ in module.parameters(recurse=False))
    }
    if along_sequence:
        styles |= _along_sequence(model, styles)
    parallelize_module(model, mesh, styles)


def _plan(model: Any) -> dict[str, str]:
    """Transformers' plan for a model's layers, by their names with ``*`` for a number."""
    base = getattr(getattr(model, "config", None), "base_model_tp_plan", None)
    if not base:
        raise InvalidInput({_FIELD: "transformers has no plan to split this model; leave it at 1"})
    prefix = f"{model.base_model_prefix}."
    return {f"{prefix}{name}": kind for name, kind in base.items()} | (type(model)._tp_plan or {})


def _check_divides(config: Any, count: int) -> None:
    """Refuse to split what does not come out even: heads, those of keys, the inner width."""
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value % count:
            message = f"enter a number that divides {name.replace('_', ' ')}, which is {value:,}"
            raise InvalidInput({_FIELD: message.replace("num ", "the number of ")})


def _style(kind: str | None, along_sequence: bool) -> ParallelStyle:
    match kind:
        case "colwise":
            return ColwiseParallel()
        case "rowwise" if along_sequence:
            return RowwiseParallel(output_layouts=_SEQUENCE)
        case "rowwise":
            return RowwiseParallel()
        case "colwise_rep" | "colwise_gather_output":
            layout = _SEQUENCE if along_sequence else Replicate()
            return ColwiseParallel(input_layouts=layout, output_layouts=Replicate())
        case "replicated_with_grad_allreduce":
            return _Copied(_HEADS)
        case None:
            return _Copied(Replicate())
    raise InvalidInput(
        {_FIELD: f"transformers splits this model by {kind}, which is not predicted"}
    )


def _along_sequence(
    model: torch.nn.Module, styles: dict[str, ParallelStyle]
) -> dict[str, ParallelStyle]:
    """Norms read a part of the sequence; attention and the network after it gather the whole."""
    found: dict[str, ParallelStyle] = {}
    part_of_a_block = re.compile(r".*\.layers\.\d+\.\w+")
    for name, module in model.named_modules():
        if part_of_a_block.fullmatch(name):
            if isinstance(styles.get(name), _Copied):
                found[name] = SequenceParallel()
            elif any(True for _ in module.parameters()):
                found[name] = _gathered(module)
        elif name.endswith(".norm"):
            found[name] = SequenceParallel(use_local_output=True)
        elif re.fullmatch(r".*\.layers\.0", name):
            found[name] = PrepareModuleInput(
                input_layouts=(Replicate(),),
                desired_input_layouts=(_SEQUENCE,),
                use_local_output=True,
            )
    return found


def _gathered(module: torch.nn.Module) -> ParallelStyle:
    if "attn" in type(module).__name__.lower() or "attention" in type(module).__name__.lower():
        return PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": _SEQUENCE},
            desired_input_kwarg_layouts={"hidden_states": Replicate()},
        )
    return PrepareModuleInput(input_layouts=(_SEQUENCE,), desired_input_layouts=(Replicate(),))
