"""The recorder: counts steps, takes their times, and makes the record when a training is over.

It never breaks a training. What goes wrong in it is told once, as a warning with its reason, and it
records nothing from then on. Only wrong arguments are errors, at once, before anything is trained.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engine.errors import InvalidInput
from engine.parsing import plain_text, whole_number
from engine.recording import device as devices
from engine.recording.clocks import Clock, StepTimes, clock_for
from engine.recording.record import Loop, TrainingRecord
from engine.recording.sinks import Sink
from engine.resident import peak_resident_bytes

if TYPE_CHECKING:
    import torch

WARM_UP_STEPS = 5
"""The first steps build the optimizer's state, choose kernels, start the loading of data."""

_LARGEST = 2**40
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setup:
    """What is known of a training before it begins.

    Attributes:
        batch_size: Samples per micro-batch, on each device.
        gradient_accumulation: Micro-batches to one optimizer step.
        world_size: Devices that share a step.
        warm_up_steps: First steps that are not timed.
        precision, model_name, loop, analysis_id: As in the record.

    Raises:
        InvalidInput: On construction, with a message for each wrong field.
    """

    batch_size: int
    gradient_accumulation: int = 1
    world_size: int = 1
    warm_up_steps: int = WARM_UP_STEPS
    precision: str = ""
    model_name: str = ""
    loop: Loop = Loop.PLAIN
    analysis_id: int | None = None

    def __post_init__(self) -> None:
        wrong: dict[str, str] = {}
        for name, smallest in (
            ("batch_size", 1),
            ("gradient_accumulation", 1),
            ("world_size", 1),
            ("warm_up_steps", 0),
        ):
            number = whole_number(name, getattr(self, name), smallest, _LARGEST, wrong)
            object.__setattr__(self, name, number)
        for name in ("precision", "model_name"):
            if getattr(self, name) != "":
                plain_text(name, getattr(self, name), wrong)
        if self.analysis_id is not None:
            whole_number("analysis_id", self.analysis_id, 1, 2**63 - 1, wrong)
        if wrong:
            raise InvalidInput(wrong)

    @property
    def samples_per_step(self) -> int:
        """Of one optimizer step, over micro-batches and devices."""
        return self.batch_size * self.gradient_accumulation * self.world_size


