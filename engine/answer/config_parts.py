"""The lines of a training script that make its model and its optimizer."""

from __future__ import annotations

import json

from ..core.choices import (
    ZERO,
    Attention,
    CrossEntropy,
    Parallelism,
    Precision,
    Quantization,
    Recompute,
)
from ..core.optimizers import PROJECTED_MODULES
from ..features.adapters import adapted_modules
from ..interface.workload import Workload
from ..models.tasks import Task

HALF = {Precision.BF16_MIXED: "bfloat16", Precision.FP16_MIXED: "float16"}


LIGER = str(
    dict.fromkeys(("rope", "rms_norm", "swiglu", "cross_entropy"), False)
    | {"fused_linear_cross_entropy": True}
).replace("'", '"')
"""Arguments that enable the one of Liger-Kernel's kernels that the prediction is for."""


def of_projections(workload: Workload) -> dict[str, str | int | float]:
    """The settings of the weights that are projected; none of other optimizers."""
    spec = workload.optimizer.spec
    if spec.rank is None:
        return {}
    rank = workload.optimizer_rank or spec.rank
    given = {"rank": rank, "update_proj_gap": 200, **spec.projection}
    if rank == 1 and "scale_type" in given:
        given |= {"scale": 128.0, "scale_type": "tensor"}
    return given


def parameter_groups(workload: Workload) -> list[str]:
    """The groups that an optimizer of a plain loop takes, where it projects some weights."""
    given = of_projections(workload)
    if not given:
        return []
    return [
        "projected = [",
        "    module.weight for name, module in model.named_modules()",
        f'    if isinstance(module, torch.nn.Linear) and re.match(r"{PROJECTED_MODULES}", name)',
        "]",
        "known = {id(weight) for weight in projected}",
        "others = [weight for weight in model.parameters() if id(weight) not in known]",
        f'groups = [{{"params": others}}, {{"params": projected, **{json.dumps(given)}}}]',
    ]


def made_by(workload: Workload) -> str | None:
    """The expression that creates the optimizer; ``None`` if there is none."""
    if workload.optimizer_offload and workload.parallelism not in ZERO:
        return (
            "torchao.optim.CPUOffloadOptimizer(model.parameters(), torch.optim.AdamW, fused=True)"
        )
    return workload.optimizer.spec.constructor or None


def optimizer_lines(workload: Workload) -> list[str]:
    """The lines that make the optimizer, or one for each weight."""
    made = made_by(workload)
    if made is None or not workload.optimizer_in_backward:
        return [*parameter_groups(workload), *([f"optimizer = {made}"] if made else [])]
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


_LOSSES = {
    CrossEntropy.CHUNKED: "torchtune.modules.loss.LinearCrossEntropyLoss(num_output_chunks=8) on "
    "the hidden states",
    CrossEntropy.TRL: "as trl.SFTTrainer computes it by default (TRL 1.16)",
}


_ATTENTION = {
    Attention.EAGER: "eager",
    Attention.FLASH: "flash_attention_2",
    Attention.FLEX: "flex_attention",
}
"""transformers' names of the implementations that it does not choose by itself."""


def model_lines(workload: Workload) -> list[str | None]:
    """The lines that change the model itself, in order."""
    lines: list[str | None] = []
    if workload.quantization is not Quantization.NONE:
        lines += _loaded_quantized(workload)
    elif workload.precision is Precision.BF16_TRUE:
        lines.append("model = model.to(torch.bfloat16)")
    if workload.attention in _ATTENTION:
        lines.append(f'model.set_attn_implementation("{_ATTENTION[workload.attention]}")')
    if workload.lora_rank is not None:
        given = _lora_arguments(workload)
        lines.append(f"model = get_peft_model(model, LoraConfig({given}))")
    if workload.frozen_backbone:
        lines += _frozen(workload.task)
    if workload.gradient_checkpointing:
        lines += _checkpointing(workload)
    if workload.activation_offload and not workload.gradient_checkpointing:
        lines.append(
            "# around the forward pass: with torch.autograd.graph.save_on_cpu(pin_memory=True):"
        )
    lines += _loss(workload.cross_entropy)
    if workload.compile:
        lines.append("model = torch.compile(model)")
    return lines


