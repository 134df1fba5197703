"""Checks of the engine itself that a user can repeat."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import DoesNotFit, InvalidInput
from engine.gpus import GPUS, LOCAL
from engine.measurement.device import lacking_devices
from engine.measurement.parent import local_device, measure
from engine.measurement.protocol import TrialOrder
from engine.models.building import blaming_the_config
from engine.models.hub import resolve
from engine.result import Source, Trial
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.tracer import trace
from engine.workload import Workload

BACKWARD_RATIO = 1.5
"""Training takes at least so much more than the forward pass: the gradients alone double the
parameters, and backward needs the activations that a forward pass drops. BERT at batch 16 takes
2 to 3.4 times as much."""


@dataclass(frozen=True)
class BackwardCheck:
    """The memory of the forward pass alone against that of the whole step.

    Attributes:
        batch_size: Samples per step.
        forward_bytes: Peak allocated by the forward pass without gradients.
        training_bytes: Peak allocated by the whole training step.
        ratio: Their quotient; near 1 means that backward does not run.
        passed: Whether the ratio is large enough.
        source: Of both figures.
        verdict: The check in one sentence.
    """

    batch_size: int
    forward_bytes: int
    training_bytes: int
    ratio: float
    passed: bool
    source: Source
    verdict: str


def validate_backward(workload: Workload, batch_size: int, gpu: str) -> BackwardCheck:
    """Show that the training step runs backward: it takes far more memory than forward alone.

    Args:
        workload: What is trained.
        batch_size: Samples per step.
        gpu: A name of the catalogue (predicted), or ``local`` (measured).

    Raises:
        InvalidInput: If the model's config cannot be had, no model can be trained of it, or the
            machine has fewer GPUs than share the work.
        DoesNotFit: If the local device has too little memory for it.
        MeasurementFailed: If a trial ended for another reason.
    """
    workload = resolve(workload)
    shared = gpu == LOCAL and workload.world_size > 1
    if shared and (wrong := lacking_devices(workload, local_device())):
        raise InvalidInput(wrong)
    peaks = _measured if gpu == LOCAL else _predicted
    forward, training = (peaks(workload, batch_size, gpu, forward_only=f) for f in (True, False))
    ratio = training / forward
    passed = ratio >= BACKWARD_RATIO
    source = Source.MEASURED if gpu == LOCAL else Source.PREDICTED
    runs = "backward runs" if passed else "backward does not seem to run"
    return BackwardCheck(
        batch_size=batch_size,
        forward_bytes=forward,
        training_bytes=training,
        ratio=ratio,
        passed=passed,
        source=source,
        verdict=(
            f"At batch {batch_size:,} the training step takes {ratio:.2f} times the memory of the "
            f"forward pass alone ({source}): {runs}."
        ),
    )


def _predicted(workload: Workload, batch_size: int, gpu: str, *, forward_only: bool) -> int:
    behaviour = cuda_behaviour(GPUS[gpu].compute_capability)
    with blaming_the_config(workload):
        steps = trace(workload, batch_size, behaviour, forward_only=forward_only)
    return steps.replay().peak_allocated_bytes


def _measured(workload: Workload, batch_size: int, gpu: str, *, forward_only: bool) -> int:
    trial: Trial = measure(TrialOrder(workload, batch_size, forward_only=forward_only))
    if not trial.fits or trial.peak_allocated_bytes is None:
        raise DoesNotFit(f"batch {batch_size:,} does not fit on this machine: {trial.failure}")
    return trial.peak_allocated_bytes
