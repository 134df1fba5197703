"""The steps of a named file, sifted for those that may give the speed of a workload's host.

On the lab's site, a training run names the analysis that it belongs to. A file is named by the
user, so what it says of itself decides: the GPU and the rest by the site's rule, and the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...hub import resolve
from ...interface.workload import Workload
from ...records.comparison import (
    RecordedFile,
    RecordedStep,
    why_not_comparable,
    why_other_model,
)
from .intervals import Counted, Residual

_ACCUMULATION = "gradient_accumulation"


@dataclass(frozen=True)
class Sifted:
    """The steps of a file, for one workload or script on one GPU.

    Attributes:
        counted: Steps that may give the speed of the host there, the last one first.
        refused: Reasons why the others do not count, with their batches.
    """

    counted: list[Residual]
    refused: list[str]


def of_workload(file: RecordedFile, workload: Workload, gpu: str) -> Sifted:
    """Sift the steps of a file for a workload on a catalogue GPU."""

    def why_not(step: RecordedStep) -> str:
        differs = why_not_comparable(step, gpu, workload.world_size, workload.precision)
        return differs or _other_model(step, workload)

    return _sifted(file, why_not, gpu, workload.to_dict())


def of_script(file: RecordedFile, gpu: str, devices: int) -> Sifted:
    """Sift the steps of a file for a script, which nothing in a file names.

    Args:
        file: A file of training runs of the script, as the user who named it says.
        gpu: A GPU of the catalogue.
        devices: Number of devices that share a step of the script.
    """
    return _sifted(file, lambda step: why_not_comparable(step, gpu, devices, ""), gpu, {})


def at_batch(why: str, batch_size: int) -> str:
    """A reason, with the batch of the step that it is about."""
    return f"{why} (batch {batch_size:,})"


def _sifted(
    file: RecordedFile,
    why_not: Callable[[RecordedStep], str],
    gpu: str,
    trained: Mapping[str, object],
) -> Sifted:
    found = Sifted([], [])
    for step in file.steps:
        if (why := why_not(step)) or step.step_seconds is None:
            found.refused.append(at_batch(why, step.batch_size))
            continue
        residual = Residual(
            gpu=gpu,
            workload={**trained, _ACCUMULATION: step.gradient_accumulation},
            batch_size=step.batch_size,
            counted=Counted.STEP_SECONDS,
            measured=step.step_seconds,
            predicted=None,
            source=file.name,
        )
        found.counted.append(residual)
    return found


def _other_model(step: RecordedStep, workload: Workload) -> str:
    """Reason that another workload was trained, as far as the step says; else empty."""
    if step.workload is not None:
        return "" if _is_same(step.workload, workload) else "it measured another workload"
    return why_other_model(step.model_name, None, workload)


def _is_same(measured: Workload, workload: Workload) -> bool:
    """Whether two workloads are one, however many micro-batches each has in a step."""
    if measured.model != workload.model:
        return False
    any_number = {_ACCUMULATION: 1}
    return resolve(measured).to_dict() | any_number == workload.to_dict() | any_number
