"""Steps that were measured elsewhere, and the rule by which they are held against a prediction.

The rule is one, on the lab's site and for a file of recorded training runs
(:mod:`engine.records.reading`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..core.choices import Method, Parallelism, Precision
from ..core.sizes import gib
from ..gpus import GPUS, LOCAL, catalogue_name
from ..interface.program import TracedProgram
from ..interface.workload import Workload
from ..models.architectures import KNOWN
from ..models.presets import PRESETS

_MODEL_TYPE = "model_type"
_ALIKE = 1.1
"""Parameters of one model: those of another number of labels are fewer than 10% more or less."""


class Run(Protocol):
    """Facts about a training run that decide whether it can be compared with a prediction."""

    @property
    def timed_steps(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def device_name(self) -> str: ...
    @property
    def precision(self) -> str: ...


def why_not_comparable(
    run: Run, gpu: str, devices: int, precision: str, measured_gpu: str = ""
) -> str:
    """Difference of a training run from the request, its batch apart; empty if there is none.

    It must have trained on the requested number of devices, on that kind of GPU, and in that
    precision as far as it is known, and timed a step.

    Args:
        run: The training run.
        gpu: The requested GPU: of the catalogue, or ``local``.
        devices: Number of devices that share a step.
        precision: The requested precision; empty where the code decides it.
        measured_gpu: The driver's name of the GPU that ``local`` was; empty for a prediction.
    """
    if not run.timed_steps:
        return "no step of it was timed"
    if run.world_size != devices:
        return f"it trained on {run.world_size:,} devices, not {devices:,}"
    if other := why_other_gpu(gpu, measured_gpu, run.device_name):
        return other
    if precision and run.precision in list(Precision) and run.precision != precision:
        return f"it trained in {run.precision}, not {precision}"
    return ""


def why_other_model(
    name: str, held_bytes: int | None, workload: Workload, predicted_bytes: int | None = None
) -> str:
    """Reason why a training run was of another model, as far as it says; empty if it was not.

    Args:
        name: The model's name in the record; empty if unknown.
        held_bytes: Bytes of its parameters in the record; ``None`` if unknown.
        workload: The workload that it is held against.
        predicted_bytes: Bytes of the workload's parameters; ``None`` if unknown.
    """
    named, own = _model_type(name), workload.preset.config().get(_MODEL_TYPE)
    if named and own and named != own:
        return f"it trained {name}, not {workload.preset.display_name}"
    # Shards, and models beside the trained one, are not in the record.
    is_whole = workload.parallelism in (Parallelism.NONE, Parallelism.DDP)
    if not (is_whole and workload.method is Method.SFT):
        return ""
    return _why_other_size(held_bytes, predicted_bytes)


def why_other_program(
    run: RunOfProgram,
    program: TracedProgram,
    predicted_bytes: int | None = None,
) -> str:
    """Reason why a training run was of another script, as far as it says; empty if it was not.

    Args:
        run: The training run.
        program: The script that it is held against.
        predicted_bytes: Bytes of its parameters; ``None`` if unknown.
    """
    if run.program_hash and run.program_hash != program.hash:
        return f"it trained another version of {program.name}"
    if run.program and run.program != program.name:
        return f"it trained {run.program}, not {program.name}"
    return "" if run.program_hash else _why_other_size(run.parameter_bytes, predicted_bytes)


class RunOfProgram(Protocol):
    """The script that a training run says it ran."""

    @property
    def program(self) -> str: ...
    @property
    def program_hash(self) -> str: ...
    @property
    def parameter_bytes(self) -> int | None: ...


def _why_other_size(held_bytes: int | None, predicted_bytes: int | None) -> str:
    """Reason why so many bytes of parameters are of another model; empty if they are not."""
    if not (held_bytes and predicted_bytes):
        return ""
    low, high = sorted((held_bytes, predicted_bytes))
    if high > _ALIKE * low:
        return f"its model has {gib(held_bytes)} of parameters, not {gib(predicted_bytes)}"
    return ""


def _model_type(name: str) -> str:
    """The type of model that a name stands for: a type itself, a preset's or a hub id; or none."""
    if name in KNOWN:
        return name
    for preset in PRESETS.values():
        if name in (preset.name, preset.hub_id, preset.hub_id.rpartition("/")[2]):
            return str(preset.config().get(_MODEL_TYPE, ""))
    return ""


def why_other_gpu(gpu: str, measured_gpu: str, device_name: str) -> str:
    """Why a training run does not count for a GPU: it was on another; empty if it was not."""
    if is_that_gpu(gpu, measured_gpu, device_name):
        return ""
    wanted = measured_gpu if gpu == LOCAL else GPUS[gpu].display_name if gpu in GPUS else gpu
    return f"it trained on {device_name}, not {wanted or 'this machine'}"


def is_that_gpu(gpu: str, measured_gpu: str, device_name: str) -> bool:
    """Whether it is the same kind of GPU, which drivers and catalogue may name differently."""
    if gpu == LOCAL and device_name == measured_gpu:
        return True
    wanted = catalogue_name(measured_gpu) if gpu == LOCAL else gpu
    return wanted is not None and catalogue_name(device_name) == wanted


@dataclass(frozen=True)
class RecordedStep:
    """The step of a training run, or of a measured trial.

    Attributes:
        batch_size: Samples per micro-batch, on each device.
        step_seconds: Median time of a step; ``None`` if none was timed.
        device_name: The driver's name of the GPU.
        gradient_accumulation: Micro-batches per step.
        world_size: Devices that share a step.
        precision: As far as it is known; else empty.
        model_name: Model of a training run, for people to read; may be empty.
        workload: Workload of a measured trial; a training run does not know it.
    """

    batch_size: int
    step_seconds: float | None
    device_name: str
    gradient_accumulation: int = 1
    world_size: int = 1
    precision: str = ""
    model_name: str = ""
    workload: Workload | None = None

    @property
    def timed_steps(self) -> int:
        """Number of times that are known, for :func:`why_not_comparable`."""
        return 1 if self.step_seconds else 0


@dataclass(frozen=True)
class RecordedFile:
    """A file with steps that were trained or measured on the requested GPU.

    Attributes:
        name: Name without the folder.
        steps: The last one first.
    """

    name: str
    steps: Sequence[RecordedStep]
