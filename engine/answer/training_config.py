"""A decision as the lines of a training script: for a Trainer, for Lightning, for a plain loop.

Each has the two lines that record the training run, so that the lab sees whether it came true.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..choices import (
    ZERO,
    Adapter,
    Batching,
    CrossEntropy,
    Method,
    Optimizer,
    Parallelism,
    Precision,
    Quantization,
    Recompute,
)
from ..models.tasks import Task
from ..workload import Workload
from .loaders import collator, loader, packing, sampling

_HALF = {Precision.BF16_MIXED: "bfloat16", Precision.FP16_MIXED: "float16"}
_TF32 = 'torch.set_float32_matmul_precision("high")  # TF32'
_TRAINER_OPTIMIZERS: Mapping[Optimizer, str] = {
    Optimizer.ADAMW: "adamw_torch_fused",
    Optimizer.ADAMW_FOREACH: "adamw_torch",
    Optimizer.ADAMW_8BIT: "adamw_bnb_8bit",
    Optimizer.PAGED_ADAMW: "paged_adamw_32bit",
    Optimizer.PAGED_ADAMW_8BIT: "paged_adamw_8bit",
    Optimizer.SCHEDULE_FREE_ADAMW: "schedule_free_adamw",
    Optimizer.ADAFACTOR: "adafactor",
    Optimizer.LION: "lion_32bit",
    Optimizer.SGD_MOMENTUM: "sgd",
    Optimizer.SGD: "sgd",
    Optimizer.RMSPROP: "rmsprop",
    Optimizer.ADAGRAD: "adagrad",
}
_TORCH_OPTIMIZERS: Mapping[Optimizer, str] = {
    Optimizer.ADAMW: "torch.optim.AdamW(model.parameters(), fused=True)",
    Optimizer.ADAMW_FOREACH: "torch.optim.AdamW(model.parameters(), foreach=True)",
    Optimizer.ADAMW_8BIT: "bitsandbytes.optim.AdamW8bit(model.parameters())",
    Optimizer.PAGED_ADAMW: "bitsandbytes.optim.PagedAdamW(model.parameters())",
    Optimizer.PAGED_ADAMW_8BIT: "bitsandbytes.optim.PagedAdamW8bit(model.parameters())",
    Optimizer.ADAM_MINI: "adam_mini.Adam_mini(model.named_parameters())",
    Optimizer.MUON: "memorymark.step.optimizers.muon_with_adamw(model, lr=1e-3)",
    Optimizer.SCHEDULE_FREE_ADAMW: "schedulefree.AdamWScheduleFree(model.parameters())",
    Optimizer.ADAFACTOR: "transformers.Adafactor(model.parameters())",
    Optimizer.LION: "bitsandbytes.optim.Lion(model.parameters())",
    Optimizer.SGD_MOMENTUM: "torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)",
    Optimizer.SGD: "torch.optim.SGD(model.parameters(), lr=1e-3)",
    Optimizer.RMSPROP: "torch.optim.RMSprop(model.parameters())",
    Optimizer.ADAGRAD: "torch.optim.Adagrad(model.parameters())",
}
_LIGHTNING_PRECISIONS = {
    Precision.BF16_MIXED: "bf16-mixed",
    Precision.FP16_MIXED: "16-mixed",
    Precision.BF16_TRUE: "bf16-true",
}
_SHORT = {Precision.BF16_MIXED: "bf16", Precision.FP16_MIXED: "fp16"}
_STRATEGIES = {
    Parallelism.DDP: "ddp",
    Parallelism.FSDP: "fsdp",
    **{stage: f"deepspeed_stage_{number}" for number, stage in enumerate(ZERO, start=1)},
}


_LIGER = str(
    dict.fromkeys(("rope", "rms_norm", "swiglu", "cross_entropy"), False)
    | {"fused_linear_cross_entropy": True}
).replace("'", '"')
"""Of Liger-Kernel's kernels the one that the prediction is for."""


