"""Adapts a model to how a workload trains it: checkpointing, LoRA, a frozen backbone."""

from __future__ import annotations

import re
import warnings
from typing import Any

import torch

from ..core.choices import Quantization
from ..core.errors import EngineError, InvalidInput
from ..features.adapters import ALL_LINEAR, adapted_modules
from ..interface.workload import Workload
from ..models.tasks import Task
from ..versions.kernels import declared_without_gpu
from .checkpointing import check_embeddings, checkpoint
from .quantizing import adapted_layouts, check_variants, kept_whole, place_quantized, quantize

_PEFT_TASKS = {
    "sequence-classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
    "causal-language-modelling": "CAUSAL_LM",
    "sequence-to-sequence": "SEQ_2_SEQ_LM",
}
_WITH_HEADS = ("SEQ_CLS", "TOKEN_CLS")
_TRAINED_WHOLE = ".*(classifier|score)"
"""The modules, by the end of their names, that peft trains whole for these tasks. It refuses to
adapt them too, and ``all-linear`` excludes only one of them, and not for every task."""


def adapt(
    model: Any, workload: Workload, *, predicting: bool, sharded: bool = False
) -> torch.nn.Module:
    """The model as the workload trains it: attention, checkpointing, LoRA, a frozen backbone.

    Args:
        model: A transformers model, on the host.
        workload: Decides the changes.
        predicting: Whether its steps are traced and never run.
        sharded: Whether GPUs divide the weights.

    Raises:
        InvalidInput: If the model cannot be trained that way.
        EngineError: If a package for it is not installed.
    """
    if workload.gradient_checkpointing:
        checkpoint(model, workload)
    if workload.frozen_backbone:
        _freeze(model, workload)
    if workload.quantization is not Quantization.NONE:
        part, kept = _quantized(model, workload)
        quantize(
            part,
            kept,
            workload.quantization,
            workload.precision,
            sharded=sharded,
            predicting=predicting,
        )
        if workload.adapter.spec.reads_weights:
            check_variants(workload.adapter)
            place_quantized(part, "cpu")
    if workload.lora_rank is not None:
        if workload.gradient_checkpointing and workload.task is not Task.TEXT_TO_IMAGE:
            check_embeddings(model, workload)
        model = _with_lora(model, workload, workload.lora_rank)
    adapted: torch.nn.Module = model
    return adapted


def _quantized(model: Any, workload: Workload) -> tuple[Any, set[str]]:
    """The part whose linear layers are quantized, and the names of its modules that are not.

    diffusers has no head to leave alone: all layers of a denoiser are quantized, to the last.
    """
    if workload.task is Task.TEXT_TO_IMAGE:
        return model.denoiser, set()
    return model, kept_whole(model)


def _freeze(model: Any, workload: Workload) -> None:
    base = model.base_model
    getattr(base, "freeze_backbone", lambda: base.requires_grad_(False))()  # detectors have theirs
    if workload.preset.package == "timm":  # where the head is a part of the backbone
        for head in _heads(model.base_model):
            head.requires_grad_(True)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InvalidInput(
            {
                "frozen_backbone": f"{workload.preset.display_name} has nothing left to train for "
                "this task: its head shares the backbone's weights, or it has none"
            }
        )


def _heads(model: Any) -> tuple[torch.nn.Module, ...]:
    heads = model.get_classifier()
    return heads if isinstance(heads, tuple) else (heads,)


def _routers(model: torch.nn.Module) -> list[str]:
    """The routers of experts that are linear layers themselves, as in Llama 4.

    They return several tensors, where peft fails, so that scripts name the other layers.
    """
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and type(module).__name__.endswith("Router")
    ]


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if name.strip()]


def _check_modules(model: torch.nn.Module, names: list[str]) -> None:
    """Refuse names that no module has; peft would leave them out without a word."""
    known = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    if unknown := [name for name in names if name.rpartition(".")[2] not in known]:
        message = f"no module of it is called {', '.join(unknown)}; enter names as in the model"
        raise InvalidInput({"modules_to_save": message})


def _token_rows(model: Any, workload: Workload) -> dict[str, list[int]]:
    """Rows of the embeddings to train, for peft's config: the last, where new ones are.

    Raises:
        InvalidInput: If there are none to train.
    """
    count = workload.trained_tokens
    if count is None:
        return {}
    embeddings = model.get_input_embeddings()
    if not isinstance(embeddings, torch.nn.Embedding):
        message = f"{workload.preset.display_name} has no embeddings of tokens; leave it empty"
        raise InvalidInput({"trained_tokens": message})
    known = embeddings.num_embeddings
    if count > known:
        raise InvalidInput({"trained_tokens": f"the model has {known:,} tokens; enter fewer"})
    return {"trainable_token_indices": list(range(known - count, known))}


@declared_without_gpu()  # peft imports bitsandbytes, if it is there
def _with_lora(model: Any, workload: Workload, rank: int) -> Any:
    try:
        from peft import LoraConfig, get_peft_model  # takes seconds to load, and is rarely needed
    except ImportError as error:
        raise EngineError(
            "LoRA needs the package peft, which is not installed: pip install peft"
        ) from error
    targets = adapted_modules(workload.lora_targets)
    saved = _names(workload.modules_to_save or "")
    _check_modules(model, saved)
    if workload.task is Task.TEXT_TO_IMAGE and targets == ALL_LINEAR:
        targets = model.linear_layers()
    task_type = _PEFT_TASKS.get(workload.task or "")
    left_out = [_TRAINED_WHOLE] if task_type in _WITH_HEADS else []
    if targets == ALL_LINEAR:
        left_out += map(re.escape, _routers(model))
    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        target_modules=targets,
        exclude_modules="|".join(left_out) or None,
        modules_to_save=saved or None,
        task_type=task_type,
        **workload.adapter.spec.peft,
        **_token_rows(model, workload),
    )
    if workload.quantization is not Quantization.NONE:
        config._register_custom_module(adapted_layouts())
    try:
        with warnings.catch_warnings():
            # peft uses a deprecated name in transformers; both projects know.
            warnings.simplefilter("ignore", FutureWarning)
            # It says so of its own keys for experts, which all linear layers do not include.
            warnings.filterwarnings("ignore", r"The following (rank|alpha)_pattern keys")
            # It puts GPT-2's layers right by itself.
            warnings.filterwarnings("ignore", r"fan_in_fan_out is set to False")
            if workload.task is Task.TEXT_TO_IMAGE:
                model.add_adapter(config)
                return model
            return get_peft_model(model, config)
    except ValueError as error:
        # peft 0.19 takes the letters of all-linear for names, in mixtures of transformers 5.
        others = ", or all-linear" if targets != ALL_LINEAR else ", such as q_proj,v_proj"
        raise InvalidInput(
            {
                "lora_targets": f"peft finds no module for '{workload.lora_targets}' in "
                f"{workload.preset.display_name}; enter module names{others}"
            }
        ) from error


def without_adapters(model: Any) -> Any:
    """The model of transformers, which peft may have wrapped."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model
