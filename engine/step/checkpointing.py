"""Checkpointing: which layers of a model are recomputed in backward to save their activations."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from ..core.choices import Recompute
from ..core.errors import InvalidInput
from ..interface.workload import Workload
from .transformers_versions import checkpointed_layers, enable_checkpointing

_KEPT = [
    getattr(torch.ops.aten, name).default
    for name in (
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
    )
]
"""The operators that take the most time, namely those that the policies of torchtitan and of
PyTorch's blog on activation checkpointing save (``create_selective_checkpoint_contexts``).
torchtitan's first ones saved every second product; all are here."""


def _keeping_products() -> Any:
    return create_selective_checkpoint_contexts(_KEPT)


def checkpoint(model: Any, workload: Workload) -> None:
    """Recompute the layers of a model in backward.

    Args:
        model: A transformers model, on the host.
        workload: Says which layers.

    Raises:
        InvalidInput: If the model cannot recompute them.
    """
    name = workload.preset.display_name
    if not model.supports_gradient_checkpointing:
        raise InvalidInput({"gradient_checkpointing": f"transformers has none for {name}"})
    keeping = workload.recompute is Recompute.CHEAP
    enable_checkpointing(model, **({"context_fn": _keeping_products} if keeping else {}))
    if workload.checkpoint_every > 1:
        _checkpoint_some(model, workload)


def _checkpoint_some(model: torch.nn.Module, workload: Workload) -> None:
    """Leave every ``checkpoint_every``-th layer checkpointed, the first among them.

    As ``every_n_layers`` of transformers (``_set_gradient_checkpointing`` in modeling_utils.py,
    5.23), which counts the layers of all stacks together.
    """
    layers = checkpointed_layers(model)
    if not layers:
        name = workload.preset.display_name
        message = f"the layers of {name} cannot be chosen one by one; leave this at 1"
        raise InvalidInput({"checkpoint_every": message})
    for number, layer in enumerate(layers):
        layer.gradient_checkpointing = number % workload.checkpoint_every == 0


def check_embeddings(model: Any, workload: Workload) -> None:
    """Refuse models whose embeddings return several tensors, as Swin's do.

    For checkpointing, peft has transformers ask for gradients of the one tensor that they return.
    """

    def check(_module: torch.nn.Module, _given: object, output: object) -> None:
        if not isinstance(output, torch.Tensor):
            name = workload.preset.display_name
            raise InvalidInput(
                {"gradient_checkpointing": f"peft fails with it on {name}; switch it or LoRA off"}
            )

    try:
        embeddings = model.get_input_embeddings()
    except NotImplementedError:  # transformers asks for no gradients either
        return
    embeddings.register_forward_hook(check)
