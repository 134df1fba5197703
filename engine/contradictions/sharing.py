"""What does not combine on several GPUs."""

from __future__ import annotations

from ..choices import ZERO, Method, Optimizer, Parallelism, Precision, ReduceDtype
from ..models.tasks import Task
from .contradiction import (
    GIVEN,
    IN_PARTS,
    ON,
    QUANTIZED,
    VARIES,
    Contradiction,
    Values,
    one_of,
    other_than,
)

_CAUSAL = Task.CAUSAL_LANGUAGE_MODELLING
_FOR_ZERO = (
    Optimizer.ADAMW,
    Optimizer.ADAMW_FOREACH,
    Optimizer.LION,
    Optimizer.SGD_MOMENTUM,
    Optimizer.SGD,
    Optimizer.RMSPROP,
    Optimizer.ADAGRAD,
)
"""Those that treat each number alone, so that DeepSpeed may flatten weights for them."""
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
"""What is not predicted where GPUs have parts of a model."""

SHARING = (
    Contradiction(
        {"parallelism": one_of(Parallelism.FSDP), "task": one_of(Task.TEXT_TO_IMAGE)},
        "frozen encoders are not predicted with fsdp; choose ddp",
    ),
    Contradiction(
        {
            "parallelism": one_of(Parallelism.NONE),
            "world_size": other_than(1),
            "tensor_parallel": one_of(1),
            "pipeline_parallel": one_of(1),
        },
        "choose ddp, fsdp or zero-3 to share among several GPUs",
    ),
    Contradiction(
        {"parallelism": one_of(Parallelism.NONE), "tensor_parallel": other_than(1)},
        "choose fsdp for the GPUs beyond those that split the model",
        lambda workload: workload.data_parallel > 1,
    ),
    Contradiction(
        {
            "parallelism": other_than(Parallelism.NONE, Parallelism.FSDP),
            "tensor_parallel": other_than(1),
        },
        "it does not take split layers here; choose fsdp, or none if no GPUs are left over",
    ),
    Contradiction(
        {"parallelism": one_of(Parallelism.FSDP), "tensor_parallel": other_than(1)},
        "no GPUs are left over to shard among; choose none or more GPUs",
        lambda workload: workload.data_parallel == 1,
    ),
    Contradiction(
        {"tensor_parallel": other_than(1)},
        "enter a number that divides the number of GPUs",
        lambda workload: workload.world_size % workload.tensor_parallel != 0,
    ),
    Contradiction(
        {"parallelism": other_than(Parallelism.NONE), "pipeline_parallel": other_than(1)},
        "a pipeline is predicted alone; choose none",
    ),
    Contradiction(
        {"tensor_parallel": other_than(1), "pipeline_parallel": other_than(1)},
        "a pipeline is predicted alone; leave one of the two at 1",
    ),
    Contradiction(
        {"pipeline_parallel": other_than(1)},
        "a pipeline is predicted alone; enter as many stages as GPUs",
        lambda workload: workload.world_size != workload.pipeline_parallel,
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
        for degree in ("tensor_parallel", "pipeline_parallel")
        for name, values in _NOT_IN_PARTS
    ),
    Contradiction(
        {"sequence_parallel": ON, "tensor_parallel": one_of(1)},
        "without tensor parallelism there is nothing to split; leave it off",
    ),
    Contradiction(
        {"sequence_parallel": ON, "sequence_length": GIVEN},
        "the tensor parallel GPUs have to divide the sequence length; leave it off or change one",
        lambda workload: (workload.sequence_length or 0) % workload.tensor_parallel != 0,
    ),
    Contradiction(
        {"world_size": one_of(1), "parallelism": other_than(Parallelism.NONE)},
        "give the number of GPUs that share the work, 2 or more",
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
            ("cpu_offload", ON),
        )
    ),
    Contradiction(
        {"reduce_bucket_size": GIVEN, "parallelism": other_than(*ZERO)},
        "only zero-1, zero-2 and zero-3 have it; leave it empty or choose one of them",
    ),
    Contradiction(
        {"precision": other_than(Precision.BF16_MIXED), "parallelism": one_of(*ZERO)},
        "DeepSpeed is predicted with weights in bf16 and fp32 copies; choose bf16-mixed",
    ),
    Contradiction(
        {"tensor_parallel": other_than(1), "parallelism": one_of(*ZERO)},
        "split layers are not predicted with ZeRO; choose fsdp",
    ),
    Contradiction(
        {"quantization": QUANTIZED, "parallelism": one_of(*ZERO)},
        "4-bit weights are not predicted with ZeRO; choose fsdp or ddp",
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
            workload.shard_size == workload.data_parallel
            or workload.data_parallel % (workload.shard_size or 1) != 0
        ),
    ),
    Contradiction(
        {"gradient_as_bucket_view": ON, "parallelism": other_than(Parallelism.DDP)},
        "only ddp has buckets; leave it off or choose ddp",
    ),
)
