"""Records the Hugging Face Trainer: ``callbacks=[MemoryMarkCallback(…)]``."""

from __future__ import annotations

import atexit
from typing import Any

from transformers import TrainerCallback

from ..records.record import Loop
from .device import precision_of
from .recorder import WARM_UP_STEPS, Recording, Setup, Sink, named_model, never_raising


class MemoryMarkCallback(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Records a training run; batch size, accumulation and devices come from the Trainer.

    A step lasts from the end of one optimizer step to the end of the next. A step that includes an
    evaluation, a prediction or a checkpoint is counted but not timed.

    The Trainer does not notify callbacks of an exception. A training run that one has ended is
    recorded as interrupted when the next one starts or the process ends.

    Args:
        sink: Receives the record at the end, such as ``to_file("training_runs.jsonl")``.
        model_name: The model's name; by default what the model's config says.
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
        model_name: str = "",
        analysis_id: int | None = None,
        program: str = "",
        program_hash: str = "",
        warm_up_steps: int = WARM_UP_STEPS,
    ) -> None:
        self.recording: Recording | None = None
        self._sink = sink
        self._given: dict[str, Any] = {
            "model_name": model_name,
            "analysis_id": analysis_id,
            "program": program,
            "program_hash": program_hash,
            "warm_up_steps": warm_up_steps,
            "loop": Loop.TRAINER,
        }
        Setup(batch_size=1, **self._given)  # raises for wrong arguments before any training

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Start recording. A previous run that has not ended was interrupted."""
        self._interrupted()
        self.recording = None
        if not state.is_world_process_zero:
            return
        with never_raising("recording did not start"):
            setup = _setup(args, state, more["model"], self._given)
            self.recording = Recording(setup, self._sink, args.device)
            atexit.register(self._interrupted)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self.recording is not None:
            self.recording.step()

    def on_evaluate(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self.recording is not None:
            self.recording.leave_out()

    on_predict = on_save = on_evaluate

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        atexit.unregister(self._interrupted)
        if self.recording is not None:
            self.recording.end()

    def _interrupted(self) -> None:
        atexit.unregister(self._interrupted)
        if self.recording is not None:
            self.recording.end(interrupted=True)


def _setup(args: Any, state: Any, model: Any, given: dict[str, Any]) -> Setup:
    autocast = "bf16" if args.bf16 else "fp16" if args.fp16 else ""
    devices = max(1, args.n_gpu)  # more than one: DataParallel in one process
    batch_size = args.per_device_train_batch_size
    if args.auto_find_batch_size and state.train_batch_size:
        batch_size = state.train_batch_size // devices
    return Setup(
        batch_size=batch_size,
        gradient_accumulation=args.gradient_accumulation_steps,
        world_size=args.world_size * devices,
        precision=precision_of(model, autocast, args.device),
        **given | named_model(model, given["model_name"]),
    )
