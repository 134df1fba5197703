"""Tries one type of model for one task: the trace of a small one against real steps."""

from __future__ import annotations

import logging
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
from transformers import CONFIG_MAPPING, AutoModelForZeroShotImageClassification
from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES
from transformers.utils.logging import warning_once

from engine.interface.workload import Workload
from engine.models.architectures import ARCHITECTURES, OF_PACKAGES, Architecture
from engine.models.config import text_config
from engine.models.tasks import Task
from engine.step.batches import make_batch
from engine.step.building import TASKS
from engine.step.training import build_model, prepare, training_step
from engine.step.transformers_versions import text_part
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.recorder import MemoryRecorder
from engine.tracing.trace import Trace

from .small_configs import POSITIONS, small_config

BATCH_SIZE = 3
SIZES = {
    "sequence_length": 32,
    "image_size": 64,
    "image_count": 2,
    "target_count": 3,
    "frame_count": 8,
    "audio_seconds": 2,
}
MAX_PARAMETER_COUNT = 100_000_000

_FALLING_BACK = re.compile(r"falling back to its reference .* because `([\w-]+)` is not installed")
_FAKE = "torch._subclasses.fake_tensor"
_WINDOWS = {"window_size", "patch_size", "depths"}
_NO_PROCESSOR = "transformers has no image processor for it, and it does not read plain squares"
_PUBLISHED_EXTRACTORS = {
    "moonshine_streaming": "Wav2Vec2FeatureExtractor",
    "speech-encoder-decoder": "Wav2Vec2FeatureExtractor",
    "wav2vec2-bert": "SeamlessM4TFeatureExtractor",
}
"""Extractors of published models, where transformers names none, or one that does not suit them."""
_PUBLISHED_PROCESSORS = {
    "glm_ocr": "Glm46VImageProcessorPil",
    "qwen2_5_omni_thinker": "Qwen2VLImageProcessorPil",
    "qwen3_omni_moe_thinker": "Qwen2VLImageProcessorPil",
    "vision-encoder-decoder": "ViTImageProcessorPil",
}
"""Processors of published models, where transformers names none."""
_TORCHVISION = "torchvision"
_OPTIONAL = {"timm"}
"""Packages with networks that are a part of some models."""
_POSITIONS = (
    "max_position_embeddings",
    "n_positions",
    "max_target_positions",
    "max_decoder_position_embeddings",
    "max_seq_len",
)


class Refused(Exception):
    """The pair is not admitted, for this reason."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one pair.

    Attributes:
        refused: Reason why it is not admitted; empty if it is.
        facts: Needs of its architecture, by the names of :class:`Architecture`.
        same_trace: Whether every allocation and every free was the same, and not only the peak.
    """

    refused: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    same_trace: bool = False


def pairs() -> list[tuple[str, Task]]:
    """Every type of model and task that transformers has a class for, by type."""
    return sorted(
        (model_type, task)
        for task in TASKS
        for model_type in types_for(task) - OF_PACKAGES.keys()  # tried apart
    )


def types_for(task: Task) -> set[str]:
    """The types of models that transformers has a class for, or a class without a head."""
    if task is Task.CONTRASTIVE:
        return _types(AutoModelForZeroShotImageClassification)
    if task is Task.SENTENCE_EMBEDDING:
        read_text = _types(TASKS[Task.MASKED_LANGUAGE_MODELLING]) | types_for_decoders()
        return read_text & _types(TASKS[task])
    if task is Task.PERMUTED_LANGUAGE_MODELLING:
        classes = TASKS[task]._model_mapping
        return {
            config.model_type
            for config, model in classes.items()
            if "perm_mask" in signature(model.forward).parameters
        }
    return _types(TASKS[task])


def types_for_decoders() -> set[str]:
    return _types(TASKS[Task.CAUSAL_LANGUAGE_MODELLING])


def _types(auto_class: Any) -> set[str]:
    return set(auto_class._model_mapping._model_mapping)


def try_pair(model_type: str, task: Task) -> Outcome:
    """Trace two steps of a small model, and run the same two."""
    try:
        with _listening_to_libraries() as missing:
            config = _config(model_type)
            _check_task(model_type, task)
            architecture = _architecture(model_type, task, config)
            outcome = _try_variants(architecture, config)
    except Refused as refusal:
        return Outcome(str(refusal))
    if missing:
        return replace(outcome, facts=outcome.facts | {"kernels": sorted(missing)})
    return outcome


