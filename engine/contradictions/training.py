"""Settings that cannot be combined with attention, caches, images and optimizers."""

from __future__ import annotations

from ..choices import Attention, Parallelism, Precision
from ..models.diffusion import IMAGE_MULTIPLE
from ..models.tasks import Task
from ..optimizers import Optimizer
from .contradiction import GIVEN, ON, Contradiction, is_of_a_package, one_of, other_than

_IN_FP32 = one_of(Precision.FP32, Precision.TF32)
_NOT_ON_SHARDS = one_of(*(one for one in Optimizer if not one.spec.runs_on_shards))
_PROJECTING = [one for one in Optimizer if one.spec.rank is not None]

TRAINING = (
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
