"""Checks an untrusted ``config.json`` before a model is built from it.

Everything here is plain data and bounded: no torch, no network. What transformers itself refuses
shows where the model is built (:mod:`engine.step.building`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..errors import InvalidInput
from ..parsing import shown
from .architectures import ARCHITECTURES, SUPPORTED, Architecture
from .kinds import (
    DEFAULT_LABEL_COUNTS,
    LARGEST_IMAGE_SIZE,
    LARGEST_SEQUENCE_LENGTH,
    GivenModel,
    SizeLimits,
    Task,
    spoken,
)

LARGEST_CONFIG_BYTES = 2**20
LARGEST_LABEL_COUNT = 1_000_000

_LARGEST_DEPTH = 8  # of nested objects and lists; published configs have three
_LARGEST_NUMBER = 10_000_000  # above every size of a published model, vocabularies included
_LARGEST_FLOAT = 1e12
_LARGEST_LIST = 4_096
_LARGEST_LAYER_COUNT = 1_000  # of all kinds; published models have at most a few hundred

_USUAL_IMAGES = SizeLimits(default=224, smallest=32, largest=1_024)
_USUAL_TOKENS = {
    Task.SEQUENCE_CLASSIFICATION: 128,
    Task.TOKEN_CLASSIFICATION: 128,
    Task.MASKED_LANGUAGE_MODELLING: 128,
    Task.CAUSAL_LANGUAGE_MODELLING: 2_048,
    Task.SEQUENCE_TO_SEQUENCE: 512,
    Task.CONTRASTIVE: 77,
    Task.SPEECH_RECOGNITION: 128,
}

_QUANTISED = "quantised weights are not predicted; use the config of the model they were made from"
_REFUSED = {
    "auto_map": "it refers to custom code, which is never run here; use an architecture that is "
    "part of transformers",
    "quantization_config": _QUANTISED,
    "compression_config": _QUANTISED,
    "per_layer_config": "models configured layer by layer are not predicted",
    "sinusoidal_pos_embds": "sinusoidal positions are not predicted; set it to false",
}
# These decide how a model runs, which is up to the workload. An `attn_implementation` could even
# name code on the hub.
_DROPPED = {
    "attn_implementation", "experts_implementation", "dtype", "torch_dtype", "use_cache",
    "output_attentions", "output_hidden_states", "return_dict", "problem_type",
    "gradient_checkpointing", "chunk_size_feed_forward", "pruned_heads", "name_or_path",
}  # fmt: skip
_LISTED = f"the {len(SUPPORTED)} that `memorymark models --all` lists"
_LAYERS = {
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers",
    "encoder_layers", "decoder_layers", "depths", "num_stages", "num_encoder_blocks",
    "num_hidden_groups",
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
}  # fmt: skip


def parse_config(given: object) -> dict[str, Any]:
    """The checked fields of an untrusted ``config.json``, without those that a workload decides.

    Args:
        given: Its text, or the parsed object.

    Raises:
        InvalidInput: With what is wrong, for the field ``config``.
    """
    read = _read(given)
    architecture = _architecture(read)
    config = _cleaned(read, depth=1)
    for name in ("text_config", "vision_config"):
        if not isinstance(config.get(name) or {}, dict):
            raise _wrong(f"{name} is not a JSON object")
    layers = sum(_layer_counts(config)) * (_number(config, "inner_group_num") or 1)
    if layers > _LARGEST_LAYER_COUNT:
        raise _wrong(f"{layers:,} layers are too many (maximum {_LARGEST_LAYER_COUNT:,})")
    text = text_config(config)
    for name in architecture.needs:
        if _number(text, name) is None:
            raise _missing(name)
    return config


def read_config_file(path: Path) -> str:
    """The text of a ``config.json``, cut off just above the largest allowed size.

    Raises:
        InvalidInput: If there is no such file, or it is not text.
    """
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_CONFIG_BYTES + 1).decode()
    except UnicodeDecodeError as error:
        raise _wrong("this is not JSON, which is UTF-8 text") from error
    except (OSError, ValueError) as error:
        raise _wrong(f"{shown(path)} cannot be read: {error}") from error


def describe(config: Mapping[str, Any], name: str) -> GivenModel:
    """The model that a config describes.

    Args:
        config: Checked fields.
        name: Its name in the workload; a hub id has a slash.
    """
    architecture = ARCHITECTURES[config["model_type"]]
    task = architecture.tasks[0]
    return GivenModel(
        name=name,
        display_name=name,
        hub_id=name if "/" in name else "",
        kind=architecture.kind,
        task=task,
        tasks=architecture.tasks,
        refused=architecture.refused,
        description=f"Model with the {config['model_type']} architecture.",
        sequence_length=_sequence_length(config, architecture),
        image_size=_image_size(config, architecture) if architecture.image_processor else None,
        image_processor=architecture.image_processor,
        label_count=_label_count(config, task),
        given=config,
    )


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that describes the text model."""
    nested: Mapping[str, Any] = config.get("text_config") or config
    return nested


