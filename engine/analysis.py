"""One analysis of a model that the engine builds, from request to result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from .answer.ladder import in_few_words
from .events import Emit, Log
from .gpus import ANY, LOCAL, short_name
from .hub import resolve
from .interface.request import AnalysisRequest
from .interface.result import AnalysisResult
from .interface.trial import Source, Trial
from .measurement.measured_analysis import analyze_measured
from .prediction.plans.gpu_choice import GpuChoice, choose_gpu
from .prediction.predicted_analysis import analyze_predicted, predictions_on
from .prediction.refusals import fits_on_none
from .prediction.timing.correction import Experience
from .prediction.timing.intervals import Residual
from .records.comparison import RecordedFile
from .step.building import blaming_the_config
from .traces.workloads import KeptTraces


def analyze(
    request: AnalysisRequest,
    emit: Emit,
    known: Sequence[Trial] = (),
    traced: KeptTraces | None = None,
    measured: Sequence[Residual] = (),
    recorded: RecordedFile | None = None,
) -> AnalysisResult:
    """Run an analysis: a prediction for a catalogue GPU, measurements for ``local``.

    For ``any`` GPU it first chooses one; the result says which.

    Args:
        request: The request to analyse.
        emit: Receives log lines and trials as they come.
        known: Trials from an earlier attempt at the same request, which are not repeated.
        traced: Returns the traces of a prediction; ``None`` keeps none in memory.
        measured: Steps that were measured elsewhere, beside those of this machine's own file.
        recorded: Gives the launch time of the machine; for a catalogue GPU.

    Raises:
        InvalidInput: If the model's config cannot be fetched or trained.
        DoesNotFit: If not even the smallest batch fits.
        MeasurementFailed: If a measured trial failed for a reason other than memory.
    """
    request = replace(request, workload=resolve(request.workload))
    caveats = request.workload.software_caveats
    for caveat in caveats:
        emit(Log(caveat, "warning"))
    with blaming_the_config(request.workload):
        if request.gpu == LOCAL:
            result = analyze_measured(request, emit, _by_size(known, measured=True))
        elif request.gpu == ANY:
            result = _analyze_any(request, emit, traced, Experience.here(measured))
        else:
            made = _by_size(known, measured=False)
            known_here = Experience.here(measured, recorded)
            result = analyze_predicted(request, emit, made, traced, known_here)
    return with_versions(result, caveats, request.workload.versions_here)


def _analyze_any(
    request: AnalysisRequest,
    emit: Emit,
    traced: KeptTraces | None,
    experience: Experience,
) -> AnalysisResult:
    """The analysis for the GPU that is chosen; both steps share their traces."""
    shared = traced or KeptTraces()
    on = partial(predictions_on, traced=shared, experience=experience)
    refusal, groups = partial(fits_on_none, request), partial(shared.groups, request)
    choice = choose_gpu(request, on, refusal, emit, groups)
    result = analyze_predicted(choice.request, emit, traced=shared, experience=experience)
    return on_chosen(choice, result)


def on_chosen(choice: GpuChoice[Any], result: AnalysisResult) -> AnalysisResult:
    """The result on a GPU that was chosen, with why."""
    batch = f"batch {result.recommended_batch_size:,}"
    decision = in_few_words(
        f"Train on {result.gpu.name} with {batch}: {choice.claim}.",
        f"Train on {short_name(result.gpu.name)}, {batch}: {choice.claim}.",
    )
    return replace(
        result,
        decision=decision,
        verdict=result.verdict.replace(result.decision, decision),
        caveats=[choice.reason, *result.caveats],
        compared_gpus=choice.compared,
    )


def with_versions(
    result: AnalysisResult, caveats: Sequence[str], used: dict[str, str]
) -> AnalysisResult:
    """The result with the versions that it is for, and what is to be said about them."""
    return replace(result, software=used, caveats=[*caveats, *result.caveats])


def _by_size(known: Sequence[Trial], *, measured: bool) -> dict[int, Trial]:
    return {
        trial.batch_size: trial for trial in known if (trial.source is Source.MEASURED) is measured
    }
