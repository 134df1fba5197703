"""What does not combine with what in a workload, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .choices import (
    ZERO,
    Adapter,
    Attention,
    Batching,
    CrossEntropy,
    Method,
    Optimizer,
    Parallelism,
    Precision,
    Quantization,
    Recompute,
    ReduceDtype,
    Rollout,
)
from .lengths import EXAMPLE
from .models.diffusion import IMAGE_MULTIPLE
from .models.presets import PRESETS
from .models.tasks import Task

if TYPE_CHECKING:
    from .workload import Workload


@dataclass(frozen=True)
class Values:
    """Some values of a field, or all but some."""

    named: tuple[object, ...]
    are_excluded: bool = False

    def __contains__(self, value: object) -> bool:
        return (value in self.named) is not self.are_excluded


def one_of(*values: object) -> Values:
    return Values(values)


def other_than(*values: object) -> Values:
    return Values(values, are_excluded=True)


@dataclass(frozen=True)
class Contradiction:
    """Settings that cannot stand together.

    Attributes:
        settings: Values of fields, by their names; the first is the field to change.
        message: What to do. Only with ``model_is`` may it name the workload's fields, in braces.
        model_is: What else has to hold, which the fields alone do not tell.
    """

    settings: Mapping[str, Values]
    message: str
    model_is: Callable[[Workload], bool] | None = None

    @property
    def field(self) -> str:
        """The field to change."""
        return next(iter(self.settings))

    def holds(self, workload: Workload) -> bool:
        """Whether a workload has all of these settings."""
        return all(
            getattr(workload, name) in values for name, values in self.settings.items()
        ) and (self.model_is is None or self.model_is(workload))


def contradictions(workload: Workload) -> dict[str, str]:
    """Settings of a workload that contradict each other, by the field to change."""
    return {
        one.field: one.message.format(workload=workload)
        for one in CONTRADICTIONS
        if one.holds(workload)
    }


def _is_of_a_package(workload: Workload) -> bool:
    return bool(workload.preset.package)


def _answer_is_too_long(workload: Workload) -> bool:
    return (workload.completion_length or 0) >= (workload.sequence_length or 0)


_GIVEN = other_than(None)
_NOT_GIVEN = one_of(None)
_ANY = other_than()
_NAMED = other_than(None, "")
_ON = one_of(True)
_OFF = one_of(False)
_IN_PARTS = other_than(CrossEntropy.MODEL)
_QUANTIZED = other_than(Quantization.NONE)
_PADS = one_of(Batching.LONGEST, Batching.BUCKETED, Batching.MAX_TOKENS)
_IN_ONE_ROW = one_of(Batching.PADDING_FREE)
_VARIES = other_than(Batching.FIXED)
_CAUSAL = Task.CAUSAL_LANGUAGE_MODELLING
_TEXTS = (
    Task.SEQUENCE_CLASSIFICATION,
    Task.TOKEN_CLASSIFICATION,
    Task.MASKED_LANGUAGE_MODELLING,
    _CAUSAL,
)
_OF_ANSWERS = other_than(Method.SFT)
_IN_FP32 = one_of(Precision.FP32, Precision.TF32)
_NOT_ON_SHARDS = one_of(
    Optimizer.ADAFACTOR,
    Optimizer.ADAMW_8BIT,
    Optimizer.PAGED_ADAMW,
    Optimizer.PAGED_ADAMW_8BIT,
    Optimizer.ADAM_MINI,
    Optimizer.MUON,
)
# transformers' Adafactor mixes shards with whole tensors; bitsandbytes' kernels read past a shard's
# end (https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1633); Muon's products gather
# whole matrices, one after another.


_WITHOUT_METRICS = one_of(
    Task.CONTRASTIVE,
    Task.DEPTH_ESTIMATION,
    Task.OBJECT_DETECTION,
    Task.REWARD_MODELLING,
    Task.SENTENCE_EMBEDDING,
    Task.UNIVERSAL_SEGMENTATION,
)
"""Their models return no loss, or outputs that the Trainer cannot concatenate."""
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
    ("lora_rank", _GIVEN),
    ("method", other_than(Method.SFT)),
    ("batching", _VARIES),
    ("cross_entropy", _IN_PARTS),
    ("activation_offload", _ON),
    ("eval_batch_size", _GIVEN),
    ("cpu_offload", _ON),
    ("use_cache", _ON),
    ("compile", _ON),
    ("optimizer_in_backward", _ON),
)
"""What is not predicted where GPUs have parts of a model."""

CONTRADICTIONS = (
    Contradiction(
        {"method": _OF_ANSWERS, "task": other_than(Task.CAUSAL_LANGUAGE_MODELLING, None)},
        "only for causal language modelling; choose sft",
    ),
    Contradiction(
        {
            "method": _OF_ANSWERS,
            "parallelism": other_than(Parallelism.NONE, Parallelism.DDP),
        },
        "answers are not predicted on shards; choose ddp or none",
    ),
    Contradiction(
        {"method": _OF_ANSWERS, "pipeline_parallel": other_than(1)},
        "answers are not predicted in a pipeline; choose sft, or 1 stage",
    ),
    Contradiction(
        {"method": _OF_ANSWERS, "tensor_parallel": other_than(1)},
        "answers are not predicted with split layers; choose sft, or 1 GPU for a model",
    ),
    Contradiction(
        {"compile": _ON, "method": _OF_ANSWERS},
        "a compiled step is only measured with sft; leave it off",
    ),
    Contradiction(
        {"use_cache": _ON, "method": _OF_ANSWERS},
        "TRL switches the cache off in training; leave it empty",
    ),
    Contradiction(
        {"completion_length": _GIVEN, "method": one_of(Method.SFT)},
        "only for a method that scores answers; leave it empty",
    ),
    Contradiction(
        {"completion_length": _GIVEN, "sequence_length": _GIVEN},
        "an answer needs a prompt: enter less than the sequence length",
        _answer_is_too_long,
    ),
    Contradiction(
        {"teacher": _NAMED, "method": other_than(Method.DISTILLATION)},
        "only distillation has a teacher; leave it empty",
    ),
    Contradiction(
        {"teacher": _NOT_GIVEN, "method": one_of(Method.DISTILLATION)},
        "distillation needs a teacher; enter a preset, such as qwen3-8b",
    ),
    Contradiction(
        {"teacher": _NAMED},
        "no preset has this name; enter one that 'memorymark models' lists",
        lambda workload: workload.teacher not in PRESETS,
    ),
    Contradiction(
        {"rollout": one_of(Rollout.SERVER), "method": other_than(Method.GRPO)},
        "only GRPO generates its answers; choose generate",
    ),
    Contradiction(
        {"steps_per_generation": other_than(1), "method": other_than(Method.GRPO)},
        "only GRPO generates its answers; leave it at 1",
    ),
    Contradiction(
        {
            "steps_per_generation": _ANY,
            "gradient_accumulation": other_than(1),
            "method": one_of(Method.GRPO),
            "rollout": one_of(Rollout.GENERATE),
        },
        "TRL generates for all micro-batches at once: enter the gradient accumulation here too",
        lambda workload: workload.steps_per_generation < workload.gradient_accumulation,
    ),
    Contradiction(
        {"kl_reference": _ON, "method": other_than(Method.GRPO)},
        "only GRPO leaves the choice; leave it off",
    ),
    Contradiction(
        {
            "precomputed_reference": _ON,
            "method": other_than(*(method for method in Method if method.refers)),
        },
        "this method has no reference; leave it off or choose dpo or kto",
    ),
    Contradiction(
        {"frozen_backbone": _ON, "lora_rank": _GIVEN},
        "LoRA freezes the backbone already; choose one of the two",
    ),
    Contradiction(
        {"adapter": one_of(Adapter.DORA), "lora_rank": _NOT_GIVEN},
        "DoRA needs a LoRA rank too",
    ),
    Contradiction(
        {"adapter": one_of(Adapter.DORA), "quantization": _QUANTIZED},
        "DoRA on 4-bit weights is not predicted; choose lora or no quantization",
    ),
    Contradiction(
        {"checkpoint_every": other_than(1), "gradient_checkpointing": _OFF},
        "without gradient checkpointing no layer is recomputed; switch it on or leave this at 1",
    ),
    Contradiction(
        {"recompute": other_than(Recompute.ALL)},
        "models of {workload.preset.package} recompute all of a layer; choose all",
        _is_of_a_package,
    ),
    Contradiction(
        {"recompute": other_than(Recompute.ALL), "gradient_checkpointing": _OFF},
        "without gradient checkpointing nothing is recomputed; switch it on or choose all",
    ),
    Contradiction(
        {"optimizer_offload": _ON, "optimizer": other_than(Optimizer.ADAMW)},
        "on the host AdamW is predicted, torchao's default; choose adamw or switch it off",
    ),
    Contradiction(
        {"optimizer_offload": _ON, "optimizer_in_backward": _ON},
        "the host updates weights after backward; switch one of the two off",
    ),
    Contradiction(
        {"optimizer_offload": _ON, "precision": one_of(Precision.FP16_MIXED)},
        "the gradient scaler cannot reach gradients on the host; choose bf16-mixed",
    ),
    Contradiction(
        {"optimizer_offload": _ON, "parallelism": other_than(Parallelism.NONE)},
        "torchao's optimizer on the host is for one GPU; choose fsdp with cpu_offload instead",
    ),
    Contradiction(
        {"activation_offload": _ON, "parallelism": other_than(Parallelism.NONE)},
        "activations on the host are predicted for one GPU; leave it off or choose none",
    ),
    Contradiction(
        {"activation_offload": _ON},
        "models of {workload.preset.package} are not predicted with it; leave it off",
        _is_of_a_package,
    ),
    Contradiction(
        {"cross_entropy": _IN_PARTS, "parallelism": one_of(Parallelism.FSDP, Parallelism.ZERO_3)},
        "a loss in parts is not predicted with fsdp; choose model, or ddp",
    ),
    Contradiction(
        {"cross_entropy": _IN_PARTS, "tensor_parallel": other_than(1)},
        "a loss in parts is not predicted with a head that is split; choose model",
    ),
    Contradiction(
        {"recompute": other_than(Recompute.ALL), "tensor_parallel": other_than(1)},
        "layers that are split are not predicted with it; choose all",
    ),
    Contradiction(
        {"cross_entropy": _IN_PARTS, "method": other_than(Method.SFT)},
        "the losses of preferences are not predicted in parts; choose model",
    ),
    Contradiction(
        {"cross_entropy": _IN_PARTS, "task": other_than(Task.CAUSAL_LANGUAGE_MODELLING)},
        "only causal language models have their loss in parts; choose model",
    ),
    Contradiction(
        {"modules_to_save": _NAMED, "lora_rank": _NOT_GIVEN},
        "without LoRA all modules are trained; leave it empty or set a LoRA rank",
    ),
    Contradiction(
        {"modules_to_save": _NAMED, "task": one_of(Task.TEXT_TO_IMAGE)},
        "diffusers' scripts train adapters alone; leave it empty",
    ),
    Contradiction(
        {"quantization": _QUANTIZED},
        "4-bit weights are not predicted for models of {workload.preset.package}; choose none",
        _is_of_a_package,
    ),
    Contradiction(
        {"quantization": _QUANTIZED, "lora_rank": _NOT_GIVEN},
        "4-bit weights are not trained themselves; set a LoRA rank too",
    ),
    Contradiction(
        {"attention": one_of(Attention.FLASH), "precision": _IN_FP32},
        "FlashAttention needs half precision; choose bf16-mixed or sdpa",
    ),
    Contradiction(
        {"attention": one_of(Attention.EAGER, Attention.FLEX)},
        "models of {workload.preset.package} use PyTorch's; choose sdpa",
        _is_of_a_package,
    ),
    Contradiction(
        {"attention": one_of(Attention.FLASH), "batching": _PADS},
        "padding needs a mask, which FlashAttention does not take here; choose sdpa, or packed",
    ),
    Contradiction(
        {"batching": _VARIES, "sample_lengths": _NOT_GIVEN},
        f"enter the lengths of your samples too, such as {EXAMPLE}",
    ),
    Contradiction(
        {"sample_lengths": _GIVEN, "batching": one_of(Batching.FIXED)},
        "batches of a fixed length do not depend on it; choose how samples are batched too",
    ),
    Contradiction(
        {"batching": _VARIES, "task": other_than(*_TEXTS, None)},
        "samples of this task are predicted with one length; choose fixed",
    ),
    Contradiction(
        {"batching": _VARIES, "method": _OF_ANSWERS},
        "answers are predicted with one length; choose fixed or sft",
    ),
    Contradiction(
        {"batching": _IN_ONE_ROW, "attention": other_than(Attention.FLASH)},
        "without FlashAttention one row needs a mask of its square; choose flash, or packed",
    ),
    Contradiction(
        {"batching": _IN_ONE_ROW, "eval_batch_size": _GIVEN},
        "evaluation is not predicted in one row; leave its batch size out, or choose packed",
    ),
    Contradiction(
        {
            "batching": one_of(Batching.PACKED, Batching.PADDING_FREE),
            "task": other_than(_CAUSAL, None),
        },
        "only language models train on such rows; choose longest or bucketed",
    ),
    Contradiction(
        {"image_size": _GIVEN, "task": one_of(Task.TEXT_TO_IMAGE)},
        f"enter a multiple of {IMAGE_MULTIPLE}",
        lambda workload: (workload.image_size or 0) % IMAGE_MULTIPLE != 0,
    ),
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
        {"sequence_parallel": _ON, "tensor_parallel": one_of(1)},
        "without tensor parallelism there is nothing to split; leave it off",
    ),
    Contradiction(
        {"sequence_parallel": _ON, "sequence_length": _GIVEN},
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
            ("reshard_after_forward", _GIVEN),
            ("reduce_dtype", other_than(ReduceDtype.GATHERED)),
            ("shard_size", _GIVEN),
            ("cpu_offload", _ON),
        )
    ),
    Contradiction(
        {"reduce_bucket_size": _GIVEN, "parallelism": other_than(*ZERO)},
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
        {"quantization": _QUANTIZED, "parallelism": one_of(*ZERO)},
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
        {"shard_size": _GIVEN, "parallelism": one_of(Parallelism.FSDP)},
        "enter a number that divides the number of GPUs and is smaller, or leave it empty",
        lambda workload: (
            workload.shard_size == workload.data_parallel
            or workload.data_parallel % (workload.shard_size or 1) != 0
        ),
    ),
    Contradiction(
        {"gradient_as_bucket_view": _ON, "parallelism": other_than(Parallelism.DDP)},
        "only ddp has buckets; leave it off or choose ddp",
    ),
    Contradiction(
        {"use_cache": _ON},
        "{workload.preset.display_name} returns no keys and values in training; leave it empty",
        lambda workload: not workload.preset.caches(workload.task),
    ),
    Contradiction(
        {
            "optimizer_in_backward": _ON,
            "optimizer": one_of(Optimizer.NONE, Optimizer.MUON, Optimizer.ADAM_MINI),
        },
        "there is one optimizer for each weight; switch it off or choose adamw",
    ),
    Contradiction(
        {"optimizer_in_backward": _ON, "method": other_than(Method.SFT)},
        "TRL's trainers step after the backward pass; switch it off",
    ),
    Contradiction(
        {"optimizer_in_backward": _ON, "task": one_of(Task.TEXT_TO_IMAGE)},
        "diffusers' scripts step after the backward pass; switch it off",
    ),
    Contradiction(
        {"optimizer_in_backward": _ON, "gradient_accumulation": other_than(1)},
        "gradients add up over micro-batches, so they have to exist; switch one of the two off",
    ),
    Contradiction(
        {"optimizer_in_backward": _ON, "precision": one_of(Precision.FP16_MIXED)},
        "the gradient scaler looks at all gradients before a step; choose bf16-mixed",
    ),
    Contradiction(
        {"optimizer_in_backward": _ON, "parallelism": other_than(Parallelism.NONE)},
        "gradients are averaged among the GPUs first; switch it off or use one GPU",
    ),
    Contradiction(
        {"optimizer": one_of(Optimizer.ADAM_MINI), "lora_rank": _GIVEN},
        "Adam-mini looks for heads, which LoRA's matrices do not have; choose adamw",
    ),
    Contradiction(
        {"optimizer": _NOT_ON_SHARDS, "parallelism": one_of(Parallelism.FSDP)},
        "this one does not run on FSDP's shards; choose adamw",
    ),
    Contradiction(
        {"eval_batch_size": _GIVEN, "parallelism": other_than(Parallelism.NONE)},
        "evaluation is predicted on one GPU only; leave it empty",
    ),
    Contradiction(
        {"eval_batch_size": _GIVEN, "method": _OF_ANSWERS},
        "evaluation is only predicted with sft; leave it empty",
    ),
    Contradiction(
        {"eval_batch_size": _GIVEN, "task": one_of(Task.TEXT_TO_IMAGE)},
        "diffusers' scripts evaluate by generating images; leave it empty",
    ),
    Contradiction(
        {"eval_samples": _GIVEN, "eval_batch_size": _NOT_GIVEN},
        "give the evaluation batch size too",
    ),
    Contradiction(
        {"eval_samples": _GIVEN, "task": _WITHOUT_METRICS},
        "kept logits are not predicted for this task; leave it empty",
    ),
    Contradiction(
        {"eval_accumulation_steps": _GIVEN, "eval_samples": _NOT_GIVEN},
        "nothing but the loss is kept; leave it empty or give the evaluation samples",
    ),
    Contradiction(
        {"optimizer": _NOT_ON_SHARDS, "tensor_parallel": other_than(1)},
        "this one does not run on split layers; choose adamw",
    ),
)
"""Of two for the same field, the later one is told."""
