"""Whether a training was what its analysis recommends: the one rule, as a pure function."""

from __future__ import annotations

from engine.gpus import LOCAL, catalogue_name
from engine.recording import TrainingRecord
from engine.request import AnalysisRequest
from engine.result import AnalysisResult
from engine.workload import Precision


def why_not_verified(
    request: AnalysisRequest, measured_gpu: str, result: AnalysisResult, record: TrainingRecord
) -> str:
    """What in a training is not as the analysis recommends; empty if it verifies it.

    It verifies where it really trained, with the recommended batch on each device, on as many
    devices as were asked about, accumulating as much as keeps the global batch if one was to be
    kept, on that kind of GPU, and in that precision as far as it is known.

    Args:
        request: What was asked.
        measured_gpu: The kind of GPU it was measured on; empty for a prediction.
        result: What was recommended.
        record: What the training used.
    """
    recommended, devices = result.recommended_batch_size, request.world_size
    kept = result.global_batch
    if not record.timed_steps:
        return "no step of it was timed"
    if record.batch_size != recommended:
        return f"it trained with batch {record.batch_size:,}, not {recommended:,}"
    if record.world_size != devices:
        return f"it trained on {record.world_size:,} devices, not {devices:,}"
    if kept and record.gradient_accumulation != kept.gradient_accumulation:
        return (
            f"it accumulated {record.gradient_accumulation:,} micro-batches, where "
            f"{kept.gradient_accumulation:,} keep the global batch"
        )
    if not _is_that_gpu(request.gpu, measured_gpu, record):
        return f"it trained on {record.device_name}"
    known = record.precision in list(Precision)
    if known and record.precision != request.workload.precision:
        return f"it trained in {record.precision}, not {request.workload.precision}"
    return ""


def _is_that_gpu(gpu: str, measured_gpu: str, record: TrainingRecord) -> bool:
    """Whether it is the same kind of GPU, which drivers and catalogue may name differently."""
    if gpu == LOCAL and record.device_name == measured_gpu:
        return True
    wanted = catalogue_name(measured_gpu) if gpu == LOCAL else gpu
    return wanted is not None and catalogue_name(record.device_name) == wanted
