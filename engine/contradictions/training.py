"""What attention, caches, images and optimizers do not combine with."""

from __future__ import annotations

from ..choices import LOW_RANK, MATRIX_OPTIMIZERS, Attention, Optimizer, Parallelism, Precision
from ..models.diffusion import IMAGE_MULTIPLE
from ..models.tasks import Task
from .contradiction import GIVEN, ON, Contradiction, is_of_a_package, one_of, other_than

_IN_FP32 = one_of(Precision.FP32, Precision.TF32)
_NOT_ON_SHARDS = one_of(
    Optimizer.ADAFACTOR,
    Optimizer.ADAMW_8BIT,
    Optimizer.PAGED_ADAMW,
    Optimizer.PAGED_ADAMW_8BIT,
    Optimizer.ADAM_MINI,
    Optimizer.MUON,
    *MATRIX_OPTIMIZERS,
)
# transformers' Adafactor mixes shards with whole tensors; bitsandbytes' kernels refuse those of
# fully_shard (0.50.2: "got mixed torch.Tensor and DTensor") and read past the end of others
# (https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1633); Muon's products gather
# whole matrices, one after another; GaLore, APOLLO, SOAP and Shampoo need whole matrices too.

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
        {"optimizer": one_of(*LOW_RANK), "lora_rank": GIVEN},
        "LoRA's matrices are of low rank already; choose adamw, or leave the LoRA rank empty",
    ),
    Contradiction(
        {"optimizer": one_of(*LOW_RANK), "frozen_backbone": ON},
        "it projects the layers of the backbone, which is frozen; choose adamw",
    ),
    Contradiction(
        {"optimizer_rank": GIVEN, "optimizer": other_than(*LOW_RANK)},
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