class Recording:
    """One training while it is recorded.

    Attributes:
        record: What it used, once it is over; ``None`` before, in every process but the first
            (rank 0), and if recording failed.
    """

    def __init__(self, setup: Setup, sink: Sink | None, device: torch.device | None = None) -> None:
        self.record: TrainingRecord | None = None
        self._setup = setup
        self._sink = sink
        self._steps = 0
        self._samples = 0
        self._counts = True
        self._times = StepTimes()
        self._started_at = datetime.now(UTC)
        self._begin = self._last = perf_counter()
        self._running = False
        with never_raising("recording did not begin"):
            if devices.rank() == 0:
                self._device = device or devices.default_device()
                devices.forget_peaks(self._device)
                self._clock: Clock = clock_for(self._device, self._times)
                self._clock.start()
                self._running = True

    def step(self, samples: int | None = None) -> None:
        """Say that an optimizer step is over; takes some microseconds, waits for nothing.

        Args:
            samples: That it had, over micro-batches and devices, if not the usual number.
        """
        if not self._running:
            return
        try:
            count = self._setup.samples_per_step if samples is None else samples
            timed = self._counts and self._steps >= self._setup.warm_up_steps
            self._clock.step(count, timed=timed)
            self._last = perf_counter()
            self._steps += 1
            self._samples += count
            self._counts = True
        except Exception as error:  # a training must not end by being recorded
            self._running = False
            _warn("recording ended early", error)

    def leave_out(self) -> None:
        """Leave the running step out of the times: an evaluation or a checkpoint falls into it."""
        self._counts = False

    def end(self, *, interrupted: bool = False) -> None:
        """End the recording and hand the record on; once is enough, more does nothing.

        Args:
            interrupted: Whether the training ended by an exception.
        """
        if not self._running:
            return
        self._running = False
        with never_raising("the last steps were not timed"):
            self._clock.end()
        with never_raising("no record could be made"):
            self.record = self._made(interrupted)
        if self.record is not None and self._sink is not None:
            plain = json.dumps(self.record.to_dict())
            with never_raising(f"the record was not taken; it reads {plain}"):
                self._sink(self.record)

    def _on_device(self) -> dict[str, Any]:
        return asdict(devices.device_facts(self._device)) | devices.peaks(self._device)

    def _made(self, interrupted: bool) -> TrainingRecord:
        setup, times = self._setup, self._times.summary()
        return TrainingRecord(
            batch_size=setup.batch_size,
            gradient_accumulation=setup.gradient_accumulation,
            world_size=setup.world_size,
            steps=self._steps,
            samples=self._samples,
            warm_up_steps=setup.warm_up_steps,
            timed_steps=self._times.seen,
            step_seconds=times.step_seconds,
            step_seconds_low=times.low,
            step_seconds_high=times.high,
            samples_per_second=times.samples_per_second,
            process_peak_bytes=peak_resident_bytes(),
            versions=devices.versions(),
            precision=setup.precision,
            model_name=setup.model_name,
            started_at=self._started_at.isoformat(),
            ended_at=(self._started_at + timedelta(seconds=self._last - self._begin)).isoformat(),
            loop=setup.loop,
            interrupted=interrupted,
            analysis_id=setup.analysis_id,
            **self._on_device(),
        )


@contextmanager
def record_training(
    *,
    batch_size: int,
    sink: Sink | None = None,
    gradient_accumulation: int = 1,
    world_size: int = 1,
    model_name: str = "",
    precision: str = "",
    analysis_id: int | None = None,
    warm_up_steps: int = WARM_UP_STEPS,
    device: torch.device | None = None,
) -> Iterator[Recording]:
    """Record a training loop: call ``recording.step()`` after each optimizer step in the block.

    On a GPU nothing waits for the device except once at the start and once at the end: each step is
    timed by events in the GPU's own queue, so the throughput is right however far the host runs
    ahead (:class:`~engine.recording.clocks.EventClock`). The CUDA allocator's peaks are reset at
    the start, so that they are this training's.

    An exception in the block ends the recording as interrupted, and goes on.

    Args:
        batch_size: Samples per micro-batch, on each device.
        sink: Takes the record at the end, such as ``to_file("trainings.jsonl")``.
        gradient_accumulation: Micro-batches to one optimizer step.
        world_size: Devices that share a step; of their processes only rank 0 records.
        model_name: What is trained.
        precision: What it computes in, as :class:`~engine.workload.Precision` names it.
        analysis_id: The analysis it belongs to.
        warm_up_steps: First steps that are counted, but not timed.
        device: Where it trains; by default the current CUDA device, if there is one.

    Raises:
        InvalidInput: With a message for each wrong argument.
    """
    setup = Setup(
        batch_size=batch_size,
        gradient_accumulation=gradient_accumulation,
        world_size=world_size,
        warm_up_steps=warm_up_steps,
        precision=precision,
        model_name=model_name,
        analysis_id=analysis_id,
    )
    recording = Recording(setup, sink, device)
    try:
        yield recording
    except BaseException:  # Ctrl-C too
        recording.end(interrupted=True)
        raise
    recording.end()


@contextmanager
def never_raising(what: str) -> Iterator[None]:
    """Turn what goes wrong into a warning that says what has become of the recording."""
    try:
        yield
    except Exception as error:  # a training must not end by being recorded
        _warn(what, error)


def _warn(what: str, error: Exception) -> None:
    _log.warning("MemoryMark: %s (%s: %s)", what, type(error).__name__, error)
