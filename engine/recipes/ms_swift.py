"""Recipes of ms-swift 4.5.2: the arguments of ``swift sft``, ``pt`` and ``rlhf`` as YAML or JSON.

Keys and defaults: ``swift/arguments/`` (``base_args/``, ``sft_args.py``, ``tuner_args.py``,
``rlhf_args.py``), ``swift/trainers/arguments.py`` and transformers' ``TrainingArguments``. What
they do: ``_init_mixed_precision`` in ``model_args.py``, ``_init_deepspeed`` and ``_init_fsdp`` in
``sft_args.py``, with the configs in ``swift/config``.
"""

from __future__ import annotations

from typing import Any

from ..core.choices import CrossEntropy, Method, Precision, Rollout
from .accelerate import set_fsdp
from .deepspeed import is_zero, precision_with_zero, read_beside, set_deepspeed
from .framework import Framework
from .ms_swift_keys import OTHER_RUNS, UNUSED_KEYS
from .rollouts import Generation, Vllm, set_grpo
from .settings import Settings
from .steps import (
    BF16_UNDER_AUTOCAST,
    LIGER,
    LIGER_OF_ANSWERS,
    LIGER_WITHOUT_LOSS,
    UNSLOTH,
    need_flash,
    need_length,
    note_cpo,
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
    number,
    refused,
    switch,
    text,
    unused,
    whole,
    words,
)
from .trainer_keys import TRAINER_KEYS, checkpoints, set_trainer_step

_METHODS = {
    "dpo": Method.DPO,
    "orpo": Method.ORPO,
    "cpo": Method.ORPO,
    "simpo": Method.ORPO,
    "kto": Method.KTO,
}
_OF_CPO = ("cpo", "simpo")
_GRPO = "grpo"
_GRPO_BETA = 0.04
"""The value of ``beta`` for GRPO where it is left out (``_init_grpo``)."""
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
"""The keys that decide in the configs of ``swift/config``."""

_FSDP2 = {
    "fsdp_config": {
        "fsdp_version": 2,
        "reshard_after_forward": True,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "activation_checkpointing": True,
    }
}

KEYS: dict[str, Key] = {
    "cpo_alpha": number(1.0),
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
    "target_regex": text(),
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
    "loss_type": anything(),
    **all_refused(
        "freeze_parameters freeze_parameters_regex freeze_parameters_ratio trainable_parameters "
        "trainable_parameters_regex freeze_llm target_parameters adapters use_swift_lora "
        "lisa_activated_layers llamapro_num_groups",
        "which weights are trained then is not predicted; choose tuner_type lora or full",
        unless=(0, 0.0),
    ),
    **all_refused(
        "use_galore galore_quantization optimizer enable_dft_loss mrl_dims",
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
    "beta": number(),
    "max_completion_length": whole(512),
    "max_new_tokens": whole(),
    "response_length": whole(),
    "generation_batch_size": whole(),
    "steps_per_generation": whole(),
    "use_vllm": switch(),
    "vllm_mode": text(),
    "vllm_gpu_memory_utilization": number(0.9),
    "vllm_tensor_parallel_size": whole(1),
    "sleep_level": whole(0),
    **all_refused(
        "offload_model offload_optimizer sync_ref_model chord_sft_dataset dynamic_sample "
        "multi_turn_scheduler sdar_loss_coef top_entropy_quantile log_entropy",
        "this way of GRPO is not predicted; take it out",
        unless=(0, 0.0, 1, 1.0),
    ),
    **all_refused(
        "ref_model ref_adapters reward_model reward_adapters teacher_model teacher_adapters "
        "offload_teacher_model",
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
            pattern="target_regex",
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
    elif settings.value("rlhf_type") == _GRPO:  # there it is that of the prompt alone
        length += _completion(settings) or 0
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
    if kind != _GRPO and "loss_type" in settings:
        settings.refuse("loss_type", "such a loss is not predicted from a recipe; take it out")
    if kind == _GRPO:
        _set_grpo(settings)
    elif kind is not None and kind not in _METHODS:
        settings.refuse(
            "rlhf_type",
            f"{kind} is not predicted from a recipe; choose {', '.join((*_METHODS, _GRPO))}, or "
            "describe it by --method",
        )
    elif kind is not None:
        settings.set("method", _METHODS[kind], "rlhf_type")
        if kind in _OF_CPO:
            note_cpo(settings)
    elif liger:
        set_loss(settings, CrossEntropy.LIGER, "use_liger_kernel")
    if liger:  # the forward passes of answers are its own (dpo_trainer.py, kto_trainer.py)
        settings.note(LIGER if kind is None else LIGER_WITHOUT_LOSS)


def _completion(settings: Settings) -> int | None:
    """Tokens of a completion, under the first of its three names that is set."""
    older = (settings.value(name) for name in ("response_length", "max_new_tokens"))
    found: int | None = next(filter(None, older), settings.value("max_completion_length"))
    return found


def _set_grpo(settings: Settings) -> None:
    """GRPO of ``rlhf_trainers/grpo_trainer.py``, which is derived from TRL's.

    RLOO and REINFORCE++ (``advantage_estimator``) compute other advantages from the same passes.
    """
    if settings.is_on("use_liger_kernel"):
        settings.refuse("use_liger_kernel", LIGER_OF_ANSWERS)
    beta = settings.value("beta")
    generation = Generation(
        completion=_completion(settings),
        beta=_GRPO_BETA if beta is None else beta,
        steps=settings.value("steps_per_generation"),
        samples=settings.value("generation_batch_size"),
        vllm=_vllm(settings),
    )
    keys = {"completion": "max_completion_length", "beta": "beta", "vllm": "use_vllm"}
    set_grpo(settings, generation, "rlhf_type", samples="generation_batch_size", **keys)
    settings.note("ms-swift's trainer for GRPO is predicted as TRL's, which it is derived from.")


def _vllm(settings: Settings) -> Vllm | Rollout | None:
    if not settings.is_on("use_vllm"):
        return None
    mode = settings.value("vllm_mode")
    if mode not in ("server", "colocate"):
        settings.refuse("vllm_mode", "use_vllm needs server or colocate here")
    if mode == "server":
        return Rollout.SERVER
    return Vllm(
        share=settings.value("vllm_gpu_memory_utilization"),
        sleeps=bool(settings.value("sleep_level")),
        gpus=settings.value("vllm_tensor_parallel_size"),
    )


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
