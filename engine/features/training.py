"""Settings that decide how a training step computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core.choices import Attention, Mode, Parallelism, Precision
from ..core.fields import Described, Group, Interval
from ..core.optimizers import Optimizer
from ..models.diffusion import IMAGE_MULTIPLE
from ..models.tasks import Task
from .contradiction import GIVEN, ON, Contradiction, is_of_a_package, one_of, other_than

MAX_ACCUMULATION = 1024
MAX_RANK = 4096


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings that decide how a training step computes."""

    precision: Annotated[
        Precision,
        Described(
            "Precision",
            "Match your training script. bf16 needs Ampere or newer.",
            Group.TRAINING,
            is_column=True,
            chip="{}",
        ),
    ] = Precision.FP32
    optimizer: Annotated[
        Optimizer,
        Described(
            "Optimizer",
            "AdamW stores two extra values per weight; plain SGD stores none.",
            Group.TRAINING,
            is_column=True,
            chip="{}",
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
            chip="projection rank {:,}",
        ),
    ] = None
    mode: Annotated[
        Mode,
        Described(
            "Mode",
            "Use train for training; eval only turns dropout off.",
            Group.OPTIONS,
            chip="{} mode",
        ),
    ] = Mode.TRAIN
    attention: Annotated[
        Attention,
        Described(
            "Attention",
            "How attention scores are computed. transformers uses sdpa by default.",
            Group.OPTIONS,
            chip="{} attention",
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
            chip="accumulation {:,}",
        ),
    ] = 1
    frozen_backbone: Annotated[
        bool,
        Described(
            "Frozen backbone",
            "Trains only the head: no gradients for the rest. DETR and its kin freeze their image "
            "encoder.",
            Group.OPTIONS,
            chip="frozen backbone",
        ),
    ] = False
    compile: Annotated[
        bool,
        Described(
            "torch.compile",
            "A compiled step can only be measured, on a GPU of your lab.",
            Group.OPTIONS,
            chip="compiled",
        ),
    ] = False


_IN_FP32 = one_of(Precision.FP32, Precision.TF32)
_NOT_ON_SHARDS = one_of(*(one for one in Optimizer if not one.spec.runs_on_shards))
_PROJECTING = [one for one in Optimizer if one.spec.rank is not None]

RULES = (
    Contradiction(
        {"attention": one_of(Attention.FLASH), "precision": _IN_FP32},
        "FlashAttention needs half precision; choose bf16-mixed or sdpa",
    ),
    Contradiction(
        {"attention": one_of(Attention.EAGER, Attention.FLEX)},
        "models of {workload.preset.package} use PyTorch's; choose sdpa",
        is_of_a_package,
    ),
    Contradiction(
        {"image_size": GIVEN, "task": one_of(Task.TEXT_TO_IMAGE)},
        f"enter a multiple of {IMAGE_MULTIPLE}",
        lambda workload: (workload.image_size or 0) % IMAGE_MULTIPLE != 0,
    ),
    Contradiction(
        {"use_cache": ON},
        "{workload.preset.display_name} returns no keys and values in training; leave it empty",
        lambda workload: not workload.preset.caches(workload.task),
    ),
    Contradiction(
        {"optimizer": one_of(Optimizer.ADAM_MINI), "lora_rank": GIVEN},
        "Adam-mini looks for heads, which LoRA's matrices do not have; choose adamw",
    ),
    Contradiction(
        {"optimizer": one_of(*_PROJECTING), "lora_rank": GIVEN},
        "LoRA's matrices are of low rank already; choose adamw, or leave the LoRA rank empty",
    ),
    Contradiction(
        {"optimizer": one_of(*_PROJECTING), "frozen_backbone": ON},
        "it projects the layers of the backbone, which is frozen; choose adamw",
    ),
    Contradiction(
        {"optimizer_rank": GIVEN, "optimizer": other_than(*_PROJECTING)},
        "only GaLore and APOLLO project gradients; leave it empty or choose one of them",
    ),
    Contradiction(
        {"optimizer": _NOT_ON_SHARDS, "parallelism": one_of(Parallelism.FSDP)},
        "this one does not run on FSDP's shards; choose adamw",
    ),
    Contradiction(
        {"optimizer": _NOT_ON_SHARDS, "tensor_parallel": other_than(1)},
        "this one does not run on split layers; choose adamw",
    ),
)
