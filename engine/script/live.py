"""Training that already lives in this process: a Trainer, a Lightning module, a step function.

It is traced in a fork, as a script is. What it holds was made before, of real tensors: in the fork,
the tensors of its modules and optimizers become fake ones, where they are.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import InvalidInput
from .factory import cannot_be_called, innermost, line_in, summary

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

_LIGHTNING = ("lightning.pytorch", "pytorch_lightning")

_KINDS = (
    "pass a Trainer of transformers or trl, a LightningModule and its DataLoader, or a function "
    "that takes a batch size and runs one training step"
)


@dataclass(frozen=True, eq=False)
class Live:
    """Training that can be run from here on.

    Attributes:
        name: For messages.
        train: Runs it with a batch size, for at least as many steps as are traced.
        held: Objects that hold its modules and optimizers.
        batch_size: Its own batch size; ``None`` if it has none.
        gradient_accumulation: Micro-batches per step.
        learns_batch_size_by: Description of what sets its batch size.
    """

    name: str
    train: Callable[[int], object]
    held: object
    batch_size: int | None = None
    gradient_accumulation: int = 1
    learns_batch_size_by: str = "the batch size that the function is called with"

    @classmethod
    def of(
        cls,
        training: object,
        loader: object = None,
        trainer_options: Mapping[str, Any] | None = None,
    ) -> Live:
        """The training that these objects set up.

        Args:
            training: A Trainer, a Lightning module, or a function that takes a batch size.
            loader: The data of a Lightning module.
            trainer_options: Options of the Lightning ``Trainer`` that will train it.

        Raises:
            InvalidInput: For ``training`` or ``loader``.
        """
        from torch.nn import Module  # a request about a script need not load torch
        from torch.utils.data import DataLoader

        package = _lightning_package(training)
        if package is not None:
            if not isinstance(loader, DataLoader):
                raise InvalidInput({"loader": "pass the DataLoader that it trains with"})
            return _of_lightning(training, loader, package, trainer_options or {})
        if loader is not None:
            raise InvalidInput({"loader": "only a LightningModule takes one; leave it out"})
        if trainer_options is not None:
            raise InvalidInput({"trainer_options": "these are for a LightningModule; leave out"})
        if _is_a(training, "transformers.trainer", "Trainer"):
            return _of_trainer(training)
        if not callable(training) or isinstance(training, type | Module):
            raise InvalidInput({"training": f"{type(training).__name__} cannot run; {_KINDS}"})
        if why := cannot_be_called(training, 1):
            raise InvalidInput({"training": f"it must take just a batch size: {why}"})
        return _of_function(training)

    @property
    def wants_data(self) -> str:
        """Advice for when the batch size changes nothing."""
        return f"its data must have as many samples as {self.learns_batch_size_by}"

    def describe(self, error: BaseException) -> str:
        """An error as text: where in this folder's code it came from, and what it was."""
        return f"{self.where(error)}: {summary(error)}"

    def where(self, error: BaseException) -> str:
        """The innermost line of this folder's code in an error's traceback."""
        return line_in(Path.cwd(), error)

    def line(self, stack: traceback.StackSummary) -> str:
        """The same for a stack."""
        return innermost(Path.cwd(), stack)


def _is_a(value: object, module: str, name: str) -> bool:
    """Whether a value is of a class, which need not be installed."""
    return any((kind.__module__, kind.__name__) == (module, name) for kind in type(value).__mro__)


def _lightning_package(value: object) -> str | None:
    """The package whose ``LightningModule`` a value is: it has been published under two names."""
    for kind in type(value).__mro__:
        if kind.__name__ == "LightningModule":
            return next((name for name in _LIGHTNING if kind.__module__.startswith(name)), None)
    return None


def _of_trainer(trainer: Any) -> Live:
    def train(batch_size: int) -> object:
        trainer.args.per_device_train_batch_size = trainer._train_batch_size = batch_size
        trackers = "transformers.integrations"
        for callback in list(trainer.callback_handler.callbacks):
            if type(callback).__module__.startswith(trackers):
                trainer.remove_callback(callback)
        return trainer.train()

    return Live(
        f"{type(trainer).__name__} of {type(trainer.model).__name__}",
        train,
        trainer,
        trainer.args.per_device_train_batch_size,
        trainer.args.gradient_accumulation_steps,
        "per_device_train_batch_size says",
    )


def _of_lightning(
    module: Any, loader: DataLoader[Any], package: str, options: Mapping[str, Any]
) -> Live:
    from .data.loaders import batch_size_of, give_batch_size  # loads torch

    def train(batch_size: int) -> object:
        give_batch_size(loader, batch_size)
        trainer = importlib.import_module(package).Trainer
        return trainer(**_without_files(options, package)).fit(module, loader)

    accumulated = options.get("accumulate_grad_batches", 1)
    return Live(
        type(module).__name__,
        train,
        module,
        batch_size_of(loader),
        accumulated if isinstance(accumulated, int) else 1,
        "the DataLoader's batch_size says",
    )


def _without_files(options: Mapping[str, Any], package: str) -> dict[str, Any]:
    """The options of a Lightning ``Trainer`` that trains on one GPU, and writes nothing.

    Its logger takes what the module logs and drops it; without one, the module has none to call.
    """
    kept = {name: value for name, value in options.items() if name not in _CUT_SHORT}
    callbacks = importlib.import_module(f"{package}.callbacks")
    given = kept.get("callbacks") or []
    several = given if isinstance(given, list | tuple) else [given]
    loggers = importlib.import_module(f"{package}.loggers.logger")
    return {"max_epochs": -1, **kept} | {
        "callbacks": [one for one in several if not isinstance(one, callbacks.Checkpoint)],
        "logger": loggers.DummyLogger(),
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "devices": 1,
        "num_nodes": 1,
    }


_CUT_SHORT = ("barebones", "fast_dev_run")
"""Options that switch off what is switched off here, and more."""


def _of_function(step: Callable[[int], object]) -> Live:
    def train(batch_size: int) -> object:
        made = step(batch_size)
        again = made if callable(made) else partial(step, batch_size)
        for _ in count():
            again()
        return None

    return Live(getattr(step, "__name__", type(step).__name__), train, step)
