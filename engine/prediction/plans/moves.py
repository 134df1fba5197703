"""The moves that may help a workload on a GPU, and the memory that it takes at least.

:mod:`engine.prediction.plans.combinations` decides which of them to try together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...answer.ladder import (
    ACCUMULATION,
    CHECKPOINTING,
    NO_CACHE,
    NO_CHECKPOINTING,
    Effort,
    Learning,
    Move,
)
from ...core.choices import (
    ZERO,
    Attention,
    Batching,
    CrossEntropy,
    Parallelism,
    Precision,
    Quantization,
    Recompute,
)
from ...core.optimizers import Optimizer
from ...gpus import Gpu
from ...interface.request import AnalysisRequest
from ...interface.workload import Workload
from ...models.tasks import Task

LORA_RANK = 8
GPU_COUNTS = (2, 4, 8)
"""GPU counts tried with FSDP."""

EIGHT_BIT, APOLLO = "8-bit AdamW", "APOLLO"
LORA = "LoRA"
LESS_ACCUMULATION = "less accumulation"
"""Accumulation traded for batch at the same global batch, as is batch for accumulation."""
CHUNKED = "chunked cross-entropy"
QLORA, FOUR_BIT = "QLoRA", "4-bit weights"
HALF, BF16_WEIGHTS = "fp16", "bf16 weights"
_MIN_TOKENS = 64
"""Tokens below which samples are not shortened."""
_IN_FP32 = (Precision.FP32, Precision.TF32)
_ADAMW = (Optimizer.ADAMW, Optimizer.ADAMW_FOREACH)


def moves_for(request: AnalysisRequest, gpu: Gpu) -> list[Move]:
    """Every single move that makes a difference to a workload, other than its batch and GPU."""
    workload, numerics = request.workload, Learning.NUMERICS
    moves = list(_of_precision(workload, gpu))
    if workload.optimizer is Optimizer.ADAMW_FOREACH:
        moves.append(Move("fused AdamW", {"optimizer": Optimizer.ADAMW}))
    if workload.gradient_checkpointing:
        moves.append(Move(NO_CHECKPOINTING, _without_checkpointing(workload)))
    else:
        moves.append(Move(CHECKPOINTING, {"gradient_checkpointing": True}))
    if workload.use_cache and not workload.gradient_checkpointing:  # which switches it off
        moves.append(Move(NO_CACHE, {"use_cache": False}))
    in_parts = {"cross_entropy": CrossEntropy.CHUNKED}
    if workload.cross_entropy is CrossEntropy.MODEL and workload.takes(in_parts):
        moves.append(Move(CHUNKED, in_parts, effort=Effort.FEW_LINES))
    if workload.optimizer in _ADAMW:
        moves.append(Move(EIGHT_BIT, {"optimizer": Optimizer.ADAMW_8BIT}, numerics))
    # Of those that project gradients: GaLore's decompositions take time that is not predicted.
    projected = {"optimizer": Optimizer.APOLLO}
    if workload.optimizer in (*_ADAMW, Optimizer.ADAMW_8BIT) and workload.takes(projected):
        moves.append(Move(APOLLO, projected, Learning.OPTIMIZER, Effort.FEW_LINES))
    moves += [*_of_lengths(workload, gpu), *_of_accumulation(request), *_of_shorter(workload)]
    if not workload.frozen_backbone:
        moves += _of_adapters(workload)
    return [*moves, *_of_sharing(workload)]


def _without_checkpointing(workload: Workload) -> dict[str, Any]:
    """The fields that switch it off, with those that say how it is done."""
    said = {"gradient_checkpointing": False, "checkpoint_every": 1, "recompute": Recompute.ALL}
    return {name: value for name, value in said.items() if getattr(workload, name) != value}


def _of_lengths(workload: Workload, gpu: Gpu) -> Iterator[Move]:
    """Less padding, where samples differ in length."""
    if workload.batching is Batching.LONGEST:
        yield Move("bucketed batches", {"batching": Batching.BUCKETED}, Learning.NUMERICS)
    in_one_row = (
        workload.batching.pads
        and workload.task is Task.CAUSAL_LANGUAGE_MODELLING
        and workload.precision not in _IN_FP32
        and workload.eval_batch_size is None
        and gpu.compute_capability >= 8.0
    )
    if in_one_row:
        fields = {"batching": Batching.PADDING_FREE, "attention": Attention.FLASH}
        yield Move("padding-free batches", fields, effort=Effort.FEW_LINES)


def _of_accumulation(request: AnalysisRequest) -> Iterator[Move]:
    """Moves to another batch at the same global batch."""
    workload, current = request.workload, request.known_batch_size
    if request.global_batch_size is not None or workload.pipeline_parallel > 1:
        return
    kept = {"global_batch_size": current * workload.gradient_accumulation * request.data_parallel}
    if workload.gradient_accumulation > 1:
        yield Move(LESS_ACCUMULATION, kept)
    elif current > 1:
        yield Move(ACCUMULATION, kept)


def _of_shorter(workload: Workload) -> Iterator[Move]:
    """Samples cut to half their length."""
    if workload.sequence_length is None or workload.batching.pads:
        return
    half = {"sequence_length": workload.sequence_length // 2}
    if half["sequence_length"] >= _MIN_TOKENS and workload.takes(half):
        yield Move(f"sequences of {half['sequence_length']:,} tokens", half, Learning.TRAINED)


def _of_adapters(workload: Workload) -> Iterator[Move]:
    trained, few_lines = Learning.TRAINED, Effort.FEW_LINES
    adapters, four_bit = {"lora_rank": LORA_RANK}, {"quantization": Quantization.NF4}
    quantizes = (
        not workload.quantization.in_4_bits
        and not workload.preset.package
        and workload.takes(adapters | four_bit)
    )
    if workload.lora_rank is None:
        yield Move(LORA, adapters, trained, few_lines)
        if quantizes:
            yield Move(QLORA, adapters | four_bit, trained, few_lines)
    elif quantizes:
        yield Move(FOUR_BIT, four_bit, Learning.NUMERICS, few_lines)


def _of_sharing(workload: Workload) -> Iterator[Move]:
    """The other way to divide everything among the same GPUs."""
    other: dict[str, Any] = {
        "parallelism": Parallelism.FSDP,
        "reduce_bucket_size": None,
        "overlap_comm": False,
    }
    if workload.parallelism is Parallelism.FSDP:
        other = {"parallelism": Parallelism.ZERO_3}
    elif workload.parallelism not in ZERO:
        return
    if workload.takes(other):  # not with another precision, for one
        name = "FSDP" if workload.parallelism in ZERO else "ZeRO 3"
        yield Move(name, other, Learning.NONE, Effort.FEW_LINES)


def _of_precision(workload: Workload, gpu: Gpu) -> Iterator[Move]:
    if workload.parallelism in ZERO:  # which is for one precision
        return
    numerics = Learning.NUMERICS
    if workload.precision in _IN_FP32:
        if workload.precision is Precision.FP32 and gpu.tf32_flops is not None:
            yield Move("tf32", {"precision": Precision.TF32}, numerics)
        if gpu.bf16_flops is None:
            yield Move(HALF, {"precision": Precision.FP16_MIXED}, numerics)
        else:
            yield Move("bf16", {"precision": Precision.BF16_MIXED}, numerics)
    if workload.precision is not Precision.BF16_TRUE and gpu.bf16_flops is not None:
        yield Move(BF16_WEIGHTS, {"precision": Precision.BF16_TRUE}, numerics)


def sharded(request: AnalysisRequest) -> list[Move]:
    """The moves to more GPUs."""
    workload = request.workload
    if workload.parallelism is not Parallelism.NONE or workload.eval_batch_size is not None:
        return []
    kept = request.global_batch_size is not None
    learning = Learning.NONE if kept else Learning.GLOBAL_BATCH
    return [
        Move(
            f"{count} GPUs with FSDP",
            {"parallelism": Parallelism.FSDP, "world_size": count},
            learning,
            Effort.MACHINE,
        )
        for count in GPU_COUNTS
    ]


def shortens(move: Move) -> bool:
    """Whether a move makes samples shorter."""
    return "sequence_length" in move.fields


def least_bytes(workload: Workload, parameters: float) -> float:
    """Lower bound of weights, gradients and optimizer state on each GPU, in bytes.

    Args:
        workload: Its precision, optimizer, LoRA, quantization and sharding count.
        parameters: Number of parameters of the model.
    """
    if workload.cpu_offload:
        return 0.0
    if workload.parallelism in ZERO:  # what is divided among all is little for many
        return parameters * _width_of_frozen(workload, 2) / workload.shard_count
    width = 2 if workload.precision is Precision.BF16_TRUE else 4
    each: float = width
    if workload.lora_rank is None and not workload.frozen_backbone:
        if not workload.optimizer_offload:
            each += workload.optimizer.spec.state * width
        if not workload.optimizer_in_backward:  # which drops each gradient at once
            each += width
        each += workload.optimizer.spec.state_bytes
    else:
        each = _width_of_frozen(workload, width)
    shards = workload.shard_count
    return parameters * each / shards


def _width_of_frozen(workload: Workload, whole: float) -> float:
    """Bytes of a weight below adapters, where neither head nor embeddings are large."""
    if workload.quantization.in_4_bits:
        return 0.5
    return 1.0 if workload.quantization is Quantization.INT8 else whole
