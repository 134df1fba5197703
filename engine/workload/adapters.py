"""What is trained beside frozen weights, and how those are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..choices import Adapter, Quantization
from ..fields import Described, Group, Interval


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """What is trained beside frozen weights, and how those are kept."""

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
