"""What the releases of transformers call and do differently, from 4.44 on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import torch
import transformers

VERSION = tuple(int(part) for part in transformers.__version__.split(".")[:2])


def from_config(
    auto_class: Any, config: Any, dtype: torch.dtype, *, eager: bool
) -> torch.nn.Module:
    """A model with random weights; attention is transformers' default unless ``eager``."""
    options: dict[str, Any] = {"attn_implementation": "eager"} if eager else {}
    options["dtype" if VERSION >= (4, 56) else "torch_dtype"] = dtype
    model: torch.nn.Module = auto_class.from_config(config, **options)
    return model


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

    Releases with ``masking_utils`` (4.53) ask no fake tensor, and so would keep a mask of ones
    where training drops it. They also search the positions for rows with several packed sequences,
    and would assume the worst case, a mask, where training has none. Older ones ask in any case.

    Args:
        known: Whether the values of a tensor are known.
    """
    with ExitStack() as stack:
        if find_spec("transformers.masking_utils") is not None:
            masks = import_module("transformers.masking_utils")
            find = masks.find_packed_sequence_indices

            def find_none(position_ids: torch.Tensor) -> None:
                find(position_ids)

            stack.enter_context(patch.object(masks, find.__name__, find_none))
            if hasattr(masks, "is_tracing"):
                is_tracing = masks.is_tracing

                def is_tracing_unknown(tensor: torch.Tensor | None = None) -> bool:
                    return bool(is_tracing(None if tensor is None or known(tensor) else tensor))

                stack.enter_context(patch.object(masks, "is_tracing", is_tracing_unknown))
            if hasattr(masks, "fast_all"):  # compares a sum, whose value is not known
                stack.enter_context(patch.object(masks, "fast_all", torch.Tensor.all))
        yield
