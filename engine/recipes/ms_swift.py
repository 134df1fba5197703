"""Recipes of ms-swift 4.5.2: the arguments of ``swift sft``, ``pt`` and ``rlhf`` as YAML or JSON.

Keys and defaults: ``swift/arguments/`` (``base_args/``, ``sft_args.py``, ``tuner_args.py``,
``rlhf_args.py``), ``swift/trainers/arguments.py`` and transformers' ``TrainingArguments``. What
they do: ``_init_mixed_precision`` in ``model_args.py``, ``_init_deepspeed`` and ``_init_fsdp`` in
``sft_args.py``, with the configs in ``swift/config``.
"""

from __future__ import annotations

from typing import Any

from ..core.choices import CrossEntropy, Method, Precision
from .accelerate import set_fsdp
from .deepspeed import is_zero, precision_with_zero, read_beside, set_deepspeed
from .framework import Framework
from .ms_swift_keys import OTHER_RUNS, UNUSED_KEYS
from .settings import Settings
from .steps import (
    BF16_UNDER_AUTOCAST,
    LIGER,
    UNSLOTH,
    need_flash,
    need_length,
    note_frozen_vision,
    set_attention,
    set_loss,
    set_packing,
    set_peft,
    set_quantization,
)
from .tables import (
    Key,
    all_refused,
    anything,
    names,
    refused,
    switch,
    text,
    unused,
    whole,
    words,
)
from .trainer_keys import TRAINER_KEYS, checkpoints, set_trainer_step

_METHODS = {"dpo": Method.DPO, "orpo": Method.ORPO, "kto": Method.KTO}
_GLOBAL_BATCH = 16
"""Samples of a step where accumulation is left out (``TrainArgumentsMixin.__post_init__``)."""


def _zero(stage: int, *, bucket: object = "auto", offload: bool = False) -> dict[str, Any]:
    on_host = {"device": "cpu" if offload else "none"}
    config: dict[str, Any] = {"stage": stage, "offload_optimizer": on_host}
    if stage == 3:
        config["offload_param"] = on_host
    return {"zero_optimization": {**config, "reduce_bucket_size": bucket}}


ZERO_CONFIGS: dict[str, dict[str, Any]] = {
    "zero0": {"zero_optimization": {"stage": 0}},
    "zero1": _zero(1, bucket=2e8),
    "zero2": _zero(2, bucket=2e8),
    "zero2_offload": _zero(2, bucket=2e8, offload=True),
    "zero3": _zero(3),
    "zero3_offload": _zero(3, offload=True),
}
"""What decides of the configs in ``swift/config``."""

_FSDP2 = {
    "fsdp_config": {
        "fsdp_version": 2,
        "reshard_after_forward": True,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "activation_checkpointing": True,
    }
}

KEYS: dict[str, Key] = {
    **TRAINER_KEYS,
    "per_device_train_batch_size": whole(1, field="current_batch_size"),
    "gradient_accumulation_steps": whole(field="gradient_accumulation"),
    "gradient_checkpointing": switch(True),
    "bf16": switch(None),
    "fp16": switch(None),
    "model": text(field="model"),
    "torch_dtype": text(),
    "tuner_type": text("lora"),
    "train_type": refused("since ms-swift 4 it is called tuner_type; rename it"),
    "tuner_backend": text("peft"),
    "lora_rank": whole(8),
    "target_modules": names("all-linear"),
    "target_regex": refused("it is a pattern; list target_modules instead"),
    "modules_to_save": names(),
    "use_dora": switch(),
    "max_length": whole(),
    "packing": switch(told=True),
    "packing_length": whole(),
    "padding_free": switch(),
    "attn_impl": text(),
    "quant_method": text(),
    "quant_bits": anything(),
    "bnb_4bit_quant_type": text("nf4"),
    "bnb_4bit_use_double_quant": switch(True),
    "use_liger_kernel": switch(),
    "rlhf_type": text(),
    "precompute_ref_log_probs": switch(field="precomputed_reference"),
    "fsdp": anything(),
    "split_dataset_ratio": anything(0.0),
    **unused(UNUSED_KEYS),
    **unused(OTHER_RUNS),
    **all_refused(
        "freeze_parameters freeze_parameters_regex freeze_parameters_ratio trainable_parameters "
        "trainable_parameters_regex freeze_llm target_parameters adapters use_swift_lora "
        "lisa_activated_layers llamapro_num_groups",
        "which weights are trained then is not predicted; choose tuner_type lora or full",
        unless=(0, 0.0),
    ),
    **all_refused(
        "use_galore galore_quantization optimizer enable_dft_loss loss_type mrl_dims",
        "such an optimizer or loss is not predicted from a recipe; take it out and choose "
        "--optimizer",
    ),
    **all_refused(
        "sequence_parallel_size deepspeed_autotp_size zero_hpz_partition_size",
        "describe it by --context-parallel, --tensor-parallel or --parallelism instead",
        unless=(1,),
    ),
    **all_refused(
        "rope_scaling max_model_len experts_impl max_memory bnb_4bit_quant_storage",
        "it changes the model; pass a config.json that has it by --config, or take it out",
    ),
    **all_refused(
        "ref_model ref_adapters reward_model reward_adapters teacher_model teacher_adapters "
        "offload_teacher_model use_vllm vllm_mode num_generations",
        "other models beside this one are not read from a recipe; describe them by --method and "
        "its flags",
    ),
    "task_type": refused("choose --task instead", unless=("causal_lm",)),
}


