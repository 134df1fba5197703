"""The prediction of one batch size on a catalogue GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..events import Emit, Log
from ..gpus import Gpu
from ..hub import resolve
from ..interface.request import AnalysisRequest
from ..interface.result import Phase
from ..interface.trial import GpuFacts, Trial
from ..interface.workload import Workload
from ..step.building import blaming_the_config, code_caveats
from ..traces.lengths import about_lengths
from ..traces.workloads import KeptTraces
from ..tracing.trace import Trace
from ..versions import software
from .caveats import gpu_caveats
from .colocation import vllm_caveats
from .correction import NO_EXPERIENCE, Experience
from .evaluation import evaluation_caveats, needs_most, why_evaluation_fails
from .host import offload_caveats
from .limits import starting_batch_size
from .phases import phases_of
from .predicted_analysis import predictions_on
from .requested_gpu import catalogue_gpu, gpu_facts


@dataclass(frozen=True)
class PredictedBatch:
    """One batch size on a GPU.

    Attributes:
        predicted_on: The GPU.
        trial: Its trial.
        workload: What is trained.
        step: The trace of the batch.
    """

    predicted_on: Gpu
    trial: Trial
    workload: Workload
    step: Trace

    @property
    def gpu(self) -> GpuFacts:
        return gpu_facts(self.predicted_on)

    @property
    def phases(self) -> list[Phase]:
        """The phases of a training run; of a large model they take a second."""
        return phases_of(self.workload, self.predicted_on, self.step, self.trial.source)


def predict_batch(
    request: AnalysisRequest,
    emit: Emit,
    traced: KeptTraces | None = None,
    experience: Experience = NO_EXPERIENCE,
) -> PredictedBatch:
    """Predict the request's current batch size alone, on a catalogue GPU.

    Without one, it is the batch to start with.

    Args:
        request: Its GPU is one of the catalogue.
        emit: Receives log lines.
        traced: Traces the workload at every batch size; by default :class:`KeptTraces`.
        experience: The steps that were measured before.

    Raises:
        InvalidInput: If the model's config is not available, or does not give a model.
    """
    request = replace(request, workload=resolve(request.workload))
    used = request.workload.versions_here
    for caveat in (
        *software.caveat(request.workload.software, used),
        *code_caveats(request.workload),
    ):
        emit(Log(caveat, "warning"))
    gpu = catalogue_gpu(request)
    with blaming_the_config(request.workload):
        prediction = predictions_on(request, gpu, emit, traced or KeptTraces(), experience)
        gpu, traces = prediction.gpu, prediction.traces
        batch_size = request.current_batch_size or starting_batch_size(prediction)
        traces.at(batch_size).check_runnable()
        trial = prediction.predict(batch_size, careful=True)
        step = traces.at(batch_size)
        if not trial.fits and needs_most(step):
            emit(Log(why_evaluation_fails(request, gpu, trial), "warning"))
        elif trial.fits:
            for caveat in evaluation_caveats(request, gpu, step):
                emit(Log(caveat))
    for caveat in (
        *gpu_caveats(gpu),
        *prediction.correction.caveats(batch_size),
        *offload_caveats(step),
        *about_lengths(request.workload, batch_size),
        *vllm_caveats(request.workload_at(batch_size), gpu, step),
    ):
        emit(Log(caveat))
    return PredictedBatch(gpu, trial, request.workload_at(batch_size), step)