_TRL = {method: method.upper() for method in Method} | {
    Method.SFT: "",
    Method.DISTILLATION: "Distillation",
}
"""How TRL's classes begin; empty for transformers' own."""


@dataclass(frozen=True)
class TrainingConfig:
    """The lines for one way of training.

    Attributes:
        name: Of the library, to choose by.
        text: Python code to paste.
    """

    name: str
    text: str


def training_configs(workload: Workload, batch_size: int) -> list[TrainingConfig]:
    """The settings of a decision in each of the usual libraries.

    Args:
        workload: Its accumulation is that at this batch size.
        batch_size: Samples per micro-batch and GPU.
    """
    if workload.task is Task.TEXT_TO_IMAGE:
        return [TrainingConfig("diffusers", _diffusers(workload, batch_size))]
    if workload.method is not Method.SFT:
        return [TrainingConfig("TRL", _trainer(workload, batch_size))]
    makes_batches = workload.batching is Batching.MAX_TOKENS
    if workload.optimizer_in_backward or makes_batches:  # Trainers do these themselves
        return [TrainingConfig("PyTorch", _pytorch(workload, batch_size))]
    return [
        TrainingConfig("Trainer", _trainer(workload, batch_size)),
        TrainingConfig("Lightning", _lightning(workload, batch_size)),
        TrainingConfig("PyTorch", _pytorch(workload, batch_size)),
    ]


def _diffusers(workload: Workload, batch_size: int) -> str:
    """Flags that diffusers' training scripts share."""
    given = {
        "train_batch_size": str(batch_size),
        "resolution": str(workload.image_size),
        "gradient_accumulation_steps": str(workload.gradient_accumulation),
        "mixed_precision": _SHORT.get(workload.precision),
        "rank": str(workload.lora_rank) if workload.lora_rank else None,
    }
    switches = {
        "gradient_checkpointing": workload.gradient_checkpointing,
        "use_8bit_adam": workload.optimizer is Optimizer.ADAMW_8BIT,
        "allow_tf32": workload.precision is Precision.TF32,
    }
    return _lines(
        "# flags of train_text_to_image*.py and train_dreambooth*.py in diffusers' examples",
        *(f"--{name}={value}" for name, value in given.items() if value),
        *(f"--{name}" for name, is_on in switches.items() if is_on),
    )


def _trainer(workload: Workload, batch_size: int) -> str:
    """For transformers' Trainer, or TRL's for a method of its own; ORPO's is an experiment."""
    given = _arguments(workload, batch_size)
    name = _TRL[workload.method]
    home = "trl.experimental.orpo" if workload.method is Method.ORPO else "trl"
    if name:
        given |= {
            **_lengths(workload),
            "gradient_checkpointing": str(workload.gradient_checkpointing),  # on by default
            "bf16": str(workload.precision is Precision.BF16_MIXED),  # as well
            "precompute_ref_log_probs": _true(workload.precomputed_reference),
        }
    arguments = [f"    {name}={value}," for name, value in given.items() if value]
    knows_it = workload.optimizer in (*_TRAINER_OPTIMIZERS, Optimizer.NONE)
    made = None if knows_it and not workload.optimizer_offload else _made(workload)
    rewarded = "reward_funcs, " if workload.method is Method.GRPO else ""
    rewarded += "teacher_model=teacher, " if workload.teacher else ""
    passed = "optimizers=(optimizer, None), " if made else ""
    passed += collator(workload)
    return _lines(
        f"from {home} import {name}Config, {name}Trainer" if name else None,
        "from memorymark.recording import to_file",
        "from memorymark.recording.trainer import MemoryMarkCallback",
        "",
        *_products_kept(workload),
        f"arguments = {f'{name}Config' if name else 'TrainingArguments'}(",
        '    "output",',
        *arguments,
        ")",
        *_model(_left_to_trainer(workload)),
        f"optimizer = {made}" if made else None,
        packing(workload),
        'recorder = MemoryMarkCallback(to_file("training_runs.jsonl"))',
        f"trainer = {name}Trainer(",
        f"    model, {rewarded}args=arguments, train_dataset=dataset, {passed}callbacks=[recorder]",
        ")",
    )