def _derive(settings: Settings) -> None:
    _set_accumulation(settings)
    set_trainer_step(settings)
    if checkpoints(settings):
        settings.set("gradient_checkpointing", True, "gradient_checkpointing")
    _set_adapter(settings)
    _set_sharing(settings)
    _set_precision(settings)
    set_attention(settings, settings.value("attn_impl"), "attn_impl")
    _set_samples(settings)
    _set_method(settings)


def _set_accumulation(settings: Settings) -> None:
    if settings.value("gradient_accumulation_steps") is not None:
        return
    size = settings.value("per_device_train_batch_size") or 1
    gpus = int(str(settings.given.get("world_size", 1)))
    added = max(1, -(-_GLOBAL_BATCH // (size * gpus)))
    settings.set("gradient_accumulation", added)
    settings.note(
        f"ms-swift accumulates to {_GLOBAL_BATCH} samples where gradient_accumulation_steps is "
        f"left out: {added} micro-batches."
    )


def _set_adapter(settings: Settings) -> None:
    kind = settings.value("tuner_type")
    if kind not in ("lora", "full"):
        settings.refuse("tuner_type", f"{kind} is not predicted; choose lora or full")
        return
    if settings.value("quant_method") not in (None, "bnb"):
        settings.refuse("quant_method", "only bitsandbytes is predicted; choose bnb")
    set_quantization(
        settings,
        settings.value("quant_bits"),
        "quant_bits",
        kind=settings.value("bnb_4bit_quant_type"),
        doubly=settings.is_on("bnb_4bit_use_double_quant"),
    )
    note_frozen_vision(settings, "The parts that read images (freeze_vit, freeze_aligner)")
    if kind == "lora":
        set_peft(
            settings,
            rank="lora_rank",
            targets="target_modules",
            saved="modules_to_save",
            dora="use_dora",
        )
    if settings.value("tuner_backend") == "unsloth":
        settings.note(UNSLOTH)


def _set_sharing(settings: Settings) -> None:
    set_deepspeed(settings, "deepspeed", ZERO_CONFIGS)
    name = settings.value("fsdp")
    if not name:
        return
    found = _FSDP2 if name == "fsdp2" else read_beside(settings, "fsdp", str(name))
    if found is not None:
        set_fsdp(settings, settings.nested("fsdp", found, "fsdp_config"), "fsdp", version=2)


def _set_precision(settings: Settings) -> None:
    """``torch_dtype`` is that of the model's files unless set, and trains under autocast."""
    dtype = settings.value("torch_dtype")
    in_bf16 = dtype in (None, "bfloat16") and not settings.is_on("fp16")
    in_bf16 = in_bf16 and settings.value("bf16") is not False
    key = "torch_dtype" if dtype else "fp16" if settings.is_on("fp16") else "bf16"
    if dtype is None:
        settings.note("torch_dtype is that of the model's files, which is taken to be bf16.")
    adapts = "lora_rank" in settings.fields
    if is_zero(settings):
        value = precision_with_zero(settings, key, in_bf16=in_bf16)
    elif in_bf16 and settings.fields.get("parallelism") == "fsdp" and not adapts:
        value = Precision.BF16_MIXED
    elif in_bf16:
        value = Precision.BF16_TRUE
        settings.note(BF16_UNDER_AUTOCAST)
    elif dtype == "float32":
        value = Precision.BF16_MIXED if settings.is_on("bf16") else Precision.FP16_MIXED
        if settings.value("fp16") is False and not settings.is_on("bf16"):
            value = Precision.FP32
    else:
        settings.refuse(key, "weights in fp16 are not predicted; bfloat16 takes as much")
        return
    settings.set("precision", value, key if key in settings else "")


def _set_samples(settings: Settings) -> None:
    length = settings.value("max_length")
    packs = settings.is_on("packing")
    if packs and settings.value("packing_length"):
        length = settings.value("packing_length")
    if length is None:
        why = "it is left out, so that only the model's own positions limit a sample"
        need_length(settings, "max_length", why)
    settings.set("sequence_length", length, "max_length")
    if packs or settings.is_on("padding_free"):  # as _check_padding_free has it
        need_flash(settings, "packing" if packs else "padding_free")
    if settings.is_on("padding_free") and not packs and "sample_lengths" in settings.given:
        settings.set("batching", "padding-free", "padding_free")
    elif settings.value("rlhf_type") is None:
        set_packing(settings, "packing", packs=packs)


def _set_method(settings: Settings) -> None:
    kind = settings.value("rlhf_type")
    liger = settings.is_on("use_liger_kernel")
    if kind is not None and kind not in _METHODS:
        settings.refuse(
            "rlhf_type",
            f"{kind} is not predicted from a recipe; choose {', '.join(_METHODS)}, or describe it "
            "by --method",
        )
    elif kind is not None:
        settings.set("method", _METHODS[kind], "rlhf_type")
    elif liger:
        set_loss(settings, CrossEntropy.LIGER, "use_liger_kernel")
    if liger:
        settings.note(LIGER)


MS_SWIFT = Framework(
    name="ms-swift",
    title="ms-swift",
    release="4.5.2",
    repository="modelscope/ms-swift",
    needed=frozenset({"model"}),
    marks=words(
        """tuner_type train_type tuner_backend target_modules lora_rank attn_impl rlhf_type
        quant_method quant_bits split_dataset_ratio lazy_tokenize max_length
        per_device_train_batch_size"""
    ),
    keys=KEYS,
    derive=_derive,
)
