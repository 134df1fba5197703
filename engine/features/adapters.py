"""Parameters trained beside frozen weights, and the format of those weights."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from ..core.adapters import Adapter
from ..core.choices import Parallelism, Quantization
from ..core.fields import Described, Group, Interval
from ..core.optimizers import Optimizer
from ..models.tasks import Task
from .contradiction import GIVEN, NAMED, NOT_GIVEN, ON, QUANTIZED, Contradiction, one_of, other_than


def _short_name(adapter: str) -> str:
    return Adapter(adapter).spec.short


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
            chip="LoRA {}",
        ),
    ] = None
    lora_targets: Annotated[
        str,
        Described(
            "LoRA targets",
            "Names of the modules that get adapters, separated by commas, or all-linear. A regular "
            "expression for whole names, such as .*self_attn.[qv]_proj, as peft takes it.",
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
            chip=_short_name,
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
            chip="trains {}",
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
            chip="{:,} new tokens trained",
        ),
    ] = None
    quantization: Annotated[
        Quantization,
        Described(
            "Quantization",
            "How bitsandbytes keeps the frozen linear layers below LoRA: in 4 bits as for QLoRA "
            "(nf4), with scales of 32 bits (nf4-single, fp4), or in 8 bits as LLM.int8.",
            Group.ADAPTERS,
            chip="{}",
        ),
    ] = Quantization.NONE


ALL_LINEAR = "all-linear"
_NAME = re.compile(r"[\w.-]+")
_MAX_PATTERN = 500
"""Characters of a pattern."""


def adapted_modules(targets: str) -> str | list[str]:
    """LoRA targets as peft's ``target_modules`` has them: names, ``all-linear`` or a pattern.

    What is no list of names is a regular expression, which a module's whole name has to match.
    """
    names = [name.strip() for name in targets.split(",") if name.strip()]
    if names == [ALL_LINEAR]:
        return ALL_LINEAR
    return names if all(map(_NAME.fullmatch, names)) else targets


def is_pattern(targets: str) -> bool:
    """Whether LoRA targets are a regular expression."""
    return adapted_modules(targets) == targets != ALL_LINEAR


def _is_no_pattern(workload: Any) -> bool:
    modules = adapted_modules(workload.lora_targets)
    if isinstance(modules, list):
        return False
    try:
        re.compile(modules)
    except re.error:
        return True
    return len(modules) > _MAX_PATTERN


RULES = (
    Contradiction(
        {"lora_targets": NAMED},
        "this is no list of names, and no regular expression of up to "
        f"{_MAX_PATTERN} characters; write names with commas between, all-linear, or a pattern "
        "such as .*[qv]_proj",
        _is_no_pattern,
    ),
    Contradiction(
        {"frozen_backbone": ON, "lora_rank": GIVEN},
        "LoRA freezes the backbone already; choose one of the two",
    ),
    *(
        Contradiction(
            {"adapter": one_of(adapter), "lora_rank": NOT_GIVEN},
            f"{adapter.spec.short} needs a LoRA rank too",
        )
        for adapter in Adapter
        if adapter is not Adapter.LORA
    ),
    *(
        Contradiction(
            {"adapter": one_of(adapter), "quantization": one_of(Quantization.INT8)},
            f"{adapter.spec.short} on 8-bit weights is not predicted; choose nf4, or lora",
        )
        for adapter in Adapter
        if adapter.spec.reads_weights
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
