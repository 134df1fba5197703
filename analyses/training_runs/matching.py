"""Whether a training run ran as its analysis recommends, or is of another one."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from analyses.models import Analysis
from analyses.results.decided import decided_fields, decided_moves
from engine.core.errors import InvalidInput
from engine.interface.program import AnyRequest, ProgramRequest, read_request
from engine.interface.result import AnalysisResult
from engine.interface.trial import Trial
from engine.recording import TrainingRecord
from engine.records import comparison
from engine.versions import software

logger = logging.getLogger(__name__)


def request_of(analysis: Analysis) -> AnyRequest | None:
    """The request of an analysis; ``None`` if another version of MemoryMark wrote it."""
    try:
        return read_request(analysis.request)
    except InvalidInput:
        logger.warning("the request of analysis %s cannot be read", analysis.pk, exc_info=True)
        return None


def why_not_verified(
    request: AnyRequest, measured_gpu: str, result: AnalysisResult, record: TrainingRecord
) -> str:
    """The reason why a training run does not verify the recommendation; empty if it does.

    It must be of the model or script and the GPU, have trained with the recommended batch per
    device, with the gradient accumulation that keeps the global batch (if one is kept), and with
    the software of the answer as far as both are known, and as :func:`why_not_comparable` says.

    ``request``, ``measured_gpu`` (empty for a prediction) and ``result`` are the analysis's.
    """
    if other := why_other(request, measured_gpu, result, record):
        return other
    recommended, kept = result.recommended_batch_size, result.global_batch
    if record.timed_steps and record.batch_size != recommended:
        return f"it trained with batch {record.batch_size:,}, not {recommended:,}"
    if kept and record.gradient_accumulation != kept.gradient_accumulation:
        return (
            f"it accumulated {record.gradient_accumulation:,} micro-batches, where "
            f"{kept.gradient_accumulation:,} keep the global batch"
        )
    differs = why_not_comparable(_decided(request, result), measured_gpu, record)
    return differs or _other_software(result, record)


def why_without_its_changes(analysis: Analysis, record: TrainingRecord) -> str:
    """The reason why a run of a script cannot show the changes of its decision; empty if it may.

    The hash of a script and a run's own words say little of changes in its code, so a run that
    began before they were advised shows none.
    """
    changed = decided_fields(analysis) if analysis.program_hash else {}
    if not changed:
        return ""
    wanted = changed.get("precision")
    if wanted and record.precision and record.precision != wanted:
        return f"it trained in {record.precision}, not {wanted}"
    advised = analysis.finished_at
    if advised is not None and datetime.fromisoformat(record.started_at) < advised:
        return f"it began before {', '.join(decided_moves(analysis))} was advised"
    return ""


def why_other(
    request: AnyRequest, measured_gpu: str, result: AnalysisResult, record: TrainingRecord
) -> str:
    """The reason why a run is of another model or kind of GPU, so never of this analysis."""
    if other := comparison.why_other_gpu(request.gpu, measured_gpu, record.device_name):
        return other
    held = parameter_bytes_in(result.trials)
    return _why_other_subject(_decided(request, result), record, held)


def _decided(request: AnyRequest, result: AnalysisResult) -> AnyRequest:
    """The request with the workload of its answer, which has all moves; a script has none."""
    if isinstance(request, ProgramRequest) or result.workload is None:
        return request
    return replace(request, workload=result.workload)


def _why_other_subject(request: AnyRequest, record: TrainingRecord, held_bytes: int | None) -> str:
    """The reason why a run trained something else, as far as it says; empty if it did not."""
    if isinstance(request, ProgramRequest):
        return comparison.why_other_program(record, request.program, held_bytes)
    return comparison.why_other_model(
        record.model_name, record.parameter_bytes, request.workload, held_bytes
    )


def parameter_bytes_in(trials: Iterable[Trial]) -> int | None:
    """Bytes of the parameters, the same in each trial; ``None`` if no trial is broken down."""
    known = (trial.breakdown.get("parameters") for trial in trials)
    return next(filter(None, known), None)


def _other_software(result: AnalysisResult, record: TrainingRecord) -> str:
    """The reason why a run's software is another than the answer's; patch releases are alike."""
    for package, used in result.software.items():
        ran = record.versions.get(package)
        if ran and software.minor(ran) != software.minor(used):
            return f"it trained with {package} {ran}, and the answer is for {used}"
    return ""


def why_not_comparable(
    request: AnyRequest,
    measured_gpu: str,
    record: TrainingRecord,
    held_bytes: int | None = None,
) -> str:
    """The first difference of a training run from the request, batch apart; empty if none.

    ``held_bytes`` is that of the analysis's parameters, as far as it is known.
    """
    differs = comparison.why_not_comparable(
        record, request.gpu, request.world_size, request.subject.precision, measured_gpu
    )
    return differs or _why_other_subject(request, record, held_bytes)
