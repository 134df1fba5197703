"""Recipes of TRL 1.9.0, as ``trl sft --config FILE`` and its other commands take them.

Keys and defaults: ``trl/trainer/`` (``base_config.py``, ``model_config.py``, ``sft_config.py``,
``dpo_config.py``, ``kto_config.py``, ``grpo_config.py``), ``trl/scripts/utils.py`` and
transformers' ``TrainingArguments``. What they do: ``trl/scripts/sft.py`` and the trainers; weights
are loaded in ``dtype``, fp32 unless set, and adapters on quantized weights become bf16
(``sft_trainer.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.choices import CrossEntropy, Method, Precision, Rollout
from .accelerate import set_fsdp, set_launch
from .deepspeed import is_zero, precision_with_zero, set_deepspeed
from .framework import Framework
from .settings import Settings
from .steps import (
    BF16_UNDER_AUTOCAST,
    LIGER,
    need_flash,
    need_length,
    set_attention,
    set_loss,
    set_packing,
    set_peft,
    set_quantization,
)
from .tables import (
    Key,
    all_refused,
    names,
    number,
    refused,
    switch,
    text,
    unused,
    whole,
    words,
)
from .trainer_keys import TRAINER_KEYS, checkpoints, mixed_precision, set_trainer_step

_COMMON: dict[str, Key] = {
    **TRAINER_KEYS,
    "gradient_checkpointing": switch(True),
    "bf16": switch(None),
    "model_name_or_path": text(field="model"),
    "dtype": text("float32"),
    "torch_dtype": text(),
    "attn_implementation": text(),
    "use_peft": switch(told=True),
    "lora_r": whole(16),
    "lora_target_modules": names(),
    "lora_modules_to_save": names(),
    "use_dora": switch(),
    "load_in_4bit": switch(),
    "load_in_8bit": switch(),
    "bnb_4bit_quant_type": text("nf4"),
    "use_bnb_nested_quant": switch(),
    "activation_offloading": switch(field="activation_offload"),
    "accelerate_config": text(),
    "num_processes": whole(field="world_size"),
    **unused(
        """model_revision lora_alpha lora_dropout lora_task_type use_rslora trust_remote_code
        dataset_num_proc pad_token eos_token chat_template_path dataset_text_field dataset_kwargs
        truncation_mode shuffle_dataset pad_to_multiple_of dataset_name dataset_config
        dataset_train_split dataset_test_split dataset_streaming ignore_bias_buffers datasets
        streaming test_split_size env router_aux_loss_coef"""
    ),
    **all_refused(
        "lora_target_parameters bnb_4bit_quant_storage",
        "such adapters are not predicted; list lora_target_modules instead",
    ),
    "model_init_kwargs": refused("what it changes of the model is not known; take it out"),
}
_ANSWERS: dict[str, Key] = {
    "max_length": whole(1024),
    "precompute_ref_log_probs": switch(),
    **unused(
        """disable_dropout precompute_ref_batch_size beta label_smoothing loss_weights
        desirable_weight undesirable_weight ld_alpha f_divergence_type f_alpha_divergence_coef
        discopop_tau ref_model_mixup_alpha ref_model_sync_steps loss_type use_weighting
        train_sampling_strategy"""
    ),
    **all_refused(
        "sync_ref_model padding_free", "this way of training is not predicted; take it out"
    ),
}
_BY_METHOD: Mapping[Method, Mapping[str, Key]] = {
    Method.SFT: {
        "max_length": whole(1024),
        "packing": switch(told=True),
        "packing_strategy": text("bfd"),
        "padding_free": switch(),
        "loss_type": text(),
        **unused("eval_packing completion_only_loss assistant_only_loss"),
    },
    Method.DPO: _ANSWERS,
    Method.KTO: _ANSWERS,
    Method.GRPO: {
        "max_completion_length": whole(256),
        "beta": number(0.0),
        "use_vllm": switch(),
        "vllm_mode": text("colocate"),
        "vllm_gpu_memory_utilization": number(0.3),
        "vllm_enable_sleep_mode": switch(),
        "vllm_tensor_parallel_size": whole(1),
        "steps_per_generation": whole(),
        "generation_batch_size": whole(),
        "loss_type": text("dapo"),
        **unused(
            """max_prompt_length disable_dropout num_generations num_generations_eval
            ds3_gather_for_generation temperature top_p top_k min_p generation_kwargs
            chat_template_kwargs repetition_penalty cache_implementation vllm_model_impl
            vllm_structured_outputs_regex vllm_server_base_url vllm_server_host vllm_server_port
            vllm_server_timeout vllm_group_port vllm_max_model_length num_iterations epsilon delta
            epsilon_high sapo_temperature_neg sapo_temperature_pos vespo_k_pos vespo_lambda_pos
            vespo_k_neg vespo_lambda_neg importance_sampling_level reward_weights
            multi_objective_aggregation scale_rewards mask_truncated_completions
            ref_model_mixup_alpha ref_model_sync_steps entropy_coef_min entropy_coef_max
            entropy_coef_delta entropy_target max_tool_calling_iterations
            vllm_importance_sampling_correction vllm_importance_sampling_mode
            vllm_importance_sampling_clip_max vllm_importance_sampling_clip_min
            vllm_importance_sampling_cap off_policy_mask_threshold use_bias_correction_kl
            log_completions log_multimodal num_completions_to_print log_unique_prompts
            log_completions_hub_repo reward_model_name_or_path reward_funcs"""
        ),
        **all_refused(
            "cast_lm_head_to_fp32 sync_ref_model use_transformers_continuous_batching "
            "transformers_continuous_batching_config use_transformers_paged use_adaptive_entropy",
            "this way of training is not predicted; take it out",
        ),
        **all_refused(
            "entropy_coef top_entropy_quantile",
            "it keeps entropies of all words, which is not predicted; take it out",
            unless=(0, 0.0, 1, 1.0),
        ),
    },
}
_TELLING: Mapping[Method, frozenset[str]] = {
    Method.GRPO: frozenset({"num_generations", "max_completion_length", "reward_funcs"}),
    Method.DPO: frozenset({"f_divergence_type", "discopop_tau", "use_weighting"}),
    Method.KTO: frozenset({"desirable_weight", "undesirable_weight"}),
}
"""Keys that only one of its commands has."""

KEYS: dict[str, Key] = {
    name: key for keys in reversed(list(_BY_METHOD.values())) for name, key in keys.items()
} | _COMMON
"""All keys of all commands; a recipe may have those of its own."""

ZERO_FILES = {
    f"zero{stage}": {
        "distributed_type": "DEEPSPEED",
        "deepspeed_config": {"zero_stage": stage},
        "num_processes": 8,
        "mixed_precision": "bf16",
    }
    for stage in (1, 2, 3)
}
LAUNCHES: Mapping[str, Mapping[str, Any]] = {
    **ZERO_FILES,
    "single_gpu": {"distributed_type": "NO", "num_processes": 1},
    "multi_gpu": {"distributed_type": "MULTI_GPU", "num_processes": 8},
    "fsdp1": {"distributed_type": "FSDP", "num_processes": 8, "fsdp_config": {"version": 1}},
    "fsdp2": {"distributed_type": "FSDP", "num_processes": 8, "fsdp_config": {"version": 2}},
}
"""The configs in ``trl/accelerate_configs``, by what of them decides."""


def _method_of(values: Mapping[str, Any], given: object) -> Method | None:
    """The command that a recipe is for; ``None`` for one that is not predicted."""
    if given:
        return next((one for one in _BY_METHOD if one == given), None)
    found = [one for one, keys in _TELLING.items() if not keys.isdisjoint(values)]
    return found[0] if len(found) == 1 else Method.SFT


def _derive(settings: Settings) -> None:
    method = _method_of(settings.written, settings.given.get("method"))
    if method is None:
        settings.refuse("method", f"TRL's recipes are read for {', '.join(_BY_METHOD)}")
        return
    _check_command(settings, method)
    set_trainer_step(settings)
    if checkpoints(settings):
        settings.set("gradient_checkpointing", True, "gradient_checkpointing")
    _set_adapter(settings)
    _set_sharing(settings)
    _set_precision(settings)
    name = settings.value("attn_implementation")
    set_attention(settings, name, "attn_implementation")
    if method is Method.SFT:
        _set_sft(settings)
    else:
        settings.set("method", method)
        _set_answers(settings, method)


def _check_command(settings: Settings, method: Method) -> None:
    """Refuse keys of another command than the one that is assumed."""
    if not settings.given.get("method") and method is Method.SFT:
        settings.note("The command is not in the file: trl sft is assumed; --method says another.")
    allowed = _COMMON.keys() | _BY_METHOD[method].keys()
    for name in sorted(settings.written.keys() & KEYS.keys() - allowed):
        settings.refuse(name, f"`trl {method}` does not take it; pass the right --method")


def _set_sft(settings: Settings) -> None:
    length = settings.value("max_length")
    if length is None:
        need_length(settings, "max_length", "it is null, so samples are not cut")
    settings.set("sequence_length", length, "max_length")
    packs = settings.is_on("packing")
    in_one_row = packs and settings.value("packing_strategy") != "wrapped"
    if in_one_row or settings.is_on("padding_free"):
        need_flash(settings, "packing" if packs else "padding_free")
    if settings.is_on("padding_free") and not packs and "sample_lengths" in settings.given:
        settings.set("batching", "padding-free", "padding_free")
    else:
        set_packing(settings, "packing", packs=packs)
    loss, liger = settings.value("loss_type"), settings.is_on("use_liger_kernel")
    if liger:
        set_loss(settings, CrossEntropy.LIGER, "use_liger_kernel")
        settings.note(LIGER)
    elif loss in (None, "chunked_nll"):
        set_loss(settings, CrossEntropy.TRL, "loss_type")
    elif loss != "nll":
        settings.refuse("loss_type", f"{loss} is not predicted; choose nll or chunked_nll")


def _set_answers(settings: Settings, method: Method) -> None:
    if settings.is_on("use_liger_kernel"):
        settings.refuse("use_liger_kernel", "only `trl sft` is predicted with it; take it out")
    if method is not Method.GRPO:
        length = settings.value("max_length")
        if length is None:
            need_length(settings, "max_length", "it is null, so answers are not cut")
        settings.set("sequence_length", length, "max_length")
        scored = settings.is_on("precompute_ref_log_probs")
        settings.set("precomputed_reference", scored, "precompute_ref_log_probs")
        return
    settings.set(
        "completion_length", settings.value("max_completion_length"), "max_completion_length"
    )
    why = "prompt and completion together are not limited"
    need_length(settings, "max_completion_length", why)
    if settings.value("beta"):
        settings.set("kl_reference", True, "beta")
    added = settings.fields.get("gradient_accumulation", 1)
    settings.value("generation_batch_size")
    settings.set("steps_per_generation", settings.value("steps_per_generation") or added)
    if settings.is_on("use_vllm"):
        _set_vllm(settings)


def _set_vllm(settings: Settings) -> None:
    if settings.value("vllm_mode") == "server":
        settings.set("rollout", Rollout.SERVER, "vllm_mode")
        return
    settings.set("rollout", Rollout.VLLM, "use_vllm")
    share = settings.value("vllm_gpu_memory_utilization")
    settings.set("vllm_share", round(100 * share), "vllm_gpu_memory_utilization")
    settings.set("vllm_sleep", settings.is_on("vllm_enable_sleep_mode"), "vllm_enable_sleep_mode")
    split = settings.value("vllm_tensor_parallel_size")
    settings.set("vllm_tensor_parallel", split, "vllm_tensor_parallel_size")


def _set_adapter(settings: Settings) -> None:
    in_4_bits, in_8_bits = settings.is_on("load_in_4bit"), settings.is_on("load_in_8bit")
    bits = 4 if in_4_bits else 8 if in_8_bits else None
    set_quantization(
        settings,
        bits,
        "load_in_4bit" if in_4_bits else "load_in_8bit",
        kind=settings.value("bnb_4bit_quant_type"),
        doubly=settings.is_on("use_bnb_nested_quant"),
    )
    if not settings.is_on("use_peft"):
        return
    set_peft(
        settings,
        rank="lora_r",
        targets="lora_target_modules",
        saved="lora_modules_to_save",
        dora="use_dora",
    )
    if bits is not None:
        settings.note(
            "TRL has adapters on quantized weights in bf16, which are predicted in fp32: with "
            "AdamW the answer is too high by 8 bytes for each of their weights."
        )


def _set_sharing(settings: Settings) -> None:
    set_deepspeed(settings, "deepspeed")
    config = settings.value("fsdp_config")
    if settings.value("fsdp") or config:
        set_fsdp(settings, config if isinstance(config, dict) else {}, "fsdp")
    if (launch := settings.value("accelerate_config")) is not None:
        set_launch(settings, launch, "accelerate_config", LAUNCHES)


def _set_precision(settings: Settings) -> None:
    """``bf16`` is on unless ``fp16`` is (``base_config.py``); weights have ``dtype``."""
    fp16 = settings.is_on("fp16")
    bf16 = settings.value("bf16")
    in_bf16 = not fp16 if bf16 is None else bool(bf16)
    dtype = settings.value("torch_dtype") if "torch_dtype" in settings else settings.value("dtype")
    key = "dtype" if "dtype" in settings else "bf16"
    if is_zero(settings):
        value = precision_with_zero(settings, key, in_bf16=in_bf16)
    elif dtype in ("bfloat16", "auto") and not fp16:
        value = Precision.BF16_TRUE
        settings.note(BF16_UNDER_AUTOCAST)
        if dtype == "auto":
            settings.note("dtype auto is that of the model's files, which is taken to be bf16.")
    elif dtype == "float32":
        value = Precision.BF16_MIXED if in_bf16 else mixed_precision(settings)
    else:
        settings.refuse(key, f"weights in {dtype} are not predicted; choose bfloat16 or float32")
        return
    settings.set("precision", value, key if key in settings else "")


TRL = Framework(
    name="trl",
    title="TRL",
    release="1.9.0",
    repository="huggingface/trl",
    needed=frozenset({"model_name_or_path"}),
    marks=words(
        """dataset_name use_peft lora_r lora_target_modules attn_implementation dtype
        torch_dtype load_in_4bit load_in_8bit max_length packing_strategy padding_free
        dataset_text_field accelerate_config max_completion_length num_generations"""
    ),
    keys=KEYS,
    derive=_derive,
)
