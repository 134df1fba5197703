"""Gradient checkpointing, where a model offers it or has a list of like blocks; and none at all."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, MutableSet
from functools import partial
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from torch.utils import checkpoint as torch_checkpoint

from ...versions.loaded_modules import namespace
from ...versions.patches import patch_code, patch_for_good
from ..on_import import when_imported
from .precision import Note

_OFFERS = {
    "gradient_checkpointing_enable": "supports_gradient_checkpointing",
    "enable_gradient_checkpointing": "_supports_gradient_checkpointing",
    "set_grad_checkpointing": None,
}
"""Methods of transformers, diffusers and timm that switch it on, and what says whether a model has
it, if anything does."""
_OPTIONS = {"gradient_checkpointing_kwargs": {"use_reentrant": False}}
_WRITTEN = 'gradient_checkpointing_kwargs={"use_reentrant": False}'
_WRAPPERS = ("_orig_mod", "module")
"""Names under which torch.compile and DistributedDataParallel hold a model."""
_NAME = "_memorymark_checkpoint"
_OF_CHECKPOINT = (
    *("use_reentrant", "context_fn", "determinism_check", "debug"),
    *("preserve_rng_state", "early_stop"),
)
"""Arguments of ``checkpoint`` that are not the function's."""


class Checkpointing:
    """Gradient checkpointing of the models that a script trains.

    Args:
        note: Takes the line that does it in the script.
    """

    def __init__(self, note: Note) -> None:
        self._note = note
        self._by_arguments = False
        self._checkpointed: WeakSet[nn.Module] = WeakSet()
        when_imported({"transformers.training_args": self._ask_transformers})

    def switch_on(self, models: Iterable[nn.Module]) -> None:
        """Switch it on in models, before the first forward pass of one of them.

        What has it already, because an earlier call or the script's Trainer switched it on, is
        left alone.
        """
        if self._by_arguments:
            return
        done = self._checkpointed
        lines = [
            line
            for one in models
            for line in [*_offered(one, done)] or [*_blocks_wrapped(one, done)]
        ]
        if lines:
            self._note("; ".join(dict.fromkeys(lines)))

    def _ask_transformers(self) -> None:
        def switch_on(given: Any) -> None:
            given.gradient_checkpointing = True
            self._by_arguments = True
            self._note("TrainingArguments(gradient_checkpointing=True)")

        _before_check(switch_on)


def switch_off(note: Note) -> None:
    """Let nothing be computed again in the backward pass."""

    def not_by_arguments(given: Any) -> None:
        if given.gradient_checkpointing:
            given.gradient_checkpointing = False
            note("TrainingArguments(gradient_checkpointing=False)")

    def of_no_model() -> None:
        patch_for_good(
            namespace("transformers.modeling_utils")["PreTrainedModel"],
            "gradient_checkpointing_enable",
            lambda *_, **__: note("leave out model.gradient_checkpointing_enable()"),
            why="a script is tried without gradient checkpointing",
        )

    def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        note("call blocks without torch.utils.checkpoint.checkpoint")
        return function(*args, **{k: v for k, v in kwargs.items() if k not in _OF_CHECKPOINT})

    when_imported(
        {
            "transformers.training_args": partial(_before_check, not_by_arguments),
            "transformers.modeling_utils": of_no_model,
        }
    )
    patch_for_good(
        torch_checkpoint, _NAME, run, why="a script is tried without gradient checkpointing"
    )
    patch_code(
        inspect.unwrap(torch_checkpoint.checkpoint),
        _call_by_name,
        why="modules that imported it by name do the same",
    )


def _call_by_name(*args: Any, **kwargs: Any) -> Any:
    """Stands for ``checkpoint``, among whose names it finds what to do."""
    return _memorymark_checkpoint(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821


def _before_check(change: Callable[[Any], None]) -> None:
    """Change TrainingArguments before it checks itself."""
    arguments = namespace("transformers.training_args")["TrainingArguments"]
    check = arguments.__post_init__

    def checked(given: Any) -> None:
        change(given)
        check(given)

    patch_for_good(
        arguments,
        "__post_init__",
        checked,
        why="gradient checkpointing is tried in a script as it is",
    )


def _offered(model: nn.Module, done: MutableSet[nn.Module]) -> Iterator[str]:
    """Switch it on where a part of a model offers it; gives the calls that do so.

    Args:
        model: The model.
        done: Modules that have it; those that get it are added.
    """
    for module in model.modules():
        method = next((name for name, says in _OFFERS.items() if _has(module, name, says)), None)
        if module in done or method is None or not _trains(module):
            continue
        done |= {*module.modules()}
        is_transformers = method == "gradient_checkpointing_enable"
        getattr(module, method)(**_OPTIONS if is_transformers else {})
        yield f"model.{method}({_WRITTEN if is_transformers else ''})"


def _has(module: nn.Module, method: str, says: str | None) -> bool:
    return callable(getattr(module, method, None)) and (
        says is None or getattr(module, says, False)
    )


def _blocks_wrapped(model: nn.Module, done: MutableSet[nn.Module]) -> Iterator[str]:
    """Checkpoint each of several like blocks in a list; gives what does so in the code.

    The arguments are those of :func:`_offered`.
    """
    for name, held in model.named_modules():
        if held in done or not isinstance(held, nn.ModuleList | nn.Sequential):
            continue
        free = [one for one in held.children() if one not in done]
        kinds = Counter(map(type, filter(_is_block, free)))
        kind, count = next(iter(kinds.most_common(1)), (None, 0))
        if kind is None or count < 2:
            continue
        for block in free:
            if type(block) is kind:
                done |= {*block.modules()}
                block.forward = partial(
                    torch_checkpoint.checkpoint, block.forward, use_reentrant=False
                )
        path = ".".join(part for part in name.split(".") if part not in _WRAPPERS)
        of = f" in {path}" if path else ""
        yield f"checkpoint(block, x, use_reentrant=False)  # in place of block(x), each block{of}"


def _is_block(module: nn.Module) -> bool:
    """Whether it is made of layers, some of which are trained."""
    return any(True for _ in module.children()) and _trains(module)


def _trains(module: nn.Module) -> bool:
    return any(weight.requires_grad for weight in module.parameters())


def trains_now(module: nn.Module) -> bool:
    """Whether a forward pass of a module now is one of training."""
    return torch.is_grad_enabled() and _trains(module)
