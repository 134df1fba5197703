"""Tries one type of model for one task: the trace of a small one against real steps."""

from __future__ import annotations

import logging
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
from transformers import CONFIG_MAPPING, AutoModelForZeroShotImageClassification
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

from engine.models.architectures import ARCHITECTURES, Architecture
from engine.models.config import describe, text_config
from engine.models.kinds import Kind, Task
from engine.prediction.tracer import trace
from engine.step.batches import make_batch
from engine.step.building import TASKS
from engine.step.training import build_model, prepare, training_step
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.recorder import MemoryRecorder
from engine.tracing.trace import Trace
from engine.workload import Workload

from .small_configs import POSITIONS, small_config

BATCH_SIZE = 3
SEQUENCE_LENGTH = 32
IMAGE_SIZE = 64
LARGEST_PARAMETER_COUNT = 100_000_000

KINDS = {
    Task.IMAGE_CLASSIFICATION: Kind.IMAGE,
    Task.CONTRASTIVE: Kind.IMAGE_TEXT,
    Task.SPEECH_RECOGNITION: Kind.SPEECH,
}
"""Of the models with such a task; all others read text."""

_MAPPINGS = TASKS | {Task.CONTRASTIVE: AutoModelForZeroShotImageClassification}
_FALLING_BACK = re.compile(r"falling back to its reference .* because `(\w+)` is not installed")
_FAKE = "torch._subclasses.fake_tensor"
_WINDOWS = {"window_size", "patch_size", "depths"}
_NEEDS = {
    Kind.TEXT: ("vocab_size",),
    Kind.IMAGE_TEXT: ("vocab_size",),
    Kind.SPEECH: ("vocab_size", "num_mel_bins", "max_source_positions"),
}
_POSITIONS = ("max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len")


class Refused(Exception):
    """The pair is not admitted, for this reason."""


@dataclass(frozen=True)
class Outcome:
    """What came of one pair.

    Attributes:
        refused: Why it is not admitted; empty if it is.
        facts: What its architecture needs, by the names of :class:`Architecture`.
        same_trace: Whether every allocation and every free was the same, and not only the peak.
    """

    refused: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    same_trace: bool = False


def pairs() -> list[tuple[str, Task]]:
    """Every type of model and task that transformers has a class for, by type."""
    found = {
        (model_type, task)
        for task, auto_class in _MAPPINGS.items()
        for model_type in auto_class._model_mapping._model_mapping
    }
    return sorted(found)


def types_for(task: Task) -> set[str]:
    """The types of models that transformers has a class for."""
    return set(_MAPPINGS[task]._model_mapping._model_mapping)


def kind_of(model_type: str) -> Kind:
    """What a type of model reads: images, pairs or speech if any of its tasks does."""
    for task in (Task.SPEECH_RECOGNITION, Task.CONTRASTIVE, Task.IMAGE_CLASSIFICATION):
        if model_type in types_for(task):
            return KINDS[task]
    return Kind.TEXT


def try_pair(model_type: str, task: Task) -> Outcome:
    """Trace two steps of a small model, and run the same two."""
    try:
        with _listening_to_libraries():
            config = _config(model_type)
            _check_kind(model_type, task)
            architecture = _architecture(model_type, task, config)
            try:
                return _try_architecture(architecture, config)
            except Refused:
                if not config.keys() >= _WINDOWS:
                    raise
                # A small image does not fill its windows, which Swin cannot do without.
                return _try_architecture(replace(architecture, windows=True), config)
    except Refused as refusal:
        return Outcome(str(refusal))


def _try_architecture(architecture: Architecture, config: dict[str, Any]) -> Outcome:
    with patch.dict(ARCHITECTURES, {config["model_type"]: architecture}):
        workload = _workload(architecture, config)
        architecture = _with_learned_positions(architecture, workload)
        same = _compare(workload, _real_trace(workload))
        architecture = _with_first_position(architecture, workload)
    return Outcome(facts=facts_of(architecture), same_trace=same)


def facts_of(architecture: Architecture) -> dict[str, Any]:
    """What differs from an architecture that needs nothing, but for its kind and tasks."""
    usual = Architecture(kind=architecture.kind)
    names = vars(usual).keys() - {"kind", "tasks", "refused"}
    return {
        name: value
        for name in sorted(names)
        if (value := getattr(architecture, name)) != getattr(usual, name)
    }


def _check_kind(model_type: str, task: Task) -> None:
    kind = kind_of(model_type)
    if kind is not KINDS.get(task, Kind.TEXT):
        raise Refused(f"its models are predicted as {kind} models, and this task has other inputs")
    two_parts = CONFIG_MAPPING[model_type]().is_encoder_decoder
    if task is Task.SEQUENCE_TO_SEQUENCE and not two_parts:
        raise Refused("it has no encoder of text: what it reads for this task is sound or images")
    is_masked = model_type in types_for(Task.MASKED_LANGUAGE_MODELLING)
    if task is Task.CAUSAL_LANGUAGE_MODELLING and is_masked and not two_parts:
        raise Refused("it is an encoder, which sees the tokens it would have to predict")


