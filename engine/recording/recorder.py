"""The recorder: counts and times steps, and hands the record to a sink when training ends.

It never breaks a training run. If something goes wrong, it logs one warning with the reason and
records nothing from then on. Only wrong arguments raise, at once, before any training.

A sink is a callable that takes the record. If it raises, the warning contains the record, so that
neither the training run nor the record is lost.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..core.errors import EngineError, InvalidInput
from ..core.parsing import plain_text, whole_number
from ..core.process import peak_resident_bytes
from ..records.record import Loop, TrainingRecord
from . import device as devices
from .clocks import Clock, StepTimes, clock_for

if TYPE_CHECKING:
    import torch

    from ..client import Lab


WARM_UP_STEPS = 5
"""The first steps build the optimizer state, choose kernels and start loading data."""

_MAX_NUMBER = 2**40
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setup:
    """Facts known about a training run before it starts.

    Attributes:
        batch_size: Samples per micro-batch, on each device.
        gradient_accumulation: Micro-batches per optimizer step.
        world_size: Devices that share a step.
        warm_up_steps: First steps that are not timed.
        precision, model_name, loop, analysis_id, parameter_bytes, program, program_hash: As in
            the record.

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
    parameter_bytes: int | None = None
    program: str = ""
    program_hash: str = ""

    def __post_init__(self) -> None:
        wrong: dict[str, str] = {}
        for name, smallest in (
            ("batch_size", 1),
            ("gradient_accumulation", 1),
            ("world_size", 1),
            ("warm_up_steps", 0),
        ):
            number = whole_number(name, getattr(self, name), smallest, _MAX_NUMBER, wrong)
            object.__setattr__(self, name, number)
        for name in ("precision", "model_name", "program", "program_hash"):
            if getattr(self, name) != "":
                plain_text(name, getattr(self, name), wrong)
        if self.analysis_id is not None:
            whole_number("analysis_id", self.analysis_id, 1, 2**63 - 1, wrong)
        if wrong:
            raise InvalidInput(wrong)

    @property
    def samples_per_step(self) -> int:
        """Samples per optimizer step, over micro-batches and devices."""
        return self.batch_size * self.gradient_accumulation * self.world_size


class Recording:
    """One training run while it is being recorded.

    Attributes:
        record: The record once training has ended; ``None`` before that, in every process but the
            first (rank 0), and if recording failed.
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
        with never_raising("recording did not start"):
            if devices.rank() == 0:
                self._device = device or devices.default_device()
                devices.forget_peaks(self._device)
                self._clock: Clock = clock_for(self._device, self._times)
                self._clock.start()
                self._running = True

    def step(self, samples: int | None = None) -> None:
        """Mark the end of an optimizer step; takes microseconds and never waits.

        Args:
            samples: In this step, over micro-batches and devices, if not the usual number.
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
        except Exception as error:  # recording must never end a training run
            self._running = False
            _warn("recording ended early", error)

    def leave_out(self) -> None:
        """Do not time the current step, because an evaluation or a checkpoint is part of it."""
        self._counts = False

    def end(self, *, interrupted: bool = False) -> None:
        """End the recording and pass the record to the sink; later calls do nothing.

        Args:
            interrupted: Whether an exception ended the training run.
        """
        if not self._running:
            return
        self._running = False
        with never_raising("the last steps were not timed"):
            self._clock.end()
        with never_raising("no record could be created"):
            self.record = self._record(interrupted)
        if self.record is not None and self._sink is not None:
            plain = json.dumps(self.record.to_dict())
            with never_raising(f"the record was not accepted; it is {plain}"):
                self._sink(self.record)

    def _on_device(self) -> dict[str, Any]:
        return asdict(devices.device_facts(self._device)) | devices.peaks(self._device)

    def _record(self, interrupted: bool) -> TrainingRecord:
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
            parameter_bytes=setup.parameter_bytes,
            program=setup.program,
            program_hash=setup.program_hash,
            **self._on_device(),
        )


