"""What the releases of transformers call and do differently, from 4.44 on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
import transformers
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedModel

from ..errors import InvalidInput

_WARNING = "warn_if_padding_and_no_attention_mask"

VERSION = tuple(int(part) for part in transformers.__version__.split(".")[:2])


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
