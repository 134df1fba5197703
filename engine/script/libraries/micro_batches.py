"""Micro-batches of transformers' Trainer that are like the one before: recorded, but not run again.

A step that accumulates gradients runs its forward and backward pass once for each micro-batch.
From the second one on they do the same, as long as their inputs do not differ in size. Where two in
a row were recorded and are alike in every allocation and every operation, the next one like them is
recorded as they were. Everything around it, such as loading the batches, runs as it is.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from ...tracing.excerpts import Excerpt, Moment
from ...tracing.recorder import MemoryRecorder
from ...versions.patches import patch_for_good
from ..devices.process_group import world_size
from ..on_import import when_imported

_TRAINER = "transformers.trainer"
_MASK = 2
"""A mask has two different values, and code asks which of them occur in it."""


@dataclass(frozen=True)
class _Seen:
    """A micro-batch that was run.

    Attributes:
        excerpt: The part of the trace that was recorded of it.
        loss: Makes the loss that it returns.
        sure: Whether one before it was alike.
        syncing: For it and those alike, whether it was the last one before the optimizer's step.
    """

    excerpt: Excerpt
    loss: Callable[[], torch.Tensor]
    sure: bool
    syncing: frozenset[bool]


class MicroBatches:
    """The micro-batches of a Trainer, in the process in which its script is traced.

    Args:
        recorder: Recorder of the trace.
        first: Called before the first of them.
        repeated: Called for each that is not run.

    Attributes:
        all_run: Whether every one is run.
        of_step: Number of them in the step so far.
    """

    all_run = False

    def __init__(
        self,
        recorder: MemoryRecorder,
        first: Callable[[], object],
        repeated: Callable[[], object],
    ) -> None:
        self.of_step = 0
        self._repeats = self._runs = 0
        self._recorder = recorder
        self._first = first
        self._repeated = repeated
        self._begun = False
        self._seen: dict[Hashable, _Seen] = {}  # the latest, by what decides what one does

    @property
    def caveats(self) -> list[str]:
        """Caveats about micro-batches that were not run."""
        if not self._repeats:
            return []
        return [
            f"{self._repeats:,} of the {self._runs + self._repeats:,} micro-batches of the traced "
            "steps were not run: their inputs had the sizes of earlier ones, of which two were "
            "traced and took the same memory and work. They count in full."
        ]

    def follow(self) -> None:
        """Follow those of every Trainer from now on; nothing of it can be undone."""
        when_imported({_TRAINER: self._follow})

    def _follow(self) -> None:
        trainer = sys.modules[_TRAINER].Trainer
        run = trainer.training_step

        def training_step(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            work = partial(run, trainer, *args, **kwargs)
            return self._run(work, trainer, (args, kwargs)) if _is_followed(trainer) else work()

        patch_for_good(
            trainer,
            "training_step",
            training_step,
            why="micro-batches like earlier ones are recorded, not run",
        )

    def _run(self, work: Callable[[], Any], trainer: Any, given: Any) -> Any:
        """Run a micro-batch, or record it like the last one.

        Args:
            work: Runs it.
            trainer: The trainer that runs it.
            given: The arguments.
        """
        if not self._begun:
            self._begun = True
            self._first()
        self.of_step += 1
        looks, syncing = (*_state(trainer), *_looks(given)), trainer.accelerator.sync_gradients
        seen = self._seen.pop(looks, None)
        if seen is not None and seen.sure and syncing in seen.syncing and not self.all_run:
            self._seen[looks] = seen
            self._repeated()
            self._repeats += 1
            return self._recorder.repeat(seen.excerpt, seen.loss)
        self._runs += 1
        begin, drawn = Moment.now(self._recorder.trace), _drawn()
        loss = work()
        if not _is_plain(loss) or _drawn() != drawn:
            return loss
        excerpt = self._recorder.excerpt(begin, loss)
        if excerpt is not None:
            make = partial(torch.empty, loss.shape, dtype=loss.dtype, device=loss.device)
            sure = seen is not None and excerpt.is_like(seen.excerpt)
            before = seen.syncing if sure and seen is not None else frozenset()
            self._seen[looks] = _Seen(excerpt, make, sure, before | {syncing})
        return loss


def _is_followed(trainer: Any) -> bool:
    """Whether its micro-batches leave nothing to other processes or to an engine of its own."""
    engines = ("is_deepspeed_enabled", "is_fsdp_enabled")
    return world_size() == 1 and not any(getattr(trainer, name, False) for name in engines)


def _state(trainer: Any) -> Iterator[Hashable]:
    """State that decides, besides its inputs, what a micro-batch does."""
    yield id(trainer)
    for parameter in trainer.model.parameters():
        yield parameter.requires_grad
        yield parameter.grad is not None


def _looks(value: Any) -> Iterator[Hashable]:
    """Comparable properties of the arguments of a micro-batch."""
    if isinstance(value, torch.Tensor):
        yield value.dtype, value.device, value.shape, value.stride(), value.requires_grad
        yield _known(value)
    elif isinstance(value, Mapping):
        yield tuple(value)
        for one in value.values():
            yield from _looks(one)
    elif isinstance(value, list | tuple):
        yield len(value)
        for one in value:
            yield from _looks(one)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield type(value).__name__
    elif isinstance(value, Hashable):
        yield value
    else:
        yield id(value)


def _known(tensor: torch.Tensor) -> Hashable:
    """Facts about known values that code may depend on: which occur in a mask, or any below 0."""
    values = tensor.constant if isinstance(tensor, FakeTensor) else None
    if values is None or not values.numel():
        return None
    with _disable_current_modes():
        different = values.unique()
        few = len(different) <= _MASK and values.numel() > 1
        return tuple(different.tolist()) if few else bool(different[0] < 0)


def _is_plain(loss: Any) -> bool:
    """Whether a loss is a tensor without a graph behind it, and nobody else has its memory."""
    return (
        isinstance(loss, FakeTensor)
        and not loss.requires_grad
        and loss.is_contiguous()
        and loss.untyped_storage().nbytes() == loss.nbytes
        and _uses(loss) == _ALONE
    )


def _uses(tensor: torch.Tensor) -> int:
    """Number of references to its memory; this function adds one."""
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


_ALONE = _uses(torch.empty(()))


def _drawn() -> Hashable:
    """State of the random number generators: what is drawn may decide what is done."""
    arrays: Any = numpy.random.get_state()
    name, keys, *rest = arrays
    return random.getstate(), name, keys.tobytes(), *rest
