"""How a training step computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..choices import Attention, Mode, Precision
from ..fields import Described, Group, Interval
from ..optimizers import Optimizer

MAX_ACCUMULATION = 1024
MAX_RANK = 4096


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How a training step computes."""

    precision: Annotated[
        Precision,
        Described(
            "Precision",
            "Match your training script. bf16 needs Ampere or newer.",
            Group.TRAINING,
            is_column=True,
        ),
    ] = Precision.FP32
    optimizer: Annotated[
        Optimizer,
        Described(
            "Optimizer",
            "AdamW stores two extra values per weight; plain SGD stores none.",
            Group.TRAINING,
            is_column=True,
        ),
    ] = Optimizer.ADAMW
    optimizer_rank: Annotated[
        int | None,
        Interval(ge=1, le=MAX_RANK),
        Described(
            "Projection rank",
            "Of the gradients that GaLore and APOLLO project; 1 with apollo is APOLLO-Mini.",
            Group.OPTIONS,
            empty="128 for GaLore, 256 for APOLLO",
        ),
    ] = None
    mode: Annotated[
        Mode,
        Described("Mode", "Use train for training; eval only turns dropout off.", Group.OPTIONS),
    ] = Mode.TRAIN
    attention: Annotated[
        Attention,
        Described(
            "Attention",
            "How attention scores are computed. transformers uses sdpa by default.",
            Group.OPTIONS,
        ),
    ] = Attention.SDPA
    use_cache: Annotated[
        bool | None,
        Described(
            "Key-value cache",
            "Whether a decoder returns keys and values in training too. Your own loop does "
            "unless config.use_cache is false.",
            Group.OPTIONS,
            empty="as in Hugging Face's Trainer: off since transformers 5",
        ),
    ] = None
    gradient_accumulation: Annotated[
        int,
        Interval(ge=1, le=MAX_ACCUMULATION),
        Described(
            "Gradient accumulation",
            "Micro-batches per optimizer step. Batch sizes here are per micro-batch.",
            Group.OPTIONS,
            unit="micro-batches per step",
        ),
    ] = 1
    frozen_backbone: Annotated[
        bool,
        Described(
            "Frozen backbone",
            "Trains only the head: no gradients for the rest. DETR and its kin freeze their image "
            "encoder.",
            Group.OPTIONS,
        ),
    ] = False
    compile: Annotated[
        bool,
        Described(
            "torch.compile",
            "A compiled step can only be measured, on a GPU of your lab.",
            Group.OPTIONS,
        ),
    ] = False
