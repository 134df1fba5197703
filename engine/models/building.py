"""From a workload to the transformers model that it trains, with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForSpeechSeq2Seq,
    AutoModelForTokenClassification,
)

from engine.errors import EngineError, InvalidInput
from engine.models.kinds import Task
from engine.parsing import shown
from engine.workload import Precision, Workload

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

_NEED_PADDING = (Task.SEQUENCE_CLASSIFICATION, Task.SEQUENCE_TO_SEQUENCE)
# A decoder that classifies is asked at its last token that is no padding; a target is shifted right
# and begins with padding.

LARGEST_PARAMETER_COUNT = 10**12
"""Ten times what the largest published models have that train without a mixture of experts."""


def new_model(workload: Workload) -> torch.nn.Module:
    """The workload's model on the current device, its parameters in the workload's format."""
    fields = config_fields(workload)
    config = AutoConfig.for_model(fields.pop("model_type"), **fields, use_cache=False)
    dtype = torch.bfloat16 if workload.precision is Precision.BF16_TRUE else torch.float32
    with _plain_functions():
        model: torch.nn.Module = TASKS[_task(workload)].from_config(config, dtype=dtype)
    if workload.task is Task.CONTRASTIVE:
        # Of all models these alone must be asked for their loss.
        model.forward = partial(model.forward, return_loss=True)
    return model


def config_fields(workload: Workload) -> dict[str, Any]:
    """The model's config as the workload trains it: its head, its image size, nothing at random."""
    task = _task(workload)
    # Of several classes for a task, transformers shall take the plain one, not that of the weights.
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
    """Build a given config's model without memory, to see that there is such a model.

    Raises:
        InvalidInput: If transformers refuses the config, or the model is too large.
    """
    with blaming_the_config(workload), torch.device("meta"):
        model = new_model(workload)
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > LARGEST_PARAMETER_COUNT:
        message = f"a model of {count:,} parameters; {LARGEST_PARAMETER_COUNT:,} are possible"
        raise _wrong_config(workload, message)


@contextmanager
def blaming_the_config(workload: Workload) -> Iterator[None]:
    """Say that a given config is wrong where transformers or PyTorch fail over it.

    They find out in many ways, from a missing activation function to shapes that do not match, and
    nothing but the config is new to them. A preset's failure stays what it is: our mistake.
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
    """The mistake stands at the field that the config came from."""
    if hub_id := workload.preset.hub_id:
        return InvalidInput({"model": f"the config of {hub_id} cannot be used: {message}"})
    return InvalidInput({"config": message})


@contextmanager
def _plain_functions() -> Iterator[None]:
    """Leave functions as Python has them where a model's module makes TorchScript of them.

    DeBERTa's did in transformers 5.17, for its tables of positions. TorchScript cannot run on
    fake tensors, and what is traced shall be what is run.
    """
    with patch("torch.jit.script", lambda function: function):
        yield


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _task(workload: Workload) -> Task:
    if workload.task is None:
        raise EngineError(f"the config of {workload.model} was not fetched")
    return workload.task


def _without_layer_drop(config: dict[str, Any]) -> dict[str, Any]:
    """Every layer runs in every step: what drops them at random cannot be predicted.

    Memory is decided by the steps that drop none.
    """
    drops = {name: 0.0 for name in config if name.endswith("layerdrop")}
    return config | drops
