"""Recording a training of the Hugging Face Trainer: ``callbacks=[MemoryMarkCallback(…)]``."""

from __future__ import annotations

import atexit
from typing import Any

from transformers import TrainerCallback

from engine.recording.device import precision_of
from engine.recording.record import Loop
from engine.recording.recorder import WARM_UP_STEPS, Recording, Setup, never_raising
from engine.recording.sinks import Sink


class MemoryMarkCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not read by mypy
    """Records what a training used; takes batch, accumulation and devices from the Trainer.

    A step runs from the end of one optimizer step to the end of the next. One that an evaluation, a
    prediction or a checkpoint falls into is counted, but not timed.

    The Trainer tells no callback of an exception. A training that ended by one is reported, as
    interrupted, when the next begins or the process ends.

    Args:
        sink: Takes the record at the end, such as ``to_file("trainings.jsonl")``.
        model_name: What is trained; by default what the model's config says.
        analysis_id: The analysis it belongs to.
        warm_up_steps: First steps that are counted, but not timed.

    Attributes:
        recording: Of the last training; ``None`` before the first, and in every process but the
            first.

    Raises:
        InvalidInput: With a message for each wrong argument.
    """

    def __init__(
        self,
        sink: Sink | None = None,
        *,
        model_name: str = "",
        analysis_id: int | None = None,
        warm_up_steps: int = WARM_UP_STEPS,
    ) -> None:
        self.recording: Recording | None = None
        self._sink = sink
        self._given: dict[str, Any] = {
            "model_name": model_name,
            "analysis_id": analysis_id,
            "warm_up_steps": warm_up_steps,
            "loop": Loop.TRAINER,
        }
        Setup(batch_size=1, **self._given)  # a mistake is told before anything is trained

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Begin; the training before, if it has not ended, was interrupted."""
        self._interrupted()
        self.recording = None
        if not state.is_world_process_zero:
            return
        with never_raising("recording did not begin"):
            setup = _setup(args, state, more["model"], self._given)
            self.recording = Recording(setup, self._sink, args.device)
            atexit.register(self._interrupted)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Count an optimizer step."""
        if self.recording is not None:
            self.recording.step()

    def on_evaluate(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Leave the running step out of the times."""
        if self.recording is not None:
            self.recording.leave_out()

    on_predict = on_save = on_evaluate

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Hand the record on."""
        atexit.unregister(self._interrupted)
        if self.recording is not None:
            self.recording.end()

    def _interrupted(self) -> None:
        atexit.unregister(self._interrupted)
        if self.recording is not None:
            self.recording.end(interrupted=True)


def _setup(args: Any, state: Any, model: Any, given: dict[str, Any]) -> Setup:
    config = getattr(model, "config", None)
    known = getattr(config, "_name_or_path", "") or getattr(config, "model_type", "")
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
        **given | {"model_name": given["model_name"] or known or type(model).__name__},
    )