def _read(given: object) -> dict[str, Any]:
    """The config as a parsed object, of bounded size and without cycles."""
    try:
        text = given if isinstance(given, str | bytes) else json.dumps(given)
        if len(text) > LARGEST_CONFIG_BYTES:
            raise _wrong(f"it is larger than {LARGEST_CONFIG_BYTES // 2**20} MiB")
        read = json.loads(text)
    except RecursionError:
        raise _wrong("its objects are nested too deep") from None
    except (TypeError, ValueError) as error:
        raise _wrong(f"this is not JSON: {shown(error)}") from error
    if not isinstance(read, dict):
        raise _wrong("this is not a JSON object; enter the contents of a config.json")
    return read


def _architecture(config: Mapping[str, Any]) -> Architecture:
    """The architecture of a config.

    Refused fields are checked first: custom code comes with a model type of its own.
    """
    for name, reason in _REFUSED.items():
        if config.get(name):
            raise _wrong(f"{name} is not supported: {reason}")
    model_type = config.get("model_type")
    if model_type is None:
        raise _wrong(f"model_type is missing; add one of {_LISTED}")
    architecture = ARCHITECTURES.get(model_type) if isinstance(model_type, str) else None
    if architecture is None:
        raise _wrong(f"the model type {shown(model_type)} is not supported; {_choice(model_type)}")
    if not architecture.tasks:
        task, reason = next(iter(architecture.refused.items()))
        raise _wrong(f"{model_type} for {spoken(task)} is not supported: {reason}")
    return architecture


def _choice(model_type: object) -> str:
    """Which model types there are, those with a similar name by name."""
    similar = get_close_matches(str(model_type), SUPPORTED, n=5)
    such_as = f", such as {', '.join(similar)}" if similar else ""
    return f"choose one of {_LISTED}{such_as}"


