"""From a workload to the transformers model that it trains, with random weights."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForSpeechSeq2Seq,
    AutoModelForTokenClassification,
)

from ..errors import EngineError, InvalidInput
from ..models.kinds import Task
from ..parsing import shown
from ..workload import Attention, Precision, Workload
from .transformers_versions import (
    VERSION,
    building_on_any_device,
    enable_checkpointing,
    from_config,
    new_config,
)

TASKS: dict[Task, Any] = {
    Task.SEQUENCE_CLASSIFICATION: AutoModelForSequenceClassification,
    Task.TOKEN_CLASSIFICATION: AutoModelForTokenClassification,
    Task.MASKED_LANGUAGE_MODELLING: AutoModelForMaskedLM,
    Task.CAUSAL_LANGUAGE_MODELLING: AutoModelForCausalLM,
    Task.SEQUENCE_TO_SEQUENCE: AutoModelForSeq2SeqLM,
    Task.IMAGE_CLASSIFICATION: AutoModelForImageClassification,
    Task.CONTRASTIVE: AutoModel,
    Task.SPEECH_RECOGNITION: AutoModelForSpeechSeq2Seq,
}

_TRAINER_LEAVES_CACHE = VERSION < (5, 0)

_NEED_PADDING = (Task.SEQUENCE_CLASSIFICATION, Task.SEQUENCE_TO_SEQUENCE)
# A classifying decoder reads its last token that is not padding; a target is shifted right and
# begins with padding.

LARGEST_PARAMETER_COUNT = 10**12
"""Ten times the largest published models without a mixture of experts."""


def new_model(workload: Workload) -> torch.nn.Module:
    """The workload's model on the current device, its parameters in the workload's format."""
    fields = config_fields(workload)
    fields["use_cache"] = caches_keys_and_values(workload)
    config = new_config(fields.pop("model_type"), **fields)
    dtype = torch.bfloat16 if workload.precision is Precision.BF16_TRUE else torch.float32
    eager = workload.attention is Attention.EAGER
    with building_on_any_device():
        model = from_config(TASKS[_task(workload)], config, dtype, eager=eager)
    if workload.task is Task.CONTRASTIVE:
        # Of all models these alone must be asked for their loss.
        model.forward = partial(model.forward, return_loss=True)
    return model


def caches_keys_and_values(workload: Workload) -> bool:
    """Whether a decoder's config asks for a cache, which gradient checkpointing switches off.

    By default as in Hugging Face's Trainer: it sets ``use_cache`` from its own arguments, where it
    is off, since release 5; before, it left configs alone, and theirs is on.
    """
    if workload.use_cache is None:
        return _TRAINER_LEAVES_CACHE and workload.preset.caches
    return workload.use_cache


def cache_caveats(workload: Workload) -> list[str]:
    """What an answer assumes about keys and values, where its workload leaves that open."""
    if workload.use_cache and workload.gradient_checkpointing:
        return ["Gradient checkpointing switches the key-value cache off."]
    if not workload.preset.caches or workload.use_cache is not None:
        return []
    if caches_keys_and_values(workload):
        return [
            "Keys and values are cached (use_cache), as in Hugging Face's Trainer before "
            "transformers 5."
        ]
    return [
        "Keys and values are not cached (use_cache), as in Hugging Face's Trainer since "
        "transformers 5. A loop of your own caches them unless config.use_cache is false, and then "
        "needs more memory."
    ]


def config_fields(workload: Workload) -> dict[str, Any]:
    """The model's config as the workload trains it: its head, its image size, nothing at random."""
    task = _task(workload)
    # Of several classes for a task, take the plain one, not that of the published weights.
    fields = _without_layer_drop(workload.preset.config()) | {"architectures": []}
    if workload.label_count is not None:
        fields = {name: fields[name] for name in fields.keys() - {"id2label", "label2id"}}
        one = workload.label_count == 1
        fields |= {
            "num_labels": workload.label_count,
            "problem_type": "regression" if one else "single_label_classification",
        }
    if workload.image_size is not None:
        size = {"image_size": workload.image_size}
        if "vision_config" in fields:
            fields["vision_config"] = fields["vision_config"] | size
        else:
            fields |= size
    if task in _NEED_PADDING and fields.get("pad_token_id") is None:
        fields["pad_token_id"] = 0
    if task is Task.SEQUENCE_TO_SEQUENCE and fields.get("decoder_start_token_id") is None:
        fields["decoder_start_token_id"] = fields["pad_token_id"]
    return fields


def check_given(workload: Workload) -> None:
    """Build the model of a given config on the meta device, to see whether there is one.

    Raises:
        InvalidInput: If transformers refuses the config, or the model is too large.
    """
    with blaming_the_config(workload), torch.device("meta"):
        model = new_model(workload)
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > LARGEST_PARAMETER_COUNT:
        message = f"a model of {count:,} parameters (maximum {LARGEST_PARAMETER_COUNT:,})"
        raise _wrong_config(workload, message)


@contextmanager
def blaming_the_config(workload: Workload) -> Iterator[None]:
    """Report errors of transformers or PyTorch as errors of a given config.

    They fail in many ways, from a missing activation function to mismatched shapes, and only the
    config is new to them. With a preset, an error stays what it is: our mistake.
    """
    try:
        yield
    except (EngineError, MemoryError):
        raise
    except Exception as error:
        if workload.config is None:
            raise
        reason = f"{type(error).__name__}: {shown(_first_line(error))}"
        raise _wrong_config(workload, f"transformers cannot train it: {reason}") from error


def _wrong_config(workload: Workload, message: str) -> InvalidInput:
    """The error, at the field that the config came from."""
    if hub_id := workload.preset.hub_id:
        return InvalidInput({"model": f"the config of {hub_id} cannot be used: {message}"})
    return InvalidInput({"config": message})


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _task(workload: Workload) -> Task:
    if workload.task is None:
        raise EngineError(f"the config of {workload.model} was not fetched")
    return workload.task


def _without_layer_drop(config: dict[str, Any]) -> dict[str, Any]:
    """Run every layer in every step: memory is decided by the steps that drop none."""
    drops = {name: 0.0 for name in config if name.endswith("layerdrop")}
    return config | drops


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


def adapt(model: Any, workload: Workload) -> torch.nn.Module:
    """The model as the workload trains it: attention, checkpointing, LoRA, a frozen backbone.

    Args:
        model: A transformers model, on the host.
        workload: What to change.

    Raises:
        InvalidInput: If the model cannot be trained that way.
        EngineError: If a package for it is not installed.
    """
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
    enable_checkpointing(model)


def _freeze(model: Any, workload: Workload) -> None:
    for parameter in model.base_model.parameters():
        parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InvalidInput(
            {
                "frozen_backbone": f"{workload.preset.display_name} has nothing left to train for "
                "this task, since its head shares the backbone's weights"
            }
        )


def _with_lora(model: Any, workload: Workload, rank: int) -> Any:
    try:
        from peft import LoraConfig, get_peft_model  # takes seconds to load, and is rarely needed
    except ImportError as error:
        raise EngineError(
            "LoRA needs the package peft, which is not installed: pip install peft"
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
            # peft uses a deprecated name in transformers; both projects know.
            warnings.simplefilter("ignore", FutureWarning)
            return get_peft_model(model, config)
    except ValueError as error:
        raise InvalidInput(
            {
                "lora_targets": f"peft finds no module for '{workload.lora_targets}' in "
                f"{workload.preset.display_name}; enter module names, or all-linear"
            }
        ) from error
