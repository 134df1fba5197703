"""What changing one thing about a workload would buy on one GPU, predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from torch._subclasses.fake_tensor import DataDependentOutputException

from engine.allocator.options import AllocatorOptions
from engine.errors import EngineError, InvalidInput
from engine.events import Event, Log
from engine.gpus import Gpu
from engine.prediction.analysis import request_traces
from engine.prediction.limits import Limits, find_limits
from engine.prediction.probe import predict_trial
from engine.request import AnalysisRequest
from engine.result import Trial
from engine.tracing.lowering import cuda_behaviour
from engine.workload import Optimizer, Precision, Workload

LORA_RANK = 8

_NOT_PREDICTED = "such a step looks at the values of tensors, which no prediction knows"


@dataclass(frozen=True)
class Change:
    """One thing changed about a workload, everything else as it is.

    Attributes:
        name: What is changed, in words; ``as it is`` for the workload itself.
        fields: The workload's fields that change, with their new values.
        applies: Whether the model can be trained that way here.
        why_not: Why it cannot; empty if it can.
        largest_batch_size: The largest batch that fits; 0 if none does.
        recommended_batch_size: The smallest within 5 % of the best speed, safe in memory.
        samples_per_second: At that batch.
        speedup: That over the speed of the workload as it is at its own recommended batch;
            ``None`` where one of them fits no batch.
        current_used_bytes: Device memory that the current batch takes, or would need.
        saved_bytes: How much less that is than for the workload as it is; negative if more.
    """

    name: str
    fields: dict[str, Any]
    applies: bool = True
    why_not: str = ""
    largest_batch_size: int = 0
    recommended_batch_size: int | None = None
    samples_per_second: float | None = None
    speedup: float | None = None
    current_used_bytes: int | None = None
    saved_bytes: int | None = None


def changes(request: AnalysisRequest, gpu: Gpu, emit: Callable[[Event], None]) -> list[Change]:
    """Try each change that may help on a GPU.

    Args:
        request: With the workload as it is, the GPU and the current batch.
        gpu: The request's.
        emit: Receives log lines.

    Returns:
        The workload as it is, then every change. One that cannot be made says why.
    """
    base = _tried(Change("as it is", {}), request, gpu)
    found = [base]
    for name, fields in _candidates(request.workload, gpu):
        emit(Log(f"Trying {name}"))
        change = Change(name, fields)
        try:
            changed = replace(request, workload=replace(request.workload, **fields))
            change = _tried(change, changed, gpu)
        except InvalidInput as error:
            change = replace(change, applies=False, why_not="; ".join(error.fields.values()))
        except EngineError as error:
            change = replace(change, applies=False, why_not=str(error))
        except DataDependentOutputException:
            change = replace(change, applies=False, why_not=_NOT_PREDICTED)
        found.append(_against(base, change))
    return found


def _candidates(workload: Workload, gpu: Gpu) -> Iterator[tuple[str, dict[str, Any]]]:
    """The changes that would do something, each by name and fields."""
    if workload.precision in (Precision.FP32, Precision.TF32):
        if workload.precision is Precision.FP32 and gpu.tf32_flops is not None:
            yield "tf32", {"precision": Precision.TF32}
        half = Precision.FP16_MIXED if gpu.bf16_flops is None else Precision.BF16_MIXED
        yield str(half), {"precision": half}
    if not workload.gradient_checkpointing:
        yield "gradient checkpointing", {"gradient_checkpointing": True}
    for optimizer in (Optimizer.ADAMW_8BIT, Optimizer.ADAFACTOR, Optimizer.SGD_MOMENTUM):
        if workload.optimizer not in (optimizer, Optimizer.NONE, Optimizer.SGD):
            yield f"optimizer {optimizer}", {"optimizer": optimizer}
    if workload.lora_rank is None and not workload.frozen_backbone:
        yield f"LoRA, rank {LORA_RANK}", {"lora_rank": LORA_RANK}


def _tried(change: Change, request: AnalysisRequest, gpu: Gpu) -> Change:
    trace_at = request_traces(request, cuda_behaviour(gpu.compute_capability), lambda _: None)
    allocator = AllocatorOptions.parse(request.allocator)

    @cache
    def predict(batch_size: int) -> Trial:
        workload = request.workload_at(batch_size)
        return predict_trial(workload, gpu, trace_at(batch_size), allocator)

    limits: Limits = find_limits(request, gpu, predict)
    change = replace(
        change,
        largest_batch_size=limits.outcome.largest_batch_size,
        current_used_bytes=predict(request.current_batch_size).device_used_bytes,
    )
    if limits.choice is None:
        return change
    recommended = predict(limits.choice.batch_size)
    return replace(
        change,
        recommended_batch_size=recommended.batch_size,
        samples_per_second=recommended.samples_per_second,
    )


def _against(base: Change, change: Change) -> Change:
    """The change with its differences from the workload as it is."""
    speedup = saved = None
    if base.samples_per_second and change.samples_per_second:
        speedup = change.samples_per_second / base.samples_per_second
    if base.current_used_bytes is not None and change.current_used_bytes is not None:
        saved = base.current_used_bytes - change.current_used_bytes
    return replace(change, speedup=speedup, saved_bytes=saved)
