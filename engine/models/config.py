"""Checks an untrusted ``config.json`` before a model is built from it.

Everything here is plain data and bounded: no torch, no network. What transformers itself refuses
shows where the model is built (:mod:`engine.step.building`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from ..core.errors import InvalidInput
from ..core.parsing import shown
from . import config_text, diffusion, other_files, timm_models
from .architectures import KNOWN, SUPPORTED, Architecture
from .model import GivenModel
from .published import without_what_trainers_leave
from .tasks import MAX_IMAGE_SIZE, MAX_SEQUENCE_LENGTH, USUAL_IMAGES, SizeLimits, Task, spoken

MAX_LABEL_COUNT = 1_000_000

_MAX_SIZE = 20_000_000  # above every size of a published model: positions of Llama 4 Scout
_MAX_NUMBER = 100_000_000  # Qwen4-Exp tells 20 million pairs and triples of tokens apart
_MAX_FLOAT = 1e12
"""Bound of numbers that are not whole. Published configs write infinity as one far beyond, too."""
_MAX_LAYER_COUNT = 1_000  # of all kinds; published models have at most a few hundred

_USUAL_PATCH = 16
_QUANTISED = (
    "quantised weights are not predicted; use the config of the model they were made from, with "
    "--quantization nf4 for QLoRA on 4 bits"
)
_REFUSED = {
    "auto_map": "it refers to custom code, which is never run here; use an architecture that is "
    "part of transformers",
    "quantization_config": _QUANTISED,
    "compression_config": _QUANTISED,
    "sinusoidal_pos_embds": "sinusoidal positions are not predicted; set it to false",
}
# These decide how a model runs, which is up to the workload. An `attn_implementation` could even
# name code on the hub.
_DROPPED = {
    "attn_implementation", "experts_implementation", "dtype", "torch_dtype", "use_cache",
    "output_attentions", "output_hidden_states", "return_dict", "problem_type",
    "gradient_checkpointing", "chunk_size_feed_forward", "pruned_heads", "name_or_path",
}  # fmt: skip
_SIZES_OF_PACKAGES: dict[str, Callable[[Mapping[str, Any]], dict[str, SizeLimits]]] = {
    timm_models.MODEL_TYPE: timm_models.sizes,
    diffusion.MODEL_TYPE: diffusion.sizes,
}
_HEADS = {
    "ForSequenceClassification": Task.SEQUENCE_CLASSIFICATION,
    "ForTokenClassification": Task.TOKEN_CLASSIFICATION,
    "ForQuestionAnswering": Task.QUESTION_ANSWERING,
    "ForMultipleChoice": Task.MULTIPLE_CHOICE,
}
"""Task of a model with such a head. Other heads only show what it was trained for before."""
_LISTED = f"the {len(SUPPORTED)} that `memorymark models --all` lists"
_LAYERS = {
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers",
    "encoder_layers", "decoder_layers", "depths", "num_stages", "num_encoder_blocks",
    "num_hidden_groups", "layers_per_block", "transformer_layers_per_block",
}  # fmt: skip
_COUNTS_LAYERS = re.compile(r"(\w+_)?layers?")
"""Names of other counts of layers, in architectures with names of their own."""
_SIZES = {
    "hidden_size", "intermediate_size", "vocab_size", "num_attention_heads", "head_dim",
    "num_key_value_heads", "max_position_embeddings", "n_embd", "n_head", "n_positions",
    "n_inner", "n_heads", "num_heads", "dim", "hidden_dim", "d_model", "d_ff", "d_kv",
    "encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim", "ffn_dim",
    "decoder_ffn_dim", "image_size", "patch_size", "num_channels", "embed_dim", "hidden_sizes",
    "embedding_size", "num_mel_bins", "max_source_positions", "max_target_positions",
    "projection_dim", "num_labels", "inner_group_num", "window_size",
    "relative_attention_num_buckets", "sliding_window", "num_kv_heads", "stem_channels",
    "num_patches",
}  # fmt: skip
_MAY_BE_ZERO = {"sliding_window"}  # Qwen's are, where a model does not use it


def parse_config(given: object) -> dict[str, Any]:
    """The checked fields of an untrusted ``config.json``, without those that a workload decides.

    Args:
        given: Its text, or the parsed object.

    Raises:
        InvalidInput: With what is wrong, for the field ``config``.
    """
    file = config_text.read(given)
    if why := other_files.why_no_config(file):
        raise _wrong(why)
    read = diffusion.as_config(timm_models.as_config(file))
    read = config_text.bounded(without_what_trainers_leave(read))
    _check_architecture(read)
    config = _cleaned(read, depth=1)
    for name in ("text_config", "vision_config", "decoder"):
        if not isinstance(config.get(name) or {}, dict):
            raise _wrong(f"{name} is not a JSON object")
    layers = sum(_layer_counts(config)) * (_number(config, "inner_group_num") or 1)
    if layers > _MAX_LAYER_COUNT:
        raise _wrong(f"{layers:,} layers are too many (maximum {_MAX_LAYER_COUNT:,})")
    return config


def describe(config: Mapping[str, Any], name: str, task: Task | None = None) -> GivenModel:
    """The model that a config describes.

    Args:
        config: Checked fields.
        name: Its name in the workload; a hub id has a slash.
        task: Its default task; ``None`` for that of the head that the config names, or else its
            architecture's usual one.
    """
    architecture = KNOWN[config["model_type"]]
    task = task or _task_of_head(config, architecture) or architecture.tasks[0]
    return GivenModel(
        name=name,
        display_name=name,
        hub_id=name if "/" in name else "",
        task=task,
        tasks=architecture.tasks,
        refused=architecture.refused,
        description=_description(config, architecture),
        image_processor=architecture.image_processor,
        square_images=architecture.square_images,
        feature_extractor=architecture.feature_extractor,
        label_count=_label_count(config, task),
        package=architecture.package,
        needs=architecture.needs,
        given=config,
        **_sizes(config, architecture),
    )


def _task_of_head(config: Mapping[str, Any], architecture: Architecture) -> Task | None:
    """Task of the class that a config names in ``architectures``, if it has such a head."""
    classes = config.get("architectures")
    name = classes[0] if isinstance(classes, list) and classes else ""
    heads = (task for head, task in _HEADS.items() if str(name).endswith(head))
    return next((task for task in heads if task in architecture.tasks), None)


def _sizes(config: Mapping[str, Any], architecture: Architecture) -> dict[str, Any]:
    """The limits of its input sizes, by name."""
    if of_package := _SIZES_OF_PACKAGES.get(config["model_type"]):
        return of_package(config)
    return {
        "sequence_length": _sequence_length(config, architecture),
        "image_size": _image_size(config, architecture),
        "image_count": _image_count(architecture),
        "frame_count": _frame_count(config),
    }


def _description(config: Mapping[str, Any], architecture: Architecture) -> str:
    if architecture.package:
        return f"Model of {architecture.package}."
    return f"Model with the {config['model_type']} architecture."


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that describes the text model."""
    writer = "decoder" if config.get("model_type") == "vision-encoder-decoder" else "text_config"
    nested: Mapping[str, Any] = config.get(writer) or config
    return nested


