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
from ..step.building import blaming_the_config
from ..traces.workloads import KeptTraces
from ..tracing.trace import Trace
from .caveats import host_caveats, step_caveats, trial_caveats, waiting_caveats
from .evaluation import needs_most, why_evaluation_fails
from .limits import starting_batch_size
from .memory.phases import phases_of
from .predicted_analysis import ModelPrediction, predictions_on
from .requested_gpu import catalogue_gpu, gpu_facts
from .timing.correction import NO_EXPERIENCE, Experience


@dataclass(frozen=True)
class PredictedBatch:
    """One batch size on a GPU.

    Attributes:
        predicted_on: The GPU.
        trial: Its trial.
        workload: What is trained.
        step: The trace of the batch.
        caveats: Sentences about what the numbers assume and leave out.
    """

    predicted_on: Gpu
    trial: Trial
    workload: Workload
    step: Trace
    caveats: list[str]

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
    unlike = request.workload.software_caveats
    for caveat in unlike:
        emit(Log(caveat, "warning"))
    gpu = catalogue_gpu(request)
    with blaming_the_config(request.workload):
        prediction = predictions_on(request, gpu, emit, traced or KeptTraces(), experience)
        traces = prediction.traces
        batch_size = request.current_batch_size or starting_batch_size(prediction)
        traces.at(batch_size).check_runnable()
        trial = prediction.predict(batch_size, careful=True)
        caveats = [*unlike, *_caveats(prediction, trial)]
    trained, step = request.workload_at(batch_size), traces.at(batch_size)
    return PredictedBatch(prediction.gpu, trial, trained, step, caveats)


def _caveats(prediction: ModelPrediction, trial: Trial) -> list[str]:
    """Those that an analysis has, without what only its search tells."""
    gpu, size = prediction.gpu, trial.batch_size
    step = prediction.traces.at(size)
    found = [*trial_caveats(trial), *step_caveats(step)]
    if trial.fits:
        time = prediction.step_time(size)
        found += [*host_caveats(size, time, gpu), *waiting_caveats(size, time)]
    caveats = prediction.caveats_at(size, found, fits=trial.fits)
    if not trial.fits and needs_most(step):
        return [why_evaluation_fails(prediction.request, gpu, trial), *caveats]
    return caveats