def _cleaned(config: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """The fields that describe the model, each checked."""
    cleaned: dict[str, Any] = {}
    for name, value in config.items():
        if name.startswith("_") or name in _DROPPED:
            continue
        if value and name in _REFUSED:
            raise _wrong(f"{name} is not supported: {_REFUSED[name]}")
        if name in _SIZES | _LAYERS:
            _check_size(name, value)
        cleaned[name] = _checked(name, value, depth)
    return cleaned


def _checked(name: str, value: Any, depth: int) -> Any:
    if depth > _LARGEST_DEPTH:
        raise _wrong(f"{shown(name)} is nested too deep")
    if isinstance(value, dict):
        return _cleaned(value, depth + 1)
    if isinstance(value, list):
        if len(value) > _LARGEST_LIST:
            raise _wrong(f"{shown(name)} is too long a list (maximum {_LARGEST_LIST:,})")
        return [_checked(name, item, depth + 1) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    largest = _LARGEST_NUMBER if isinstance(value, int) and name != "rope_theta" else _LARGEST_FLOAT
    if not math.isfinite(value) or abs(value) > largest:
        raise _wrong(f"{shown(name)} is {shown(value)}, which is out of range")
    return value


def _check_size(name: str, value: Any) -> None:
    """A size is a whole number from 1, or a list of them; ``null`` leaves it to transformers."""
    if value is None:
        return
    for size in value if isinstance(value, list) else [value]:
        whole = isinstance(size, int) and not isinstance(size, bool)
        if not (whole and 1 <= size <= _LARGEST_NUMBER):
            raise _wrong(
                f"{name} is {shown(size)}; enter a whole number from 1 to {_LARGEST_NUMBER:,}"
            )


def _layer_counts(config: Mapping[str, Any]) -> Iterator[int]:
    """Every number of layers in a config and in the configs nested in it."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _layer_counts(value)
        elif name in _LAYERS and value is not None:
            yield sum(value) if isinstance(value, list) else value
        elif _COUNTS_LAYERS.fullmatch(name) and type(value) is int:
            yield abs(value)


def _sequence_length(config: Mapping[str, Any], architecture: Architecture) -> SizeLimits | None:
    usual = _USUAL_TOKENS.get(architecture.tasks[0])
    if usual is None:
        return None
    name = architecture.positions
    positions = _number(text_config(config), name) if name else None
    if positions is None:
        if architecture.learned_positions:
            raise _missing(name)
        positions = LARGEST_SEQUENCE_LENGTH
    largest = min(positions - architecture.first_position, LARGEST_SEQUENCE_LENGTH)
    # A language model predicts the next token, so there must be one.
    smallest = 2 if architecture.tasks[0] is Task.CAUSAL_LANGUAGE_MODELLING else 1
    if largest < smallest:
        raise _wrong(f"{name} is too small: {positions} leaves no room for text")
    return SizeLimits(min(usual, largest), smallest, largest)


def _image_size(config: Mapping[str, Any], architecture: Architecture) -> SizeLimits:
    """The config's own size as the default, and bounds that include it."""
    usual = _USUAL_IMAGES
    if architecture.windows:
        usual = _filling_windows(config)
    own = _number(config.get("vision_config") or config, "image_size")
    if own is None:
        return usual
    if own > LARGEST_IMAGE_SIZE:
        raise _wrong(f"image_size is {own:,} (maximum {LARGEST_IMAGE_SIZE:,} pixels per side)")
    return SizeLimits(own, min(own, usual.smallest), max(own, usual.largest))


def _filling_windows(config: Mapping[str, Any]) -> SizeLimits:
    """Each stage but the first halves the patches; the last must still have a window of them."""
    patch, window = _number(config, "patch_size"), _number(config, "window_size")
    stages = config.get("depths")
    if patch is None or window is None or not isinstance(stages, list):
        raise _wrong("patch_size, window_size or depths is missing; add it")
    smallest = patch * window * 2 ** (len(stages) - 1)
    if smallest > LARGEST_IMAGE_SIZE:
        raise _wrong(f"its windows need images of {smallest:,} pixels per side: too large")
    default = max(smallest, _USUAL_IMAGES.default)
    return SizeLimits(default, smallest, max(default, _USUAL_IMAGES.largest))


def _label_count(config: Mapping[str, Any], task: Task) -> int | None:
    """The labels of the config's own head, if it has any."""
    if task not in DEFAULT_LABEL_COUNTS:
        return None
    labels = config.get("id2label")
    count = len(labels) if isinstance(labels, dict) else _number(config, "num_labels")
    if not count:
        return None
    if count > LARGEST_LABEL_COUNT:
        raise _wrong(f"it has {count:,} labels (maximum {LARGEST_LABEL_COUNT:,})")
    return count


def _number(config: Mapping[str, Any], name: str) -> int | None:
    """A checked size that must be a single number."""
    value = config.get(name)
    if isinstance(value, list):
        raise _wrong(f"{name} is a list; enter one whole number")
    return value


def _missing(name: str) -> InvalidInput:
    return _wrong(f"{name} is missing; add it")


def _wrong(message: str) -> InvalidInput:
    return InvalidInput({"config": message})
