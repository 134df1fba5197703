"""The flags of the command line, each for one field of an ``AnalysisRequest``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.gpus import LOCAL
from engine.models.kinds import Task
from engine.workload import Attention, Mode, Optimizer, Parallelism, Precision

PUBLISHED_GPU = "a10"
"""The GPU whose measurement of forward against backward is published."""


@dataclass(frozen=True)
class Flag:
    """A flag of the command line for one field of ``AnalysisRequest``."""

    flag: str
    field: str
    metavar: str
    help: str
    required: bool = False
    default: str | None = None


CATALOGUE_GPU = Flag("--gpu", "gpu", "NAME", "a GPU that `devices` lists", required=True)
BATCH_SIZE = Flag("--batch-size", "current_batch_size", "N", "samples per step", required=True)
MEMORY_LIMIT = Flag(
    "--memory-limit",
    "memory_limit_bytes",
    "SIZE",
    "use no more memory than this: 8GiB, 500MiB, 16GB or plain bytes",
)
WORKLOAD = (
    Flag("--precision", "precision", "NAME", f"{', '.join(Precision)}; default fp32"),
    Flag("--optimizer", "optimizer", "NAME", f"{', '.join(Optimizer)}; default adamw"),
    Flag("--mode", "mode", "NAME", f"{', '.join(Mode)}; default train"),
    Flag("--sequence-length", "sequence_length", "TOKENS", "tokens per sample of a text model"),
    Flag("--image-size", "image_size", "PIXELS", "pixels per side of an image"),
    Flag("--task", "task", "NAME", f"{', '.join(Task)}; default: the model's usual one"),
    Flag("--label-count", "label_count", "N", "labels of a classifier; default: the model's"),
    Flag("--config", "config", "FILE", "a config.json, which makes MODEL any name you like"),
    Flag("--attention", "attention", "NAME", f"{', '.join(Attention)}; default sdpa"),
    Flag(
        "--gradient-checkpointing",
        "gradient_checkpointing",
        "true|false",
        "recompute activations in backward; default false",
    ),
    Flag(
        "--gradient-accumulation",
        "gradient_accumulation",
        "N",
        "micro-batches to one optimizer step; default 1",
    ),
    Flag("--lora-rank", "lora_rank", "N", "train LoRA adapters of this rank only"),
    Flag("--lora-targets", "lora_targets", "NAMES", "modules that get them; default all-linear"),
    Flag(
        "--frozen-backbone", "frozen_backbone", "true|false", "train the head only; default false"
    ),
    Flag("--compile", "compile", "true|false", "torch.compile, measured only; default false"),
    Flag("--parallelism", "parallelism", "NAME", f"{', '.join(Parallelism)}; default none"),
    Flag("--world-size", "world_size", "N", "GPUs that share the work; default 1"),
    Flag(
        "--gradient-as-bucket-view",
        "gradient_as_bucket_view",
        "true|false",
        "DDP's gradients lie in its buckets; default false",
    ),
)
ALLOCATOR = Flag(
    "--allocator",
    "allocator",
    "OPTIONS",
    "as in PYTORCH_ALLOC_CONF, such as expandable_segments:True",
)
GLOBAL_BATCH = (
    Flag("--batch-multiple", "batch_multiple", "N", "only try multiples of N; default 1"),
    Flag(
        "--global-batch-size",
        "global_batch_size",
        "N",
        "samples per optimizer step to keep, by accumulating micro-batches",
    ),
)
ECONOMICS = (
    Flag("--hours-per-run", "hours_per_run", "HOURS", "GPU-hours of one run now; default 8"),
    Flag("--runs-per-year", "runs_per_year", "N", "such runs in a year; default 100"),
    Flag("--price-per-hour", "price_per_hour_usd", "USD", "of a GPU-hour; default: catalogue's"),
)
ANALYZE = (
    replace(
        CATALOGUE_GPU,
        help=f"a GPU that `devices` lists; default {LOCAL}: measure here",
        required=False,
        default=LOCAL,
    ),
    Flag("--current-batch-size", "current_batch_size", "N", "what you use now; default 16"),
    *WORKLOAD,
    *GLOBAL_BATCH,
    MEMORY_LIMIT,
    ALLOCATOR,
    *ECONOMICS,
)
PREDICT = (BATCH_SIZE, CATALOGUE_GPU, *WORKLOAD, MEMORY_LIMIT, ALLOCATOR)
MEASURE = (BATCH_SIZE, *WORKLOAD, MEMORY_LIMIT, ALLOCATOR)
PLAN = (
    replace(
        CATALOGUE_GPU,
        help="the GPU used now: adds what a run costs and what changes would buy on it",
        required=False,
        default=LOCAL,
    ),
    Flag("--current-batch-size", "current_batch_size", "N", "what you use now; default 16"),
    *WORKLOAD,
    *GLOBAL_BATCH,
    *ECONOMICS,
)
COMPILED_BATCH_SIZE = "4"
"""So that a CPU answers too: with it BERT's first compiled process took 62 s on two idle cores, an
eager one 20 s."""

VALIDATE_COMPILE = (
    replace(
        BATCH_SIZE,
        help=f"samples per step; default {COMPILED_BATCH_SIZE}",
        required=False,
        default=COMPILED_BATCH_SIZE,
    ),
    *WORKLOAD,
)
VALIDATE_BACKWARD = (
    replace(BATCH_SIZE, required=False, help="samples per step; default 16"),
    replace(
        CATALOGUE_GPU,
        help=f"a GPU that `devices` lists, or {LOCAL}; default {PUBLISHED_GPU}",
        required=False,
        default=PUBLISHED_GPU,
    ),
    *WORKLOAD,
)

FLAG_OF_FIELD = {flag.field: flag.flag for flag in (*ANALYZE, *PREDICT)}
"""The flag for each field that can be given on the command line."""