@contextmanager
def record_training(
    *,
    batch_size: int,
    sink: Sink | None = None,
    gradient_accumulation: int = 1,
    world_size: int = 1,
    model: torch.nn.Module | None = None,
    model_name: str = "",
    precision: str = "",
    analysis_id: int | None = None,
    program: str = "",
    program_hash: str = "",
    warm_up_steps: int = WARM_UP_STEPS,
    device: torch.device | None = None,
) -> Iterator[Recording]:
    """Record a training loop: call ``recording.step()`` after each optimizer step in the block.

    Nothing waits for the GPU except once at the start and once at the end. Steps are timed by
    events in the GPU's own queue, so the throughput is right however far the host runs ahead
    (:class:`~engine.recording.clocks.EventClock`). The CUDA allocator's peaks are reset at the
    start, so that they belong to this training run.

    An exception in the block ends the recording as interrupted and propagates.

    Args:
        batch_size: Samples per micro-batch, on each device.
        sink: Receives the record at the end, such as ``to_file("training_runs.jsonl")``.
        gradient_accumulation: Micro-batches per optimizer step.
        world_size: Devices that share a step; only rank 0 records.
        model: The model, whose name and size show the lab that it is the predicted one.
        model_name: Name of the model; by default what the model's config says.
        precision: Named as in :class:`~engine.interface.workload.Precision`.
        analysis_id: The analysis that this training run belongs to.
        program: Name of the script, as in its analysis.
        program_hash: Its hash there; with the name, it finds the analysis where none is given.
        warm_up_steps: First steps, which are counted but not timed.
        device: The device to train on; by default the current CUDA device, if any.

    Raises:
        InvalidInput: With a message for each wrong argument.
    """
    setup = Setup(
        batch_size=batch_size,
        gradient_accumulation=gradient_accumulation,
        world_size=world_size,
        warm_up_steps=warm_up_steps,
        precision=precision,
        analysis_id=analysis_id,
        program=program,
        program_hash=program_hash,
        **named_model(model, model_name),
    )
    recording = Recording(setup, sink, device)
    try:
        yield recording
    except BaseException:  # Ctrl-C too
        recording.end(interrupted=True)
        raise
    recording.end()


def named_model(model: Any, name: str = "") -> dict[str, Any]:
    """The model in a record: its name, where none is given, and its parameters' bytes."""
    if model is None:
        return {"model_name": name}
    config = getattr(model, "config", None)
    known = getattr(config, "_name_or_path", "") or getattr(config, "model_type", "")
    found: dict[str, Any] = {"model_name": name or str(known) or type(model).__name__}
    with never_raising("the model's parameters were not counted"):
        found["parameter_bytes"] = devices.parameter_bytes_of(model)
    return found


@contextmanager
def never_raising(what: str) -> Iterator[None]:
    """Turn any error into a warning that says what it means for the recording."""
    try:
        yield
    except Exception as error:  # recording must never end a training run
        _warn(what, error)


def _warn(what: str, error: Exception) -> None:
    _log.warning("MemoryMark: %s (%s: %s)", what, type(error).__name__, error)


Sink = Callable[[TrainingRecord], None]


def to_file(path: str | Path) -> Sink:
    """A sink that appends each record to a file as one line of JSON.

    Folder and file are created at once, so that a wrong path is found before hours of training.

    Args:
        path: The file. Several training runs may share it on a local disk.

    Raises:
        OSError: If it cannot be written.
    """
    file = Path(path).absolute()  # the script may change the working directory
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab"):
        pass
    return partial(_append, file)


def to_lab(lab: Lab | None = None) -> Sink:
    """A sink that sends each record to the lab's site.

    Address and token are checked at once, so that a missing one is found before hours of training.
    An unavailable lab gets the record later: see :mod:`engine.client.outbox`.

    Args:
        lab: By default the lab of the environment variables.

    Raises:
        Misconfigured: If address or token is missing or wrong.
    """
    from ..client import Lab  # imports the record itself

    return partial(_report, lab or Lab())


def _report(lab: Lab, record: TrainingRecord) -> None:
    delivery = lab.report(record)
    if delivery.refusal:
        folder = lab.outbox_folder / "rejected"
        raise EngineError(
            f"the lab refused the record, which is now in {folder}: {delivery.refusal}"
        )
    if delivery.answer is None:
        why = delivery.problem or "another process is sending"
        _log.warning("the record is waiting in %s to be sent: %s", lab.outbox_folder, why)


def _append(path: Path, record: TrainingRecord) -> None:
    line = json.dumps(record.to_dict()).encode() + b"\n"
    # A single write in append mode, so that lines of several processes do not mix.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        written = os.write(descriptor, line)
        if written != len(line):
            raise OSError(f"only {written:,} of {len(line):,} bytes of the record were written")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
