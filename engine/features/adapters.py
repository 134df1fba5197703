"""Parameters trained beside frozen weights, and the format of those weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core.choices import Adapter, Parallelism, Quantization
from ..core.fields import Described, Group, Interval
from ..core.optimizers import Optimizer
from ..models.tasks import Task
from .contradiction import GIVEN, NAMED, NOT_GIVEN, ON, QUANTIZED, Contradiction, one_of, other_than


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """Parameters trained beside frozen weights, and the format of those weights."""

    lora_rank: Annotated[
        int | None,
        Interval(ge=1, le=1024),
        Described(
            "LoRA rank",
            "Trains small adapters of this rank, such as 8 or 16, and freezes the rest.",
            Group.ADAPTERS,
            empty="no LoRA",
        ),
    ] = None
    lora_targets: Annotated[
        str,
        Described(
            "LoRA targets",
            "Names of the modules that get adapters, separated by commas, or all-linear.",
            Group.ADAPTERS,
            metavar="NAMES",
        ),
    ] = "all-linear"
    adapter: Annotated[
        Adapter,
        Described(
            "Adapter",
            "DoRA often learns more at the same rank; it needs more memory and time.",
            Group.ADAPTERS,
        ),
    ] = Adapter.LORA
    modules_to_save: Annotated[
        str | None,
        Described(
            "Modules trained whole",
            "Names of modules that are trained whole beside the adapters, separated by commas, "
            "such as embed_tokens,lm_head for new tokens.",
            Group.ADAPTERS,
            empty="none",
            metavar="NAMES",
        ),
    ] = None
    trained_tokens: Annotated[
        int | None,
        Interval(ge=1, le=65_536),
        Described(
            "New tokens trained",
            "So many rows of the embeddings are trained beside the adapters, as peft's "
            "trainable_token_indices.",
            Group.ADAPTERS,
            unit="tokens",
            empty="none",
        ),
    ] = None
    quantization: Annotated[
        Quantization,
        Described(
            "Quantization",
            "How bitsandbytes keeps the frozen linear layers below LoRA: in 4 bits as for QLoRA "
            "(nf4), with scales of 32 bits (nf4-single, fp4), or in 8 bits as LLM.int8.",
            Group.ADAPTERS,
        ),
    ] = Quantization.NONE


RULES = (
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