def _config(model_type: str) -> dict[str, Any]:
    try:
        return small_config(model_type)
    except Exception as error:
        raise Refused(f"no small config of it can be made: {_short(error)}") from error


def _architecture(model_type: str, task: Task, config: Mapping[str, Any]) -> Architecture:
    architecture = Architecture(kind=kind_of(model_type), tasks=(task,))
    if architecture.kind is not Kind.IMAGE:
        text = text_config(config)
        needs = _NEEDS[architecture.kind]
        if missing := ", ".join(name for name in needs if name not in text):
            raise Refused(f"its config has no {missing} of its own")
        positions = next((name for name in _POSITIONS if name in text), "")
        architecture = replace(architecture, needs=needs, positions=positions)
    if architecture.kind in (Kind.IMAGE, Kind.IMAGE_TEXT):
        found = IMAGE_PROCESSOR_MAPPING_NAMES.get(model_type)
        if not found or "pil" not in found:
            raise Refused("transformers has no image processor on Pillow for it")
        architecture = replace(architecture, image_processor=found["pil"])
    return architecture


def _workload(architecture: Architecture, config: dict[str, Any]) -> Workload:
    try:
        sizes: dict[str, int] = {}
        if architecture.kind is not Kind.IMAGE:
            sizes["sequence_length"] = SEQUENCE_LENGTH
        if architecture.image_processor:
            limits = describe(config, "small").image_size
            sizes["image_size"] = max(IMAGE_SIZE, limits.smallest if limits else 0)
        workload = Workload("small", config=config, task=architecture.tasks[0], **sizes)  # type: ignore[arg-type]  # sizes only
        with torch.device("meta"):
            model = build_model(workload)
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"transformers builds no small model of it: {_short(error)}") from error
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > LARGEST_PARAMETER_COUNT:
        raise Refused(f"its small config still has {count:,} parameters")
    return workload


def _with_learned_positions(architecture: Architecture, workload: Workload) -> Architecture:
    """By whether a model with more positions has more parameters."""
    if not architecture.positions:
        return architecture
    learned = _parameters(workload) != _parameters(_with_positions(workload, POSITIONS + 8))
    return replace(architecture, learned_positions=learned)


def _with_positions(workload: Workload, count: int) -> Workload:
    config = dict(workload.config or {})
    name = ARCHITECTURES[config["model_type"]].positions
    if "text_config" in config:
        config["text_config"] = config["text_config"] | {name: count}
    else:
        config[name] = count
    return replace(workload, config=config)


def _parameters(workload: Workload) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build_model(workload).parameters())


def _compare(workload: Workload, real: Trace) -> bool:
    """Whether the traces are the same; where the peaks are not, the pair is refused."""
    try:
        traced = trace(workload, BATCH_SIZE, None)
        trace(workload, BATCH_SIZE, cuda_behaviour(8.6))
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise Refused("its step depends on the values of tensors") from error
    except Exception as error:
        raise Refused(f"its step cannot be traced: {_short(error)}") from error
    predicted, measured = traced.peak_by_category()[0], real.peak_by_category()[0]
    # The first step's peak may hide a difference in the second.
    difference = predicted - measured or traced.peak_of_last_step() - real.peak_of_last_step()
    if difference:
        raise Refused(f"the trace of a small model is {difference:+,} bytes off real steps")
    return traced.events == real.events and traced.sizes == real.sizes


def _real_trace(workload: Workload) -> Trace:
    try:
        training = prepare(workload, build_model(workload))
        recorder = MemoryRecorder(training, BATCH_SIZE)
        batch = make_batch(workload, BATCH_SIZE)
        for _ in range(2):
            recorder.record_step(lambda: training_step(training, batch))
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"a small model of it does not train: {_short(error)}") from error
    return recorder.trace


def _with_first_position(architecture: Architecture, workload: Workload) -> Architecture:
    """By the longest text that a model with learned positions takes."""
    if not architecture.learned_positions:
        return architecture
    for first in range(4):
        longest = replace(workload, sequence_length=POSITIONS - first)
        try:
            _real_trace(longest)
        except Refused:
            continue
        return replace(architecture, first_position=first)
    raise Refused("its positions do not limit the length of its text in a known way")


def _short(error: Exception) -> str:
    """Its class and the beginning of its message, as one line of plain text."""
    message = re.sub(r"[^\x20-\x7e]+", " ", str(error)).strip()
    return f"{type(error).__name__}: {textwrap.shorten(message, 120, placeholder=' …')}"


class _MissingKernels(logging.Handler):
    """Refuses models that transformers runs in plain PyTorch here, and by kernels on a GPU."""

    def emit(self, record: logging.LogRecord) -> None:
        if found := _FALLING_BACK.search(record.getMessage()):
            raise Refused(f"on a GPU it runs kernels of {found[1]}, which no trace shows")


@contextmanager
def _listening_to_libraries() -> Iterator[None]:
    """Notice missing kernels, and keep transformers and PyTorch from printing."""
    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore")
        library = logging.getLogger("transformers")
        stack.enter_context(patch.object(library, "handlers", [_MissingKernels()]))
        stack.enter_context(patch.object(library, "propagate", False))
        stack.enter_context(patch.object(logging.getLogger(_FAKE), "disabled", True))
        yield