def _try_variants(architecture: Architecture, config: dict[str, Any]) -> Outcome:
    """Try an architecture, and what it may need else until it is admitted."""
    for variant in _variants(architecture, config):
        try:
            return _try_architecture(variant, config)
        except Refused as refusal:
            last = refusal
    reads_images_in_text = "image_count" in architecture.tasks[0].facts.sizes
    if reads_images_in_text and not variant.image_processor:
        raise Refused(_NO_PROCESSOR) from last
    raise last


def _variants(architecture: Architecture, config: dict[str, Any]) -> Iterator[Architecture]:
    yield architecture
    if config.keys() >= _WINDOWS:
        # A small image does not fill its windows, which Swin cannot do without.
        yield replace(architecture, windows=True)
    elif "image_count" in architecture.tasks[0].facts.sizes:
        yield replace(architecture, one_image=True)
        if not architecture.image_processor:
            for name in _image_processors(config["model_type"], _TORCHVISION):
                prepared = replace(architecture, image_processor=name, needs=(_TORCHVISION,))
                yield prepared
                yield replace(prepared, one_image=True)
    elif architecture.image_processor:
        yield replace(architecture, square_images=True)


def try_config(config: dict[str, Any], task: Task, **sizes: Any) -> Outcome:
    """Trace two steps of the model of a config, and run the same two, at the given sizes."""
    try:
        with _listening_to_libraries():
            workload = Workload("small", config=config, task=task, **sizes)
            return Outcome(same_trace=_compare(workload, _real_trace(workload)))
    except Refused as refusal:
        return Outcome(str(refusal))


def _try_architecture(architecture: Architecture, config: dict[str, Any]) -> Outcome:
    with patch.dict(ARCHITECTURES, {config["model_type"]: architecture}):
        workload = _workload(architecture, config)
        architecture = _with_packages(architecture, workload)
        architecture = _with_learned_positions(architecture, workload)
        same = _compare(workload, _real_trace(workload))
        architecture = _with_first_position(architecture, workload)
    return Outcome(facts=facts_of(architecture), same_trace=same)


def facts_of(architecture: Architecture) -> dict[str, Any]:
    """The differences from an architecture that needs nothing, except for its tasks."""
    usual = Architecture()
    names = vars(usual).keys() - {"tasks", "refused"}
    return {
        name: value
        for name in sorted(names)
        if (value := getattr(architecture, name)) != getattr(usual, name)
    }


def _check_task(model_type: str, task: Task) -> None:
    config = CONFIG_MAPPING[model_type]()
    if task is Task.SEQUENCE_TO_SEQUENCE and not config.is_encoder_decoder:
        raise Refused("it has no encoder of text: what it reads for this task is sound or images")
    is_encoder = model_type in types_for(Task.MASKED_LANGUAGE_MODELLING)
    can_decode = config.is_encoder_decoder or hasattr(config, "is_decoder")
    if task is Task.CAUSAL_LANGUAGE_MODELLING and is_encoder and not can_decode:
        raise Refused("it is an encoder, which sees the tokens it would have to predict")


def _config(model_type: str) -> dict[str, Any]:
    try:
        return small_config(model_type)
    except Exception as error:
        raise Refused(f"no small config of it can be made: {_short(error)}") from error


def _architecture(model_type: str, task: Task, config: Mapping[str, Any]) -> Architecture:
    architecture = Architecture(tasks=(task,))
    if "sequence_length" in task.facts.sizes:
        text = text_config(config)
        positions = next((name for name in _POSITIONS if name in text), "")
        architecture = replace(architecture, positions=positions)
    if "image_size" in task.facts.sizes:
        on_pillow = _image_processors(model_type, "pil")
        architecture = replace(architecture, image_processor=next(on_pillow, ""))
    if "audio_seconds" in task.facts.sizes:
        known = FEATURE_EXTRACTOR_MAPPING_NAMES | _PUBLISHED_EXTRACTORS
        extractor = known.get(model_type)
        if extractor is None:
            raise Refused("transformers has no feature extractor for it")
        architecture = replace(architecture, feature_extractor=extractor)
    return architecture


