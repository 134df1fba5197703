"""How a model is changed for its training: attention, checkpointing, LoRA, a frozen backbone."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from engine.errors import EngineError, InvalidInput
from engine.workload import Attention, Workload

_PEFT_TASKS = {
    "sequence-classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
    "causal-language-modelling": "CAUSAL_LM",
    "sequence-to-sequence": "SEQ_2_SEQ_LM",
}
_WITH_HEADS = ("SEQ_CLS", "TOKEN_CLS")
_TRAINED_WHOLE = ".*(classifier|score)"
"""The modules that peft trains whole for these tasks, whose names end so; it refuses to adapt them
too, and ``all-linear`` leaves out but one of them, and that not for every task."""


def adapt(model: Any, workload: Workload) -> torch.nn.Module:
    """The model as the workload trains it.

    Args:
        model: A transformers model, on the host.
        workload: Says what to change.

    Raises:
        InvalidInput: If the model cannot be trained that way.
        EngineError: If a package for it is not installed.
    """
    if workload.attention is Attention.EAGER:
        model.set_attn_implementation("eager")
    if workload.gradient_checkpointing:
        _checkpoint(model, workload)
    if workload.frozen_backbone:
        _freeze(model, workload)
    if workload.lora_rank is not None:
        model = _with_lora(model, workload, workload.lora_rank)
    adapted: torch.nn.Module = model
    return adapted


def _checkpoint(model: Any, workload: Workload) -> None:
    name = workload.preset.display_name
    if not model.supports_gradient_checkpointing:
        raise InvalidInput({"gradient_checkpointing": f"transformers has none for {name}"})
    # transformers 5.18 renamed it; both take the variant of torch.utils.checkpoint.
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable({"use_reentrant": False})
    else:
        model.gradient_checkpointing_enable({"use_reentrant": False})


def _freeze(model: Any, workload: Workload) -> None:
    for parameter in model.base_model.parameters():
        parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InvalidInput(
            {
                "frozen_backbone": f"nothing of {workload.preset.display_name} is left to train "
                "for this task, since its head shares the backbone's weights"
            }
        )


def _with_lora(model: Any, workload: Workload, rank: int) -> Any:
    try:
        from peft import LoraConfig, get_peft_model  # seconds to load, and rarely wanted
    except ImportError as error:
        raise EngineError(
            "LoRA needs the package peft, which is not installed here: pip install peft"
        ) from error
    targets = [name.strip() for name in workload.lora_targets.split(",") if name.strip()]
    task_type = _PEFT_TASKS.get(workload.task or "")
    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        target_modules="all-linear" if targets == ["all-linear"] else targets,
        exclude_modules=_TRAINED_WHOLE if task_type in _WITH_HEADS else None,
        task_type=task_type,
    )
    try:
        with warnings.catch_warnings():
            # peft asks transformers under a name that is about to go; both know.
            warnings.simplefilter("ignore", FutureWarning)
            return get_peft_model(model, config)
    except ValueError as error:
        raise InvalidInput(
            {
                "lora_targets": f"peft finds no module for '{workload.lora_targets}' in "
                f"{workload.preset.display_name}; name modules, or give all-linear"
            }
        ) from error
