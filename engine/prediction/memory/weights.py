"""Memory of a model's weights, before a step of it is traced, and GPUs that would hold them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from ...core.choices import Precision, Quantization
from ...core.errors import DoesNotFit, InvalidInput
from ...core.sizes import gib
from ...gpus import GPUS, Gpu
from ...interface.workload import Workload
from ...models.tasks import Task
from ...parallel.zero import computed_alone
from ...step.building import new_model
from ...step.methods import Learner, trained_in
from ...step.training import build_model
from ...traces.tracer import meta_model
from .host_memory import Weights


def weight_bytes(workload: Workload) -> int:
    """Bytes of a model's weights on a GPU, with adapters and quantization.

    It is built, on the meta device, and not run, so that the largest take two seconds.
    """
    model = meta_model(workload)
    tensors = {
        id(one): one.nbytes for kept in (model.parameters(), model.buffers()) for one in kept
    }
    return sum(tensors.values())


def weights_of(workload: Workload) -> Weights:
    """A workload's weights as they are loaded and saved."""
    return _weighed(json.dumps(workload.to_dict()))


@lru_cache(8)  # building the largest on the meta device takes a second
def _weighed(fields: str) -> Weights:
    workload = computed_alone(Workload.parse(json.loads(fields)))
    with torch.device("meta"):
        base = new_model(workload)
        built = build_model(workload, predicting=True)
    policy, *others = trained_in(built)
    frozen = built.frozen if isinstance(built, Learner) else ()
    loaded = [one.nbytes for one in base.parameters()]
    beside = sum(_bytes(one.parameters()) for one in (*others, *frozen))
    is_quantized = workload.quantization is not Quantization.NONE
    # Scripts of diffusers save what they train, without the frozen encoders.
    is_saved_whole = workload.lora_rank is None and workload.task is not Task.TEXT_TO_IMAGE
    kept = _bytes(policy.parameters())
    trained = _bytes(one for one in policy.parameters() if one.requires_grad)
    return Weights(
        loaded=sum(loaded) + beside,
        kept=kept,
        saved=kept if is_saved_whole else trained,
        largest=max(loaded, default=0),
        largest_quantized=_largest_product(base) if is_quantized else 0,
    )


def _bytes(parameters: Iterable[torch.Tensor]) -> int:
    return sum(one.nbytes for one in parameters)


def _largest_product(model: Any) -> int:
    """Bytes of the largest linear weight, without the head, which is not quantized."""
    find = getattr(model, "get_output_embeddings", lambda: None)
    head = find()
    linear = (one for one in model.modules() if isinstance(one, torch.nn.Linear))
    return max((one.weight.nbytes for one in linear if one is not head), default=0)


def check_weights(workload: Workload, gpu: Gpu) -> None:
    """Refuse a model whose weights alone do not fit, which spares tracing it.

    Args:
        workload: A workload that generates: its weights are all on this GPU.
        gpu: The GPU.

    Raises:
        DoesNotFit: With what takes less, and the GPUs that hold it.
    """
    whole = weight_bytes(workload)
    if whole <= gpu.usable_bytes:
        return
    smaller = {name: weight_bytes(one) for name, one in _smaller(workload, gpu)}
    room = f"{gpu.display_name} has {gib(gpu.usable_bytes)}"
    told = [f"The weights alone take {gib(whole)}, and {room}."]
    if fitting := [name for name, size in smaller.items() if size <= gpu.usable_bytes]:
        kept = ", ".join(f"{name} ({gib(smaller[name])})" for name in fitting)
        told.append(f"Here they fit with {kept}.")
    elif smaller:
        name, size = min(smaller.items(), key=lambda one: one[1])
        told.append(f"With {name} they take {gib(size)}: {_held_by(size)}.")
    told.append(f"As they are: {_held_by(whole)}.")
    raise DoesNotFit(" ".join(told))


def _smaller(workload: Workload, gpu: Gpu) -> Iterator[tuple[str, Workload]]:
    """The same model with fewer bits for each weight, where it can have them, by their names."""
    is_full = workload.precision is not Precision.BF16_TRUE and gpu.bf16_flops is not None
    fewer: dict[str, Any] = {"precision": Precision.BF16_TRUE} if is_full else {}
    named = "bf16-true" if is_full else ""
    for kept in (None, Quantization.INT8, Quantization.NF4):
        changed = fewer | ({"quantization": kept} if kept else {})
        name = " with ".join(filter(None, (named, kept)))
        if not name:
            continue
        try:
            yield name, replace(workload, **changed)
        except InvalidInput:  # a model that cannot be quantized
            continue


def _held_by(size: int) -> str:
    """The smallest GPU that holds ``size`` bytes, as text."""
    holding = [one for one in GPUS.values() if one.usable_bytes >= size]
    if not holding:
        return "more than any catalogue GPU has"
    smallest = min(holding, key=lambda one: one.usable_bytes)
    return f"that needs {smallest.display_name} or more"