def _image_processors(model_type: str, library: str) -> Iterator[str]:
    """Yield a type's own image processors, or those of models with the same joint processor.

    The library is the one they run on: ``pil`` or ``torchvision``.
    """
    processor = PROCESSOR_MAPPING_NAMES.get(model_type)
    kin = [other for other, name in PROCESSOR_MAPPING_NAMES.items() if name == processor]
    known = [IMAGE_PROCESSOR_MAPPING_NAMES.get(one) or {} for one in (model_type, *kin)]
    if model_type in _PUBLISHED_PROCESSORS:
        known = [{"pil": _PUBLISHED_PROCESSORS[model_type]}]
    yield from dict.fromkeys(names[library] for names in known if names.get(library))


def _workload(architecture: Architecture, config: dict[str, Any]) -> Workload:
    try:
        workload = Workload("small", config=config, task=architecture.tasks[0])
        workload = replace(workload, **_small_sizes(workload))
        with torch.device("meta"):
            model = build_model(workload)
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"transformers builds no small model of it: {_short(error)}") from error
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > MAX_PARAMETER_COUNT:
        raise Refused(f"its small config still has {count:,} parameters")
    return workload


def _small_sizes(workload: Workload) -> dict[str, Any]:
    """The sizes of a small sample, within the model's limits."""
    sizes = {}
    for name, wanted in SIZES.items():
        limits = workload.preset.limits(name, workload.task)
        if limits is not None:
            sizes[name] = min(max(wanted, limits.smallest), limits.largest)
    return sizes


def _with_packages(architecture: Architecture, workload: Workload) -> Architecture:
    """By the packages that the model's modules are of."""
    with torch.device("meta"):
        modules = build_model(workload).modules()
    packages = {type(module).__module__.partition(".")[0] for module in modules} & _OPTIONAL
    return replace(architecture, needs=(*architecture.needs, *sorted(packages)))


def _with_learned_positions(architecture: Architecture, workload: Workload) -> Architecture:
    """By whether a model with more positions has more parameters."""
    if not architecture.positions:
        return architecture
    learned = _parameters(workload) != _parameters(_with_positions(workload, POSITIONS + 8))
    config = text_part(CONFIG_MAPPING[workload.preset.config()["model_type"]]())
    usual = getattr(config, architecture.positions, None) or 0
    return replace(architecture, learned_positions=learned, default_positions=usual)


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
    positions = text_config(workload.config or {})[architecture.positions]
    room = positions - _image_tokens(workload)
    for first in range(4):
        longest = replace(workload, sequence_length=room - first)
        try:
            _real_trace(longest)
        except Refused:
            continue
        return replace(architecture, first_position=first)
    raise Refused("its positions do not limit the length of its text in a known way")


def _image_tokens(workload: Workload) -> int:
    """The number of a sample's tokens that are its images'."""
    if workload.image_count is None:
        return 0
    return int(make_batch(workload, 1)["input_ids"].shape[1]) - (workload.sequence_length or 0)


def _short(error: Exception) -> str:
    """Its class and the beginning of its message, as one line of plain text."""
    message = re.sub(r"[^\x20-\x7e]+", " ", str(error)).strip()
    return f"{type(error).__name__}: {textwrap.shorten(message, 120, placeholder=' …')}"


class _MissingKernels(logging.Handler):
    """Collects the packages whose kernels transformers replaces by plain PyTorch here."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if found := _FALLING_BACK.search(record.getMessage()):
            self.found.add(found[1].replace("_", "-"))


@contextmanager
def _listening_to_libraries() -> Iterator[set[str]]:
    """Collect missing packages of kernels, and keep transformers and PyTorch from printing."""
    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore")
        library = logging.getLogger("transformers")
        missing = _MissingKernels()
        warning_once.cache_clear()  # what another pair missed is said again
        stack.enter_context(patch.object(library, "handlers", [missing]))
        stack.enter_context(patch.object(library, "propagate", False))
        stack.enter_context(patch.object(logging.getLogger(_FAKE), "disabled", True))
        yield missing.found
