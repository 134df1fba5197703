"""The analysis for a catalogue GPU: everything is predicted, nothing is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ..answer.conclusion import Findings, conclude
from ..core.errors import DoesNotFit
from ..events import Emit, Stage
from ..gpus import Gpu
from ..interface.request import AnalysisRequest
from ..interface.result import AnalysisResult, PhaseName, StepProfile
from ..interface.trial import Trial
from ..parallel import interconnect
from ..step.building import cache_caveats, code_caveats
from ..step.eight_bits import outlier_caveats
from ..step.methods import method_caveats
from ..step.optimizers import paged_caveats, refresh_caveats
from ..traces.lengths import about_lengths, lengths_of
from ..traces.workloads import KeptTraces
from ..tracing.lowering import behaviour_of
from .caveats import (
    NOTHING_RUN,
    gpu_caveats,
    negatives_caveats,
    whole_experts,
)
from .evaluation import evaluation_caveats, needs_most, why_evaluation_fails
from .measured_host import on_measured_host
from .memory.colocation import vllm_caveats, why_vllm_fails
from .memory.phases import largest_phase, phases_of
from .predicted_findings import predict_findings, with_profile
from .prediction import Prediction
from .probe import predict_fit, predict_step, samples_of_step, usable_bytes
from .refusals import does_not_fit
from .requested_gpu import catalogue_gpu, gpu_facts
from .rollouts import rollout_caveats
from .step_profile import step_profile
from .timing.correction import NO_EXPERIENCE, Experience
from .timing.work import StepTime


def analyze_predicted(
    request: AnalysisRequest,
    emit: Emit,
    known: Mapping[int, Trial] = MappingProxyType({}),
    traced: KeptTraces | None = None,
    experience: Experience = NO_EXPERIENCE,
) -> AnalysisResult:
    """Predict the answer for a catalogue GPU.

    Args:
        request: Its GPU is one of the catalogue.
        emit: Receives log lines and trials as they come.
        known: Trials of the same request, by batch size, that need not be made again.
        traced: Traces the workload; by default :class:`KeptTraces`.
        experience: The steps that were measured before.

    Raises:
        DoesNotFit: If not even the smallest batch does.
    """
    gpu = catalogue_gpu(request)
    prediction = predictions_on(request, gpu, emit, traced or KeptTraces(), experience)
    emit(Stage("search"))
    found = predict_findings(prediction, emit, known)
    return conclude(request, with_profile(prediction, found))


def predictions_on(
    request: AnalysisRequest, gpu: Gpu, emit: Emit, traced: KeptTraces, experience: Experience
) -> ModelPrediction:
    """Predictions for a workload on a GPU, in the machine where its steps were measured.

    Args:
        request: The request for the workload, on that GPU.
        gpu: The GPU.
        emit: Receives log lines.
        traced: Traces the workload.
        experience: The steps that were measured before.
    """
    traces = traced.of(request, behaviour_of(gpu), emit)
    correction = experience.of(request.workload, gpu.name)
    gpu, correction = on_measured_host(gpu, request, correction, traces)
    return ModelPrediction(request, gpu, traces, correction)


class ModelPrediction(Prediction):
    """Predictions for one workload on one GPU; each batch size once."""

    request: AnalysisRequest

    @property
    def usable_bytes(self) -> int:
        return usable_bytes(self.request.workload, self.gpu)

    def samples_of_step(self, batch_size: int) -> float:
        return samples_of_step(self.request.workload_at(batch_size), self.traces.at(batch_size))

    def profile(self, batch_size: int) -> StepProfile:
        trained, step = self.request.workload_at(batch_size), self.traces.at(batch_size)
        return step_profile(step, self.gpu, trained.precision, trained.gradient_accumulation)

    def refusal(self, smallest: Trial) -> DoesNotFit:
        request, gpu, step = self.request, self.gpu, self.traces.at(smallest.batch_size)
        if needs_most(step):
            return DoesNotFit(why_evaluation_fails(request, gpu, smallest))
        if why := why_vllm_fails(request.workload, gpu):
            return DoesNotFit(f"{why}.")
        beside = whole_experts(request.workload_at(smallest.batch_size), step)
        return does_not_fit(request, smallest, gpu_facts(gpu), beside)

    def completed(self, found: Findings) -> Findings:
        batch_size = found.recommended.batch_size
        trained, step = self.request.workload_at(batch_size), self.traces.at(batch_size)
        return replace(
            found,
            caveats=self.caveats_at(batch_size, found.caveats),
            lengths=lengths_of(trained, batch_size),
            phases=phases_of(trained, self.gpu, step, found.recommended.source),
            limiting_phase=self._limiting_phase(found),
        )

    def caveats_at(
        self, batch_size: int, of_numbers: Sequence[str], *, fits: bool = True
    ) -> list[str]:
        """All caveats of a prediction, of one batch size or of a search.

        Args:
            batch_size: The batch size, or the recommended one.
            of_numbers: Those of its numbers, or of the search.
            fits: Whether it fits, so that there is room for an evaluation.
        """
        trained, step = self.request.workload_at(batch_size), self.traces.at(batch_size)
        return [
            NOTHING_RUN,
            *(evaluation_caveats(self.request, self.gpu, step) if fits else []),
            *gpu_caveats(self.gpu),
            *self.correction.caveats(batch_size),
            *of_numbers,
            *about_lengths(trained, batch_size),
            *cache_caveats(trained),
            *code_caveats(trained),
            *method_caveats(trained),
            *rollout_caveats(trained, step),
            *vllm_caveats(trained, self.gpu, step),
            *paged_caveats(trained),
            *outlier_caveats(trained),
            *whole_experts(trained, step),
            *negatives_caveats(trained),
            *refresh_caveats(trained),
            *interconnect.caveats(trained, self.gpu),
        ]

    def _limiting_phase(self, found: Findings) -> PhaseName | None:
        """The phase in which the batch beyond the largest does not fit."""
        if not found.outcome.next_batch_size_fails:
            return None
        beyond = found.outcome.next_batch_size
        return largest_phase(self.request.workload_at(beyond), self.gpu, self.traces.at(beyond))

    def _fit(self, batch_size: int, *, careful: bool) -> Trial:
        workload, step = self.request.workload_at(batch_size), self.traces.at(batch_size)
        return predict_fit(workload, self.gpu, step, self.allocator, careful=careful)

    def _step_time(self, batch_size: int) -> StepTime:
        return predict_step(
            self.request.workload_at(batch_size), self.gpu, self.traces.at(batch_size)
        )
