"""Records Lightning training: ``callbacks=[MemoryMarkCallback(…)]``."""

from __future__ import annotations

from typing import Any

from ..core.errors import InvalidInput
from ..records.record import Loop
from .device import precision_of
from .recorder import WARM_UP_STEPS, Recording, Setup, Sink, named_model, never_raising

try:
    from lightning.pytorch.callbacks import Callback
except ImportError as error:
    raise ImportError(
        "recording Lightning training needs Lightning; run: pip install lightning"
    ) from error


class MemoryMarkCallback(Callback):  # type: ignore[misc]  # mypy does not follow Lightning
    """Records a training run; batch size, accumulation and devices come from the Trainer.

    A step lasts from the end of one optimizer step to the end of the next. A step that includes
    validation or a checkpoint is counted but not timed.

    Args:
        sink: Receives the record at the end, such as ``to_file("training_runs.jsonl")``.
        batch_size: Samples per micro-batch on each device; by default the data loader's.
        model_name: The model's name; by default the name of the module's class.
        analysis_id: The analysis that this training run belongs to.
        program, program_hash: Name and hash of the script, as in its analysis.
        warm_up_steps: First steps, which are counted but not timed.

    Attributes:
        recording: The latest one; ``None`` before the first, and in every process but the first.

    Raises:
        InvalidInput: With a message for each wrong argument.
    """

    def __init__(
        self,
        sink: Sink | None = None,
        *,
        batch_size: int | None = None,
        model_name: str = "",
        analysis_id: int | None = None,
        program: str = "",
        program_hash: str = "",
        warm_up_steps: int = WARM_UP_STEPS,
    ) -> None:
        self.recording: Recording | None = None
        self._sink = sink
        self._batch_size = batch_size
        self._known_steps = 0
        self._given: dict[str, Any] = {
            "model_name": model_name,
            "analysis_id": analysis_id,
            "program": program,
            "program_hash": program_hash,
            "warm_up_steps": warm_up_steps,
            "loop": Loop.LIGHTNING,
        }
        # Raises for wrong arguments before any training.
        Setup(batch_size=1 if batch_size is None else batch_size, **self._given)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.recording = None
        self._known_steps = trainer.global_step
        if not trainer.is_global_zero:
            return
        with never_raising("recording did not start"):
            setup = self._setup(trainer, pl_module)
            self.recording = Recording(setup, self._sink, trainer.strategy.root_device)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Count an optimizer step, unless the micro-batch was only accumulated."""
        if self.recording is not None and trainer.global_step != self._known_steps:
            self._known_steps = trainer.global_step
            self.recording.step()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self.recording is not None:
            self.recording.leave_out()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        if self.recording is not None:
            self.recording.leave_out()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.recording is not None:
            self.recording.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self.recording is not None:
            self.recording.end(interrupted=True)

    def _setup(self, trainer: Any, pl_module: Any) -> Setup:
        batch_size = self._batch_size
        if batch_size is None:
            batch_size = _batch_size_of(trainer.train_dataloader)
        return Setup(
            batch_size=batch_size,
            gradient_accumulation=trainer.accumulate_grad_batches,
            world_size=trainer.world_size,
            precision=_precision(trainer, pl_module),
            **self._given | named_model(pl_module, self._given["model_name"]),
        )


def _batch_size_of(loader: Any) -> int:
    """The batch size of a data loader or its batch sampler."""
    for source in (loader, getattr(loader, "batch_sampler", None)):
        if isinstance(size := getattr(source, "batch_size", None), int):
            return size
    raise InvalidInput(
        {"batch_size": "the data loader has none; set MemoryMarkCallback(batch_size=…)"}
    )


def _precision(trainer: Any, pl_module: Any) -> str:
    autocast = {"16-mixed": "fp16", "bf16-mixed": "bf16"}.get(trainer.precision, "")
    return precision_of(pl_module, autocast, trainer.strategy.root_device)