def _lengths(workload: Workload) -> dict[str, str]:
    """How long texts are, for a trainer of TRL's."""
    if workload.method not in (Method.GRPO, Method.DISTILLATION):
        return {"max_length": str(workload.sequence_length)}
    length = workload.completion_length or (workload.sequence_length or 0) - 1
    beta = "0.04" if workload.kl_reference else "0.0"  # of distillation, forward KL
    return {"max_completion_length": str(length), "beta": beta}


def _arguments(workload: Workload, batch_size: int) -> dict[str, str]:
    """The arguments of transformers' Trainer; empty where its default is meant."""
    return {
        "per_device_train_batch_size": str(batch_size),
        "gradient_accumulation_steps": str(workload.gradient_accumulation),
        "bf16": _true(workload.precision is Precision.BF16_MIXED),
        "fp16": _true(workload.precision is Precision.FP16_MIXED),
        "tf32": _true(workload.precision is Precision.TF32),
        "optim": _quoted(_TRAINER_OPTIMIZERS.get(workload.optimizer)),
        "optim_args": _quoted(
            "momentum=0.9" if workload.optimizer is Optimizer.SGD_MOMENTUM else None
        ),
        "gradient_checkpointing": _true(workload.gradient_checkpointing),
        "activation_checkpointing_kwargs": _checkpointing_arguments(workload),
        "use_liger_kernel": _true(workload.cross_entropy is CrossEntropy.LIGER),
        "liger_kernel_config": _LIGER if workload.cross_entropy is CrossEntropy.LIGER else "",
        "train_sampling_strategy": sampling(workload),
        "torch_compile": _true(workload.compile),
        "deepspeed": _deepspeed(workload),
        "fsdp": _quoted("full_shard" if workload.parallelism is Parallelism.FSDP else None),
    }


def _left_to_trainer(workload: Workload) -> Workload:
    """The workload without what the arguments of a Trainer switch on."""
    left = replace(
        workload,
        gradient_checkpointing=False,
        checkpoint_every=1,
        recompute=Recompute.ALL,
        compile=False,
    )
    liger = left.cross_entropy is CrossEntropy.LIGER
    return replace(left, cross_entropy=CrossEntropy.MODEL) if liger else left


def _checkpointing_arguments(workload: Workload) -> str:
    """How layers are recomputed, for a Trainer; empty for its own way."""
    every = workload.checkpoint_every
    given = [f'"every_n_layers": {every}'] if every > 1 else []
    if workload.gradient_checkpointing and workload.activation_offload:
        given.append('"offload": True')
    if workload.recompute is Recompute.CHEAP:
        given.append('"use_reentrant": False, "context_fn": keep_products')
    return f"{{{', '.join(given)}}}" if given else ""


def _deepspeed(workload: Workload) -> str:
    """DeepSpeed's settings for the Trainer, which fills in what is auto."""
    if workload.parallelism not in ZERO:
        return ""
    zero = {
        "stage": 1 + ZERO.index(workload.parallelism),
        "reduce_bucket_size": workload.bucket_elements,
    }
    auto = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
    settings = json.dumps({"zero_optimization": zero, **auto})
    return f'{settings[:-1]}, "bf16": {{"enabled": "auto"}}}}'


