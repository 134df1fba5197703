"""Settings that cannot be combined on several GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..choices import (
    ZERO,
    Attention,
    CrossEntropy,
    Method,
    Parallelism,
    Precision,
    Quantization,
    ReduceDtype,
    Rotation,
)
from ..models.tasks import Task
from ..optimizers import Optimizer
from .contradiction import (
    GIVEN,
    IN_PARTS,
    NAMED,
    ON,
    QUANTIZED,
    VARIES,
    Contradiction,
    Values,
    one_of,
    other_than,
)

if TYPE_CHECKING:
    from ..workload import Workload

_CAUSAL = Task.CAUSAL_LANGUAGE_MODELLING
_FOR_ZERO = [one for one in Optimizer if one.spec.is_elementwise]
_DEGREES = ("tensor_parallel", "pipeline_parallel")
"""Fields that divide a model into parts on several GPUs."""
_NOT_IN_PARTS: tuple[tuple[str, Values], ...] = (
    ("lora_rank", GIVEN),
    ("method", other_than(Method.SFT)),
    ("batching", VARIES),
    ("cross_entropy", IN_PARTS),
    ("activation_offload", ON),
    ("eval_batch_size", GIVEN),
    ("cpu_offload", ON),
    ("use_cache", ON),
    ("compile", ON),
    ("optimizer_in_backward", ON),
)
"""Settings that are not predicted where GPUs have parts of a model."""
_IN_CONTEXT = ("lora_rank", "cpu_offload", "cross_entropy", "activation_offload")
"""Fields of these that are predicted where GPUs have parts of a sequence."""


def _are_no_layers_of_stages(workload: Workload) -> bool:
    try:
        layers = workload.layers_of_stages
    except ValueError:
        return True
    return len(layers) != workload.pipeline_parallel or min(layers) < 1


SHARING = (
    Contradiction(
        {"parallelism": one_of(Parallelism.FSDP), "task": one_of(Task.TEXT_TO_IMAGE)},
        "frozen encoders are not predicted with fsdp; choose ddp",
    ),
    Contradiction(
        {
            "parallelism": one_of(Parallelism.NONE),
            "world_size": other_than(1),
            **dict.fromkeys((*_DEGREES, "context_parallel"), one_of(1)),
        },
        "choose ddp, fsdp or zero-3 to share among several GPUs",
    ),
    *(
        Contradiction(
            {"parallelism": one_of(Parallelism.NONE), degree: other_than(1)},
            "choose fsdp for the GPUs beyond those that have parts of the model",
            lambda workload: workload.data_parallel > 1,
        )
        for degree in _DEGREES
    ),
    *(
        Contradiction(
            {
                "parallelism": other_than(Parallelism.NONE, Parallelism.FSDP),
                degree: other_than(1),
            },
            "parts of a model go with fsdp only; choose fsdp, or none if no GPUs are left over",
        )
        for degree in _DEGREES
    ),
    *(
        Contradiction(
            {"parallelism": one_of(Parallelism.FSDP), degree: other_than(1)},
            "no GPUs are left over to shard among; choose none or more GPUs",
            lambda workload: workload.weight_sharers == 1,
        )
        for degree in _DEGREES
    ),
    *(
        Contradiction(
            {degree: other_than(1)},
            "enter numbers whose product divides the number of GPUs",
            lambda workload: workload.world_size % workload.parts_of_model != 0,
        )
        for degree in (*_DEGREES, "context_parallel")
    ),
    Contradiction(
        {"sequence_parallel": ON, "pipeline_parallel": other_than(1)},
        "transformers' stages need the whole sequence; leave it off",
    ),
    Contradiction(
        {"pipeline_parallel": other_than(1), "context_parallel": other_than(1)},
        "transformers' stages need the whole sequence; leave one of the two at 1",
    ),
    Contradiction(
        {
            "parallelism": other_than(Parallelism.DDP, Parallelism.FSDP),
            "context_parallel": other_than(1),
        },
        "GPUs with parts of the same sequences share the weights; choose fsdp, or ddp",
    ),
    Contradiction(
        {"sequence_length": GIVEN, "context_parallel": other_than(1)},
        "enter a multiple of twice the context parallel GPUs, which have two pieces of a sequence "
        "each",
        lambda workload: (workload.sequence_length or 0) % (2 * workload.context_parallel) != 0,
    ),
    Contradiction(
        {"context_parallel": other_than(1), "task": other_than(_CAUSAL, None)},
        "only causal language models are predicted with it; leave it at 1",
    ),
    Contradiction(
        {"context_rotation": other_than(Rotation.ALL_GATHER), "context_parallel": one_of(1)},
        "without context parallelism nothing goes around; choose allgather",
    ),
    *(
        Contradiction(
            {name: values, "context_parallel": other_than(1)},
            "not predicted where GPUs have parts of a sequence; leave it as it is by default",
        )
        for name, values in (
            *((name, values) for name, values in _NOT_IN_PARTS if name not in _IN_CONTEXT),
            ("attention", other_than(Attention.SDPA, Attention.FLASH)),
            ("cross_entropy", one_of(CrossEntropy.CHUNKED)),
        )
    ),
    Contradiction(
        {"parallelism": other_than(Parallelism.FSDP), "expert_parallel": other_than(1)},
        "transformers divides experts among GPUs that shard the rest; choose fsdp",
    ),
    *(
        Contradiction(
            {"expert_parallel": other_than(1), degree: other_than(1)},
            "experts are predicted beside fsdp alone; leave one of the two at 1",
        )
        for degree in (*_DEGREES, "context_parallel")
    ),
    Contradiction(
        {"expert_parallel": other_than(1), "parallelism": one_of(Parallelism.FSDP)},
        "enter a number that divides that of the GPUs among which fsdp shards",
        lambda workload: workload.shard_count % workload.expert_parallel != 0,
    ),
    Contradiction(
        {"expert_load": other_than(100), "expert_parallel": one_of(1)},
        "without expert parallelism no GPU gets more tokens than another; leave it at 100",
    ),
    Contradiction(
        {"expert_load": other_than(100), "expert_parallel": other_than(1)},
        "no GPU gets more than all tokens; enter at most 100 for each expert parallel GPU",
        lambda workload: workload.expert_load > 100 * workload.expert_parallel,
    ),
    Contradiction(
        {"stage_layers": NAMED, "pipeline_parallel": one_of(1)},
        "there are no stages; leave it empty or enter their number",
    ),
    Contradiction(
        {"stage_layers": NAMED},
        "enter a whole number above 0 for each stage, separated by commas",
        _are_no_layers_of_stages,
    ),
    Contradiction(
        {"task": other_than(_CAUSAL, None), "pipeline_parallel": other_than(1)},
        "pipelines are predicted for causal language models",
    ),
    Contradiction(
        {"precision": one_of(Precision.FP16_MIXED), "pipeline_parallel": other_than(1)},
        "PyTorch's schedules do not scale the loss; choose bf16-mixed",
    ),
    *(
        Contradiction(
            {name: values, degree: other_than(1)},
            "not predicted for a model in parts on several GPUs; leave it as it is by default",
        )
        for degree in (*_DEGREES, "expert_parallel")
        for name, values in _NOT_IN_PARTS
    ),
    Contradiction(
        {"sequence_parallel": ON, "tensor_parallel": one_of(1)},
        "without tensor parallelism there is nothing to split; leave it off",
    ),
    Contradiction(
        {"sequence_parallel": ON, "sequence_length": GIVEN},
        "the GPUs have to divide the sequence length evenly; leave it off or change one",
        lambda workload: (
            (workload.sequence_length or 0) % (workload.tensor_parallel * workload.context_parallel)
            != 0
        ),
    ),
    Contradiction(
        {"world_size": one_of(1), "parallelism": other_than(Parallelism.NONE, *ZERO)},
        "enter the number of GPUs that share the work, 2 or more",
    ),
    *(
        Contradiction(
            {name: values, "parallelism": other_than(Parallelism.FSDP)},
            "only fsdp has this; leave it as it is or choose fsdp",
        )
        for name, values in (
            ("reshard_after_forward", GIVEN),
            ("reduce_dtype", other_than(ReduceDtype.GATHERED)),
            ("shard_size", GIVEN),
        )
    ),
    Contradiction(
        {"cpu_offload": ON, "parallelism": other_than(Parallelism.FSDP, Parallelism.ZERO_3)},
        "only fsdp and zero-3 divide weights; leave it off, or with zero-1 and zero-2 offload the "
        "optimizer",
    ),
    Contradiction(
        {"cpu_offload": ON, "parallelism": one_of(*ZERO), "optimizer": other_than(Optimizer.ADAMW)},
        "DeepSpeed's optimizer on the host is predicted as AdamW; choose adamw or leave it off",
    ),
    Contradiction(
        {"reduce_bucket_size": GIVEN, "parallelism": other_than(*ZERO)},
        "only zero-1, zero-2 and zero-3 have it; leave it empty or choose one of them",
    ),
    Contradiction(
        {"overlap_comm": ON, "parallelism": other_than(Parallelism.ZERO_1, Parallelism.ZERO_2)},
        "only zero-1 and zero-2 make a second bucket for it; leave it off or choose one of them",
    ),
    Contradiction(
        {"precision": other_than(Precision.BF16_MIXED), "parallelism": one_of(*ZERO)},
        "DeepSpeed is predicted with weights in bf16 and fp32 copies; choose bf16-mixed",
    ),
    Contradiction(
        {
            "quantization": one_of(Quantization.INT8),
            "parallelism": one_of(Parallelism.FSDP, Parallelism.ZERO_3),
        },
        "bitsandbytes' 8-bit layers hold on to whole weights, which cannot be divided; choose nf4, "
        "or ddp",
    ),
    Contradiction(
        {"cpu_offload": ON, "quantization": QUANTIZED, "parallelism": one_of(*ZERO)},
        "ZeRO 3 takes more GPU memory for quantized weights with offload than without, says PEFT's "
        "guide, and not how much; leave it off or choose fsdp",
    ),
    Contradiction(
        {"optimizer": other_than(*_FOR_ZERO), "parallelism": one_of(*ZERO)},
        "this one is not predicted with ZeRO; choose adamw",
    ),
    Contradiction(
        {"parallelism": one_of(*ZERO), "task": one_of(Task.TEXT_TO_IMAGE)},
        "frozen encoders are not predicted with ZeRO; choose ddp",
    ),
    Contradiction(
        {"shard_size": GIVEN, "parallelism": one_of(Parallelism.FSDP)},
        "enter a number that divides the number of GPUs and is smaller, or leave it empty",
        lambda workload: (
            workload.shard_size == workload.weight_sharers
            or workload.weight_sharers % (workload.shard_size or 1) != 0
        ),
    ),
    Contradiction(
        {"shard_size": GIVEN, "context_parallel": other_than(1)},
        "enter a multiple of the context parallel GPUs",
        lambda workload: (workload.shard_size or 0) % workload.context_parallel != 0,
    ),
    Contradiction(
        {"gradient_as_bucket_view": ON, "parallelism": other_than(Parallelism.DDP)},
        "only ddp has buckets; leave it off or choose ddp",
    ),
)
