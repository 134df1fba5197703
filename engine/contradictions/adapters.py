"""Settings that cannot be combined with adapters and quantized weights."""

from __future__ import annotations

from ..choices import Adapter, Parallelism, Quantization
from ..models.tasks import Task
from ..optimizers import Optimizer
from .contradiction import (
    GIVEN,
    NAMED,
    NOT_GIVEN,
    ON,
    QUANTIZED,
    Contradiction,
    one_of,
    other_than,
)

ADAPTERS = (
    Contradiction(
        {"frozen_backbone": ON, "lora_rank": GIVEN},
        "LoRA freezes the backbone already; choose one of the two",
    ),
    Contradiction(
        {"adapter": one_of(Adapter.DORA), "lora_rank": NOT_GIVEN},
        "DoRA needs a LoRA rank too",
    ),
    Contradiction(
        {"adapter": one_of(Adapter.DORA), "quantization": one_of(Quantization.INT8)},
        "DoRA on 8-bit weights is not predicted; choose nf4, or lora",
    ),
    Contradiction(
        {"modules_to_save": NAMED, "lora_rank": NOT_GIVEN},
        "without LoRA all modules are trained; leave it empty or set a LoRA rank",
    ),
    Contradiction(
        {"modules_to_save": NAMED, "task": one_of(Task.TEXT_TO_IMAGE)},
        "diffusers' scripts train adapters alone; leave it empty",
    ),
    Contradiction(
        {"trained_tokens": GIVEN, "lora_rank": NOT_GIVEN},
        "without LoRA all tokens are trained; leave it empty or set a LoRA rank",
    ),
    Contradiction(
        {"trained_tokens": GIVEN, "modules_to_save": NAMED},
        "peft trains some rows of the embeddings, or modules whole; leave one of the two empty",
    ),
    Contradiction(
        {"trained_tokens": GIVEN, "task": one_of(Task.TEXT_TO_IMAGE)},
        "diffusers' scripts train adapters alone; leave it empty",
    ),
    Contradiction(
        {"trained_tokens": GIVEN, "parallelism": other_than(Parallelism.NONE, Parallelism.DDP)},
        "not predicted where GPUs divide the embeddings; leave it empty",
    ),
    Contradiction(
        {"trained_tokens": GIVEN, "tensor_parallel": other_than(1)},
        "not predicted where GPUs divide the embeddings; leave it empty",
    ),
    Contradiction(
        {"trained_tokens": GIVEN, "pipeline_parallel": other_than(1)},
        "not predicted where GPUs divide the model; leave it empty",
    ),
    Contradiction(
        {"quantization": QUANTIZED},
        "quantized weights are predicted for models of transformers and diffusers; choose none",
        lambda workload: workload.preset.package == "timm",
    ),
    Contradiction(
        {
            "quantization": QUANTIZED,
            "lora_rank": NOT_GIVEN,
            "optimizer": other_than(Optimizer.NONE),
        },
        "quantized weights are not trained themselves; set a LoRA rank too",
    ),
)