def _loss(kind: CrossEntropy) -> list[str]:
    if kind is CrossEntropy.LIGER:
        applied = "liger_kernel.transformers._apply_liger_kernel_to_instance("
        return [applied, "    model=model, **" + LIGER, ")"]
    return [f"# loss: {_LOSSES[kind]}"] if kind in _LOSSES else []


def _frozen(task: Task | None) -> list[str]:
    if task is not Task.OBJECT_DETECTION:
        return ["model.base_model.requires_grad_(False)"]
    return [
        "base = model.base_model  # for a detector, only the image encoder is frozen",
        "getattr(base, 'freeze_backbone', lambda: base.requires_grad_(False))()",
    ]


def products_kept(workload: Workload) -> list[str]:
    """The lines that keep matrix products and attention from being recomputed."""
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
    return [*products_kept(workload), enabled if given else plain]


def _loaded_quantized(workload: Workload) -> list[str | None]:
    """The model loaded anew; quantized weights cannot be made of those on the GPU."""
    whole = "bfloat16" if workload.precision is Precision.BF16_TRUE else "float32"
    return [
        "quantized = BitsAndBytesConfig(",
        *(_in_4bit(workload) if workload.quantization.in_4_bits else ["    load_in_8bit=True,"]),
        ")",
        "model = type(model).from_pretrained(",
        f"    model.name_or_path, dtype=torch.{whole}, quantization_config=quantized",
        ")",
    ]


def _in_4bit(workload: Workload) -> list[str | None]:
    """The arguments of bitsandbytes' config for 4 bits."""
    is_bf16 = workload.precision is Precision.BF16_TRUE
    computed = "bfloat16" if is_bf16 else HALF.get(workload.precision, "float32")
    is_sharded = workload.parallelism is Parallelism.FSDP
    kind = "fp4" if workload.quantization is Quantization.FP4 else "nf4"
    doubly = ", bnb_4bit_use_double_quant=True" if workload.quantization.doubly else ""
    return [
        f'    load_in_4bit=True, bnb_4bit_quant_type="{kind}"{doubly},',
        f"    bnb_4bit_compute_dtype=torch.{computed},",
        f"    bnb_4bit_quant_storage=torch.{computed}," if is_sharded else None,
    ]


def _lora_arguments(workload: Workload) -> str:
    """The arguments of peft's config; it chooses the modules itself where none are named."""
    targets = adapted_modules(workload.lora_targets) if workload.lora_targets else None
    saved = workload.modules_to_save and [
        name.strip() for name in workload.modules_to_save.split(",")
    ]
    given = {
        "r": workload.lora_rank,
        "target_modules": targets,
        "modules_to_save": saved,
        **workload.adapter.spec.peft,
    }
    written = {
        name: str(value) if value is True else json.dumps(value)
        for name, value in given.items()
        if value is not None
    }
    if (count := workload.trained_tokens) is not None:
        known = "model.config.vocab_size"
        written["trainable_token_indices"] = f"list(range({known} - {count}, {known}))"
    return ", ".join(f"{name}={value}" for name, value in written.items())


_FILE = 'to_file("training_runs.jsonl")'


def sink_names(analysis_id: int | None) -> str:
    """Names to import for the sink of a record, so that either way can be chosen by one word."""
    return "to_file" if analysis_id is None else "to_file, to_lab"


def sink_lines(analysis_id: int | None) -> list[str]:
    """The line that says where the record of a run goes: to its analysis in the lab, or a file."""
    if analysis_id is None:
        return [f"sink = {_FILE}"]
    return [f"sink = to_lab()  # without a network: {_FILE}"]


def named_analysis(analysis_id: int | None) -> str:
    """The argument by which a record names its analysis; empty without one."""
    return "" if analysis_id is None else f", analysis_id={analysis_id}"


def true(given: bool) -> str:
    """A switch that is on; empty where it is off."""
    return "True" if given else ""


def quoted(name: str | None) -> str:
    """A name as Python writes it; empty without one."""
    return f'"{name}"' if name else ""


def joined(*lines: str | None) -> str:
    """The lines as one text, without those that are left out."""
    return "\n".join(line for line in lines if line is not None) + "\n"