def _lightning(workload: Workload, batch_size: int) -> str:
    given = {
        "accumulate_grad_batches": str(workload.gradient_accumulation),
        "precision": _quoted(_LIGHTNING_PRECISIONS.get(workload.precision)),
        "devices": str(workload.world_size) if workload.world_size > 1 else "",
        "strategy": _quoted(_STRATEGIES.get(workload.parallelism)),
        "callbacks": "[recorder]",
    }
    arguments = ", ".join(f"{name}={value}" for name, value in given.items() if value)
    optimizer = _made(workload)
    return _lines(
        "from memorymark.recording import to_file",
        "from memorymark.recording.lightning import MemoryMarkCallback",
        "",
        *([_TF32] if workload.precision is Precision.TF32 else []),
        *_model(workload),
        packing(workload),
        loader(workload, batch_size),
        f"# configure_optimizers: return {optimizer}" if optimizer else None,
        'recorder = MemoryMarkCallback(to_file("training_runs.jsonl"))',
        f"trainer = lightning.Trainer({arguments})",
    )


def _pytorch(workload: Workload, batch_size: int) -> str:
    """A plain loop, as most scripts have it."""
    half, optimizer = _HALF.get(workload.precision), _made(workload)
    scaled = workload.precision is Precision.FP16_MIXED
    count = workload.gradient_accumulation
    backward = "scaler.scale(loss).backward()" if scaled else "loss.backward()"
    step = ["scaler.step(optimizer)", "scaler.update()"] if scaled else ["optimizer.step()"]
    stepping = step if optimizer and not workload.optimizer_in_backward else []
    last = [*stepping, "model.zero_grad()", "recording.step()"]
    if count > 1:
        last = [f"if number % {count} == 0:", *(f"    {line}" for line in last)]
    cast = f'with torch.autocast("cuda", torch.{half}):' if half else None
    keyword = f", gradient_accumulation={count}" if count > 1 else ""
    return _lines(
        "from memorymark.recording import record_training, to_file",
        "",
        _TF32 if workload.precision is Precision.TF32 else None,
        *_model(workload),
        *_optimizer(workload),
        "scaler = torch.amp.GradScaler()" if scaled else None,
        packing(workload),
        loader(workload, batch_size),
        'sink = to_file("training_runs.jsonl")',
        f"with record_training(batch_size={batch_size}{keyword}, sink=sink) as recording:",
        "    for number, batch in enumerate(loader, start=1):",
        f"        {cast}" if cast else None,
        f"        {'    ' if cast else ''}loss = model(**batch).loss",
        f"        loss = loss / {count}" if count > 1 else None,
        f"        {backward}",
        *(f"        {line}" for line in last),
    )


def _made(workload: Workload) -> str | None:
    """What makes the optimizer; ``None`` if there is none."""
    if workload.optimizer_offload:
        return (
            "torchao.optim.CPUOffloadOptimizer(model.parameters(), torch.optim.AdamW, fused=True)"
        )
    return _TORCH_OPTIMIZERS.get(workload.optimizer)


def _optimizer(workload: Workload) -> list[str]:
    made = _made(workload)
    if made is None or not workload.optimizer_in_backward:
        return [f"optimizer = {made}"] if made else []
    return [
        "trained = [weight for weight in model.parameters() if weight.requires_grad]",
        "optimizers = {",
        f"    weight: {made.replace('model.parameters()', '[weight]')} for weight in trained",
        "}",
        "",
        "def update(weight):",
        "    optimizers[weight].step()",
        "    optimizers[weight].zero_grad()",
        "",
        "for weight in trained:",
        "    weight.register_post_accumulate_grad_hook(update)",
    ]


