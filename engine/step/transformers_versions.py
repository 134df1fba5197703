"""What the releases of transformers call and do differently, from 4.44 on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.auto_factory import _BaseAutoModelClass, _LazyAutoMapping
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES

from ..errors import InvalidInput

_FORECASTERS = {
    "autoformer": "AutoformerForPrediction",
    "informer": "InformerForPrediction",
    "patchtsmixer": "PatchTSMixerForPrediction",
    "patchtst": "PatchTSTForPrediction",
    "time_series_transformer": "TimeSeriesTransformerForPrediction",
}
"""Classes that transformers has in no table of an auto class."""

_WARNING = "warn_if_padding_and_no_attention_mask"

VERSION = tuple(int(part) for part in transformers.__version__.split(".")[:2])


class AutoModelForPrediction(_BaseAutoModelClass):  # type: ignore[misc]  # transformers has no types
    """A model that predicts the next values of a time series, by its config."""

    _model_mapping = _LazyAutoMapping(
        CONFIG_MAPPING_NAMES,
        _FORECASTERS | getattr(modeling_auto, "MODEL_FOR_TIME_SERIES_PREDICTION_MAPPING_NAMES", {}),
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
    return config.get_text_config()


def from_config(
    auto_class: Any, config: Any, dtype: torch.dtype, *, eager: bool
) -> torch.nn.Module:
    """A model with random weights; attention is transformers' default unless ``eager``."""
    options: dict[str, Any] = {"attn_implementation": "eager"} if eager else {}
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
        patch("torch.jit.script", lambda function: function),
        patch("torch.linspace", on_host),
    ):
        yield


def forget_cached(model: torch.nn.Module) -> None:
    """Empty the caches in which models keep tensors by size, such as a detector's anchors.

    The caches belong to the process. A training run begins with empty ones, but here an earlier
    model of the same sizes may have filled them, with fake tensors too.
    """
    kinds = {base for module in model.modules() for base in type(module).__mro__}
    of_transformers = {kind for kind in kinds if kind.__module__.startswith("transformers.")}
    for place in of_transformers | {sys.modules[kind.__module__] for kind in of_transformers}:
        for found in list(vars(place).values()):
            function = getattr(found, "__func__", found)
            for cell in getattr(function, "__closure__", None) or ():
                if clear := getattr(cell.cell_contents, "cache_clear", None):
                    clear()


def enable_checkpointing(model: Any) -> None:
    """Recompute each layer in backward, by PyTorch's non-reentrant variant."""
    # Renamed in 5.18.
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable({"use_reentrant": False})
    else:
        model.gradient_checkpointing_enable({"use_reentrant": False})


def image_processor(name: str) -> Any:
    """The class of that name; before 5.0 those on Pillow had no suffix."""
    return getattr(transformers, name, None) or getattr(transformers, name.removesuffix("Pil"))


def feature_extractor(name: str) -> Any:
    """The class of that name, which prepares sound."""
    return getattr(transformers, name)


@contextmanager
def known_pools() -> Iterator[None]:
    """Let Gemma 4 know which pools of patches are empty, where it knows the patches' positions.

    It finds them by a table of real numbers, which is too large to keep; for real they are found
    here with patches of one number.
    """
    gemma = sys.modules.get("transformers.models.gemma4.modeling_gemma4")
    if gemma is None:
        yield
        return
    pool = gemma.Gemma4VisionPooler._avg_pool_by_positions

    def pool_known(self: Any, patches: Any, positions: Any, length: int) -> tuple[Any, Any]:
        pooled, filled = pool(self, patches, positions, length)
        if (known := getattr(positions, "constant", None)) is not None:
            with _disable_current_modes():
                narrow = torch.zeros(*patches.shape[:2], 1)
                filled.constant = pool(self, narrow, known, length)[1]
        return pooled, filled

    with patch.object(gemma.Gemma4VisionPooler, "_avg_pool_by_positions", pool_known):
        yield


@contextmanager
def known_global_attention() -> Iterator[None]:
    """Let Longformer and LED know which tokens see all others, where they know the padding.

    They read it from a mask of each token for each other one, which is too large to keep. It is the
    same for each token that looks, so one row is kept.
    """
    with ExitStack() as stack:
        for name, function in _MASKS_OF_WINDOWS.items():
            module = sys.modules.get(f"transformers.models.{name}.modeling_{name}")
            if make := getattr(module, function, None):
                stack.enter_context(patch.object(module, function, _keeping_a_row(make)))
        yield


_MASKS_OF_WINDOWS = {
    "longformer": "create_bidirectional_mask",
    "led": "_prepare_4d_attention_mask_inverted",
}


def _keeping_a_row(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes a mask, with what it adds: nothing where 1, no attention where 0."""

    def made(*given: Any, **named: Any) -> Any:
        mask = make(*given, **named)
        padding = named.get("attention_mask", given[0] if given else None)
        known = getattr(padding, "constant", None)
        if known is not None and isinstance(mask, FakeTensor) and mask.constant is None:
            with _disable_current_modes():
                row = (1 - known) * torch.finfo(mask.dtype).min
                mask.constant = row[:, None, None].expand(mask.shape)
            mask.fake_mode.fake_tensor_converter.add_constant_storage_mapping(mask)
        return mask

    return made


@contextmanager
def known_masks(known: Callable[[torch.Tensor], bool]) -> Iterator[None]:
    """Let masks be asked for their values, where they are known.

    Releases with ``masking_utils`` (from 4.53) do not ask fake tensors, and so would keep a mask of
    ones, which training drops. From 5.0 they also search the positions for rows with several packed
    sequences, and drop the mask where training has none. Older releases ask in any case.

    Enter it while new tensors are real.

    Args:
        known: Whether the values of a tensor are known.
    """
    with ExitStack() as stack:
        if hasattr(PreTrainedModel, _WARNING):  # of padding in what is given without a mask
            stack.enter_context(patch.object(PreTrainedModel, _WARNING, lambda *given: None))
        if find_spec("transformers.modeling_attn_mask_utils") is not None:  # OPT's in 5.0
            masks = import_module("transformers.modeling_attn_mask_utils")
            if is_tracing := getattr(masks, "is_tracing", None):
                # It asks for the embeddings' values, and then reads only the mask's.
                stack.enter_context(patch.object(masks, "is_tracing", lambda _: is_tracing()))
        if find_spec("transformers.masking_utils") is not None:
            masks = import_module("transformers.masking_utils")
            for name, answer in _answers(masks, known).items():
                stack.enter_context(patch.object(masks, name, answer))
        yield


def _answers(
    masks: ModuleType, known: Callable[[torch.Tensor], bool]
) -> dict[str, Callable[..., Any]]:
    """What takes the place of functions of ``masking_utils``; where these read values."""
    find = masks.find_packed_sequence_indices

    def find_none(position_ids: torch.Tensor) -> None:
        find(position_ids)

    answers: dict[str, Callable[..., Any]] = {}
    if find(torch.arange(2)[None]) is None:
        answers["find_packed_sequence_indices"] = find_none
    if is_tracing := getattr(masks, "is_tracing", None):

        def is_tracing_unknown(tensor: torch.Tensor | None = None) -> bool:
            return bool(is_tracing(None if tensor is None or known(tensor) else tensor))

        answers["is_tracing"] = is_tracing_unknown
    if hasattr(masks, "fast_all"):  # compares a sum, whose value is not known
        answers["fast_all"] = torch.Tensor.all
    return answers
