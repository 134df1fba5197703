"""Lets transformers' models read values that are known, but that fake tensors do not give them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from transformers import PreTrainedModel

from ..versions.loaded_modules import namespace
from ..versions.patches import patched, patched_names

_WARNING = "warn_if_padding_and_no_attention_mask"

_MASKS_OF_WINDOWS = {
    "longformer": "create_bidirectional_mask",
    "led": "_prepare_4d_attention_mask_inverted",
}
"""The function that makes the mask, in the module of each type."""


@contextmanager
def known_in_models(known: Callable[[torch.Tensor], bool]) -> Iterator[None]:
    """Let models read the values of masks and of pools of patches, where they are known.

    Enter it while new tensors are real.

    Args:
        known: Whether the values of a tensor are known.
    """
    with _known_masks(known), _known_pools(), _known_global_attention():
        yield


@contextmanager
def _known_pools() -> Iterator[None]:
    """Let Gemma 4 know which pools of patches are empty, where it knows the patches' positions.

    It finds them by a table of real numbers, which is too large to keep; for real they are found
    here with patches of one number.
    """
    pooler = namespace("transformers.models.gemma4.modeling_gemma4").get("Gemma4VisionPooler")
    pool = getattr(pooler, "_avg_pool_by_positions", None)
    if pool is None:
        yield
        return

    def pool_known(self: Any, patches: Any, positions: Any, length: int) -> tuple[Any, Any]:
        pooled, filled = pool(self, patches, positions, length)
        if (known := getattr(positions, "constant", None)) is not None:
            with _disable_current_modes():
                narrow = torch.zeros(*patches.shape[:2], 1)
                filled.constant = pool(self, narrow, known, length)[1]
        return pooled, filled

    with patched(
        pooler,
        "_avg_pool_by_positions",
        pool_known,
        why="it searches a table of real numbers that is too large to keep",
    ):
        yield


@contextmanager
def _known_global_attention() -> Iterator[None]:
    """Let Longformer and LED know which tokens see all others, where they know the padding.

    They read it from a mask of each token for each other one, which is too large to keep. It is the
    same for each token that looks, so one row is kept.
    """
    with ExitStack() as stack:
        for name, function in _MASKS_OF_WINDOWS.items():
            names = namespace(f"transformers.models.{name}.modeling_{name}")
            if make := names.get(function):
                stack.enter_context(
                    patched_names(
                        [(names, function, _keeping_a_row(make))],
                        why="they read which tokens see all others from a mask too large to keep",
                    )
                )
        yield


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
def _known_masks(known: Callable[[torch.Tensor], bool]) -> Iterator[None]:
    """Let models read the values of masks, where they are known.

    Releases with ``masking_utils`` (from 4.53) do not read fake tensors, and so would keep a mask
    of ones, which training drops. From 5.0 they also search the positions for rows with several
    packed sequences, and drop the mask where training has none. Older releases read them in any
    case.
    """
    with ExitStack() as stack:
        if hasattr(PreTrainedModel, _WARNING):  # of padding in what is given without a mask
            stack.enter_context(
                patched(
                    PreTrainedModel,
                    _WARNING,
                    lambda *given: None,
                    why="it reads the values of what is given without a mask",
                )
            )
        if find_spec("transformers.modeling_attn_mask_utils") is not None:  # OPT's in 5.0
            masks = import_module("transformers.modeling_attn_mask_utils")
            if is_tracing := getattr(masks, "is_tracing", None):
                # It asks for the embeddings' values, and then reads only the mask's.
                stack.enter_context(
                    patched(
                        masks,
                        "is_tracing",
                        lambda _: is_tracing(),
                        why="it asks for the embeddings' values, and then reads only the mask's",
                    )
                )
        if find_spec("transformers.masking_utils") is not None:
            masks = import_module("transformers.masking_utils")
            for name, answer in _answers(masks, known).items():
                stack.enter_context(
                    patched(
                        masks,
                        name,
                        answer,
                        why="fake masks are not read, and would be kept where training drops them",
                    )
                )
        yield


def _answers(
    masks: ModuleType, known: Callable[[torch.Tensor], bool]
) -> dict[str, Callable[..., Any]]:
    """Replacements of functions of ``masking_utils`` that read values."""
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