def _model(workload: Workload) -> list[str | None]:
    """What is done to the model itself, in the order in which it is done."""
    lines: list[str | None] = []
    if workload.quantization is Quantization.NF4:
        lines += _loaded_in_4bit(workload)
    elif workload.precision is Precision.BF16_TRUE:
        lines.append("model = model.to(torch.bfloat16)")
    if workload.lora_rank is not None:
        given = _lora_arguments(workload)
        lines.append(f"model = get_peft_model(model, LoraConfig({given}))")
    if workload.frozen_backbone:
        lines.append("model.base_model.requires_grad_(False)")
    if workload.gradient_checkpointing:
        lines += _checkpointing(workload)
    if workload.activation_offload and not workload.gradient_checkpointing:
        lines.append(
            "# around the forward pass: with torch.autograd.graph.save_on_cpu(pin_memory=True):"
        )
    if workload.cross_entropy is CrossEntropy.LIGER:
        lines.append("liger_kernel.transformers._apply_liger_kernel_to_instance(")
        lines += ["    model=model, **" + _LIGER, ")"]
    if workload.cross_entropy is CrossEntropy.CHUNKED:
        lines.append(
            "# loss: torchtune.modules.loss.LinearCrossEntropyLoss(num_output_chunks=8) on the"
            " hidden states"
        )
    if workload.compile:
        lines.append("model = torch.compile(model)")
    return lines


def _products_kept(workload: Workload) -> list[str]:
    """What says that matrix products and attention are not computed again."""
    if workload.recompute is Recompute.ALL:
        return []
    return [
        "operators = torch.ops.aten",
        "keep_products = functools.partial(",
        "    torch.utils.checkpoint.create_selective_checkpoint_contexts,",
        "    [operators.mm.default, operators.addmm.default, operators.bmm.default,",
        "     operators._scaled_dot_product_flash_attention.default,",
        "     operators._scaled_dot_product_efficient_attention.default,",
        "     operators._scaled_dot_product_cudnn_attention.default],",
        ")",
    ]


def _checkpointing(workload: Workload) -> list[str]:
    given = []
    if workload.recompute is Recompute.CHEAP:
        given.append('{"use_reentrant": False, "context_fn": keep_products}')
    if workload.checkpoint_every > 1:
        given.append(f"every_n_layers={workload.checkpoint_every}")
    if workload.activation_offload:
        given.append("offload=True")
    enabled = f"model.activation_checkpointing_enable({', '.join(given)})"
    plain = "model.gradient_checkpointing_enable()"
    return [*_products_kept(workload), enabled if given else plain]


def _loaded_in_4bit(workload: Workload) -> list[str | None]:
    """The model loaded anew; weights in 4 bits cannot be made of those on the GPU."""
    half = _HALF.get(workload.precision, "float32")
    is_bf16 = workload.precision is Precision.BF16_TRUE
    whole, computed = ("bfloat16", "bfloat16") if is_bf16 else ("float32", half)
    is_sharded = workload.parallelism is Parallelism.FSDP
    return [
        "quantized = BitsAndBytesConfig(",
        '    load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,',
        f"    bnb_4bit_compute_dtype=torch.{computed},",
        f"    bnb_4bit_quant_storage=torch.{computed}," if is_sharded else None,
        ")",
        "model = type(model).from_pretrained(",
        f"    model.name_or_path, dtype=torch.{whole}, quantization_config=quantized",
        ")",
    ]


def _lora_arguments(workload: Workload) -> str:
    """The arguments of peft's config; it chooses the modules itself where none are named."""
    targets, saved = (
        [name.strip() for name in listed.split(",")] if listed else None
        for listed in (workload.lora_targets, workload.modules_to_save)
    )
    given = {
        "r": workload.lora_rank,
        "target_modules": "all-linear" if targets == ["all-linear"] else targets,
        "modules_to_save": saved,
        "use_dora": workload.adapter is Adapter.DORA or None,
    }
    written = {name: value for name, value in given.items() if value is not None}
    return ", ".join(
        f"{name}={value if value is True else json.dumps(value)}" for name, value in written.items()
    )


def _true(given: bool) -> str:
    return "True" if given else ""


def _quoted(name: str | None) -> str:
    return f'"{name}"' if name else ""


def _lines(*lines: str | None) -> str:
    return "\n".join(line for line in lines if line is not None) + "\n"
