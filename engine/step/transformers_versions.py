"""Names and behaviour in which releases of transformers differ, from 4.44 on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from types import FunctionType
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, AutoConfig
from transformers.models.auto import modeling_auto
from transformers.models.auto.auto_factory import _BaseAutoModelClass, _LazyAutoMapping
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES

from ..core.errors import InvalidInput
from ..versions.loaded_modules import namespace
from ..versions.patches import patched

_FORECASTERS = {
    "autoformer": "AutoformerForPrediction",
    "informer": "InformerForPrediction",
    "patchtsmixer": "PatchTSMixerForPrediction",
    "patchtst": "PatchTSTForPrediction",
    "time_series_transformer": "TimeSeriesTransformerForPrediction",
}
"""Classes that transformers has in no table of an auto class."""

_WARNING = "warn_if_padding_and_no_attention_mask"

AutoModelForImageTextToText: Any = (
    getattr(transformers, "AutoModelForImageTextToText", None)
    or transformers.AutoModelForVision2Seq
)
"""Class of models that read images and texts; it has this name since 4.46."""

VERSION = tuple(int(part) for part in transformers.__version__.split(".")[:2])

TRIED_WITH = (5, 17)
"""Release from which on every preset is tried. Older ones lack some models, or train others in a
way that nobody can trace, such as experts that look up the tokens they got."""


class AutoModelForPrediction(_BaseAutoModelClass):  # type: ignore[misc]  # transformers has no types
    """A model that predicts the next values of a time series, by its config."""

    _model_mapping = _LazyAutoMapping(
        CONFIG_MAPPING_NAMES,
        # Releases without that table have all other tables as OrderedDict, and need ours so.
        OrderedDict(
            _FORECASTERS
            | getattr(modeling_auto, "MODEL_FOR_TIME_SERIES_PREDICTION_MAPPING_NAMES", {})
        ),
    )


class AutoModelForSpeech(_BaseAutoModelClass):  # type: ignore[misc]  # transformers has no types
    """A model that writes down what it hears, language models that listen among them."""

    _model_mapping = _LazyAutoMapping(
        CONFIG_MAPPING_NAMES,
        {
            name: written
            for name, written in modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES.items()
            if name in FEATURE_EXTRACTOR_MAPPING_NAMES
        }
        | modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    )


def new_config(model_type: str, **fields: Any) -> Any:
    """The config of a model.

    Raises:
        InvalidInput: If this release has no such models.
    """
    if model_type not in CONFIG_MAPPING:
        raise InvalidInput(
            {
                "model": f"transformers {transformers.__version__} has no models of the type "
                f"{model_type}; use a newer release"
            }
        )
    return AutoConfig.for_model(model_type, **fields)


def text_part(config: Any) -> Any:
    """The config of the part that reads text: the whole one, or one nested in it."""
    if VERSION < (4, 45):
        return getattr(config, "text_config", config)
    return config.get_text_config()


def from_config(
    auto_class: Any, config: Any, dtype: torch.dtype, attention: str | None
) -> torch.nn.Module:
    """A model with random weights; ``attention`` is transformers' default where it is ``None``."""
    options: dict[str, Any] = {"attn_implementation": attention} if attention else {}
    options["dtype" if VERSION >= (4, 56) else "torch_dtype"] = dtype
    model = auto_class.from_config(config, **options)
    model.tie_weights()  # which 5.0 forgets on the meta device
    built: torch.nn.Module = model
    return built


@contextmanager
def building_on_any_device() -> Iterator[None]:
    """Let models be built without values, and of plain Python functions.

    DeBERTa's module compiled functions for its position tables to TorchScript (until 5.18), which
    cannot run on fake tensors; what is traced must be what runs. Models that drop more of their
    later layers read the rates from a tensor (until 5.0), which on the meta device has no values.
    """
    linspace = torch.linspace

    def on_host(*args: Any, **options: Any) -> torch.Tensor:
        return linspace(*args, **{"device": "cpu"} | options)

    with (
        patched(
            torch.jit,
            "script",
            lambda function: function,
            why="functions of TorchScript cannot run on fake tensors",
        ),
        patched(
            torch,
            "linspace",
            on_host,
            why="rates that models read have no values on the meta device",
        ),
    ):
        yield


_CACHE = type(lru_cache(len))


def forget_cached(model: torch.nn.Module) -> None:
    """Empty the caches in which models keep tensors by size, such as a detector's anchors.

    The caches belong to the process. A training run begins with empty ones, but here an earlier
    model of the same sizes may have filled them, with fake tensors too.
    """
    kinds = {base for module in model.modules() for base in type(module).__mro__}
    of_transformers = {kind for kind in kinds if kind.__module__.startswith("transformers.")}
    modules = {kind.__module__ for kind in of_transformers}
    for names in (*map(vars, of_transformers), *map(namespace, modules)):
        for found in list(names.values()):
            for kept in _kept_by(found):
                if type(kept) is _CACHE:
                    kept.cache_clear()


def _kept_by(found: Any) -> Iterator[Any]:
    """Contents of a function's or method's closure; nothing for anything else."""
    function: Any = found.__func__ if type(found) in (staticmethod, classmethod) else found
    for cell in (function.__closure__ or ()) if type(function) is FunctionType else ():
        with suppress(ValueError):  # nothing is in it yet
            yield cell.cell_contents


def enable_checkpointing(model: Any, **options: Any) -> None:
    """Recompute each layer in backward, by PyTorch's non-reentrant variant.

    Args:
        model: A transformers model.
        options: Options of ``torch.utils.checkpoint.checkpoint``.
    """
    options |= {"use_reentrant": False}
    # Renamed in 5.18.
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable(options)
    else:
        model.gradient_checkpointing_enable(options)


def checkpointed_layers(model: torch.nn.Module) -> list[Any]:
    """The layers that are recomputed each by itself, in the order of the model.

    None in releases before 4.53, where the stack around them decides for all of them, and in models
    that have their own way.
    """
    if VERSION < (4, 53):
        return []
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def image_processor(name: str) -> Any:
    """The class of that name; before 5.0 those on Pillow had no suffix."""
    return getattr(transformers, name, None) or getattr(transformers, name.removesuffix("Pil"))


def feature_extractor(name: str) -> Any:
    """The class of that name, which prepares sound."""
    return getattr(transformers, name)