def _check_architecture(config: Mapping[str, Any]) -> None:
    """Check that models with the architecture of a config can be trained.

    Refused fields are checked first: custom code comes with a model type of its own.
    """
    for name, reason in _REFUSED.items():
        if config.get(name):
            raise _wrong(f"{name} is not supported: {reason}")
    model_type = config.get("model_type")
    if model_type is None:
        raise _wrong(f"model_type is missing; add one of {_LISTED}")
    architecture = KNOWN.get(model_type) if isinstance(model_type, str) else None
    if architecture is None:
        raise _wrong(f"the model type {shown(model_type)} is not supported; {_choice(model_type)}")
    if not architecture.tasks:
        task, reason = next(iter(architecture.refused.items()))
        raise _wrong(f"{model_type} for {spoken(task)} is not supported: {reason}")


def _choice(model_type: object) -> str:
    """Advice to choose a known model type; names those that are similar."""
    similar = get_close_matches(str(model_type), SUPPORTED, n=5)
    such_as = f", such as {', '.join(similar)}" if similar else ""
    return f"choose one of {_LISTED}{such_as}"


def _cleaned(config: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """The fields that describe the model, each checked."""
    cleaned: dict[str, Any] = {}
    for name, value in config.items():
        if (name.startswith("_") and name != "_class_name") or name in _DROPPED:
            continue
        if value and name in _REFUSED:
            raise _wrong(f"{name} is not supported: {_REFUSED[name]}")
        if name in _SIZES | _LAYERS:
            _check_size(name, value)
        if isinstance(value, float) and math.isnan(value):  # no size is: left to transformers
            continue
        cleaned[name] = _checked(name, value, depth)
    return cleaned


def _checked(name: str, value: Any, depth: int) -> Any:
    if depth > config_text.MAX_DEPTH:
        raise _wrong(f"{shown(name)} is nested too deep")
    if isinstance(value, dict):
        return _cleaned(value, depth + 1)
    if isinstance(value, list):
        return [_checked(name, item, depth + 1) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and abs(value) > _MAX_FLOAT:
        # Infinity, such as a limit of Mamba's time steps. JSON has none, nor has every database.
        return math.copysign(_MAX_FLOAT, value)
    largest = _MAX_NUMBER if isinstance(value, int) and name != "rope_theta" else _MAX_FLOAT
    if not abs(value) <= largest:  # nor is NaN
        raise _wrong(f"{shown(name)} is {shown(value)}, which is out of range")
    return value


def _check_size(name: str, value: Any) -> None:
    """A size is a whole number from 1, or a list of them; ``null`` leaves it to transformers."""
    if value is None or (value == 0 and name in _MAY_BE_ZERO):
        return
    for size in value if isinstance(value, list) else [value]:
        whole = isinstance(size, int) and not isinstance(size, bool)
        if not (whole and 1 <= size <= _MAX_SIZE):
            raise _wrong(f"{name} is {shown(size)}; enter a whole number from 1 to {_MAX_SIZE:,}")


def _layer_counts(config: Mapping[str, Any]) -> Iterator[int]:
    """Every number of layers in a config and in the configs nested in it."""
    for name, value in config.items():
        listed = value if isinstance(value, list) else [value]
        if nested := [part for part in listed if isinstance(part, dict)]:
            for part in nested:
                yield from _layer_counts(part)
        elif name in _LAYERS and value is not None:
            yield sum(value) if isinstance(value, list) else value
        elif _COUNTS_LAYERS.fullmatch(name) and type(value) is int:
            yield abs(value)


def _sequence_length(config: Mapping[str, Any], architecture: Architecture) -> SizeLimits | None:
    usual = _usual("sequence_length", architecture)
    if usual is None:
        return None
    name = architecture.positions
    positions = _number(text_config(config), name) if name else None
    if positions is None:
        positions = architecture.default_positions or MAX_SEQUENCE_LENGTH
    largest = min(positions - architecture.first_position, usual.largest)
    if largest < usual.smallest:
        raise _wrong(f"{name} is too small: {positions} leaves no room for text")
    return SizeLimits(min(usual.default, largest), usual.smallest, largest)


def _usual(size: str, architecture: Architecture) -> SizeLimits | None:
    """The limits of an input size, by the first task that has it."""
    found = (task.facts.sizes.get(size) for task in architecture.tasks)
    return next((limits for limits in found if limits is not None), None)


def _image_size(config: Mapping[str, Any], architecture: Architecture) -> SizeLimits | None:
    """The config's own size as the default, and bounds that include it; else the task decides."""
    usual = _usual("image_size", architecture)
    if usual is None:
        return None
    if architecture.windows:
        usual = _filling_windows(config)
    part = config.get("vision_config") or config
    if "image_size" not in part:  # as where a head reads the features of another model
        part = config.get("backbone_config") or part
    own = _square_side(part.get("image_size")) or _side_of_patches(part)
    if own is None:
        return usual if architecture.windows else None
    if own > MAX_IMAGE_SIZE:
        raise _wrong(f"image_size is {own:,} (maximum {MAX_IMAGE_SIZE:,} pixels per side)")
    if Task.IMAGE_TEXT_TO_TEXT in architecture.tasks and not architecture.image_processor:
        return SizeLimits(own, own, own)  # as they are, its images have one size only
    return SizeLimits(own, min(own, usual.smallest), max(own, usual.largest))


def _frame_count(config: Mapping[str, Any]) -> SizeLimits | None:
    usual = Task.VIDEO_CLASSIFICATION.facts.sizes["frame_count"]
    own = _number(config, "num_frames") or _number(config, "frames_per_clip")
    return None if own is None else replace(usual, default=own, largest=max(own, usual.largest))


def _square_side(size: Any) -> int | None:
    """The side of a square image; ``None`` where a config says nothing, or another shape."""
    if isinstance(size, list):
        return size[0] if len(set(size)) == 1 else None
    found: int | None = size
    return found


def _side_of_patches(part: Mapping[str, Any]) -> int | None:
    """Side of a square of ``num_patches`` patches, in models that read any shape."""
    count = _number(part, "num_patches")
    if count is None:
        return None
    patch = _number(part, "patch_size") or _USUAL_PATCH  # which published configs leave out
    return math.isqrt(count) * patch


def _image_count(architecture: Architecture) -> SizeLimits | None:
    usual = _usual("image_count", architecture)
    return replace(usual, largest=1) if usual and architecture.one_image else usual


def _filling_windows(config: Mapping[str, Any]) -> SizeLimits:
    """Each stage but the first halves the patches; the last must still have a window of them."""
    patch, window = _number(config, "patch_size"), _number(config, "window_size")
    stages = config.get("depths")
    if patch is None or window is None or not isinstance(stages, list):
        raise _wrong("patch_size, window_size or depths is missing; add it")
    smallest = patch * window * 2 ** (len(stages) - 1)
    if smallest > MAX_IMAGE_SIZE:
        raise _wrong(f"its windows need images of {smallest:,} pixels per side: too large")
    default = max(smallest, USUAL_IMAGES.default)
    return SizeLimits(default, smallest, max(default, USUAL_IMAGES.largest))


def _label_count(config: Mapping[str, Any], task: Task) -> int | None:
    """The labels of the config's own head, if it has any."""
    if task.facts.label_count is None:
        return None
    count = _number(config, "num_labels")
    if not count:
        return None
    if count > MAX_LABEL_COUNT:
        raise _wrong(f"it has {count:,} labels (maximum {MAX_LABEL_COUNT:,})")
    return count


def _number(config: Mapping[str, Any], name: str) -> int | None:
    """A checked size that must be a single number."""
    value = config.get(name)
    if isinstance(value, list):
        raise _wrong(f"{name} is a list; enter one whole number")
    return value


def _wrong(message: str) -> InvalidInput:
    return InvalidInput({"config": message})
