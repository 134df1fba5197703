"""Keys of TRL 1.9.0's commands and of its experimental scripts, and which of them is meant.

Names and defaults: ``trl/trainer/`` (``base_config.py``, ``model_config.py``, ``sft_config.py``,
``dpo_config.py``, ``kto_config.py``, ``grpo_config.py``, ``rloo_config.py``),
``trl/experimental/`` (``orpo``, ``cpo``, ``ppo``, ``gkd``, ``distillation``),
``trl/scripts/utils.py`` and transformers' ``TrainingArguments``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.choices import Method
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
from .trainer_keys import TRAINER_KEYS

COMMON: dict[str, Key] = {
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
    "loss_type": anything(),
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
    **all_refused(
        "teacher_model_name_or_path teacher_model_init_kwargs lmbda seq_kd",
        "the trainers of TRL that have a teacher also generate answers, which is not predicted; "
        "describe teacher and student by --method distillation --teacher, without the recipe",
    ),
    "model_init_kwargs": refused("what it changes of the model is not known; take it out"),
}
_OF_PAIRS: dict[str, Key] = {
    "max_length": whole(1024),
    **unused(
        """disable_dropout beta max_prompt_length max_completion_length padding_value
        label_pad_token_id generate_during_eval is_encoder_decoder"""
    ),
}
"""Keys of what learns from answers. Earlier releases limit the prompt's part of the length too,
which changes nothing: both together have ``max_length``."""
_REFERRING: dict[str, Key] = {
    **_OF_PAIRS,
    "precompute_ref_log_probs": switch(),
    **unused(
        """precompute_ref_batch_size label_smoothing loss_weights
        desirable_weight undesirable_weight ld_alpha f_divergence_type f_alpha_divergence_coef
        discopop_tau ref_model_mixup_alpha ref_model_sync_steps use_weighting
        train_sampling_strategy"""
    ),
    **all_refused(
        "sync_ref_model padding_free", "this way of training is not predicted; take it out"
    ),
}
_GRPO: dict[str, Key] = {
    "max_completion_length": whole(256),
    "beta": number(0.0),
    "use_vllm": switch(),
    "vllm_mode": text("colocate"),
    "vllm_gpu_memory_utilization": number(0.3),
    "vllm_enable_sleep_mode": switch(),
    "vllm_tensor_parallel_size": whole(1),
    "steps_per_generation": whole(),
    "generation_batch_size": whole(),
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
        log_completions_hub_repo reward_model_name_or_path reward_funcs
        normalize_advantages reward_clip_range"""
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
}
_OF_LOSS: dict[str, Key] = {
    "cpo_alpha": number(1.0),
    **unused("label_smoothing simpo_gamma alpha"),
}
_PPO: dict[str, Key] = {
    "sft_model_path": text("EleutherAI/pythia-160m"),
    "reward_model_path": text("EleutherAI/pythia-160m"),
    "response_length": whole(53),
    **unused(
        """num_mini_batches total_episodes local_rollout_forward_batch_size num_sample_generations
        stop_token stop_token_id temperature missing_eos_penalty num_total_batches batch_size
        micro_batch_size local_batch_size local_mini_batch_size mini_batch_size num_ppo_epochs
        whiten_rewards kl_coef kl_estimator cliprange vf_coef cliprange_value gamma lam"""
    ),
    **all_refused(
        "model_adapter_name ref_adapter_name",
        "adapters that share a model are not predicted; take it out",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of TRL, or one of its scripts.

    Attributes:
        method: The method that it trains by.
        keys: The keys that it has beside those of all.
        telling: Those that only it has.
        losses: Values of ``loss_type`` that tell it.
    """

    method: Method
    keys: Mapping[str, Key]
    telling: frozenset[str] = frozenset()
    losses: frozenset[str] = frozenset()


OF_RLOO = frozenset({"normalize_advantages", "reward_clip_range"})
"""Keys that ``trl rloo`` has beside those of GRPO (``rloo_config.py``)."""

COMMANDS: Mapping[str, Command] = {
    "sft": Command(
        method=Method.SFT,
        keys={
            "max_length": whole(1024),
            "packing": switch(told=True),
            "packing_strategy": text("bfd"),
            "padding_free": switch(),
            **unused("eval_packing completion_only_loss assistant_only_loss"),
        },
        losses=words("nll chunked_nll dft"),
    ),
    "dpo": Command(
        method=Method.DPO,
        keys=_REFERRING,
        telling=words("f_divergence_type discopop_tau use_weighting"),
        losses=words(
            """sigmoid hinge ipo exo_pair nca_pair robust bco_pair sppo_hard aot aot_unpaired
            apo_zero apo_down discopop sft sigmoid_norm"""
        ),
    ),
    "kto": Command(
        method=Method.KTO,
        keys=_REFERRING,
        telling=words("desirable_weight undesirable_weight"),
        losses=words("kto apo_zero_unpaired"),
    ),
    "orpo": Command(method=Method.ORPO, keys=_OF_PAIRS),
    "cpo": Command(
        method=Method.ORPO,
        keys={**_OF_PAIRS, **_OF_LOSS},
        telling=words("cpo_alpha simpo_gamma"),
        losses=words("simpo alphapo"),
    ),
    "grpo": Command(
        method=Method.GRPO,
        keys=_GRPO,
        telling=words("num_generations reward_funcs") | OF_RLOO,
    ),
    "ppo": Command(
        method=Method.PPO,
        keys=_PPO,
        telling=words("sft_model_path reward_model_path response_length num_ppo_epochs kl_coef"),
    ),
}
"""Commands by name. ``trl`` has the others as scripts."""

KEYS: dict[str, Key] = {
    name: key for one in reversed(list(COMMANDS.values())) for name, key in one.keys.items()
} | COMMON
"""All keys of all commands; a recipe may have those of its own."""

FORMER_NAMES = {"max_seq_length": "max_length", "use_liger": "use_liger_kernel"}
"""Keys that releases before 0.20 have under other names."""

_OF_SCRIPTS = re.compile(
    r"(dataset|(train|eval|test)_dataset|data_(dir|files?|path|split)|hub|wandb|logging|tokenizer"
    r"|chat_template|system_prompt)(_\w+)?"
)


def added_by_scripts(values: Mapping[str, Any]) -> frozenset[str]:
    """Keys of a script beside TRL's own (``TrlParser``) that are about its data and logs, by name.

    Rows are as long as the recipe allows, whatever they are made of.
    """
    return frozenset(name for name in values.keys() - KEYS if _OF_SCRIPTS.fullmatch(name))


def commands_of(values: Mapping[str, Any], method: object) -> list[str]:
    """The commands that a recipe may be for, the most usual one first.

    Args:
        values: Its keys.
        method: The method that is given beside it; ``None`` for none.
    """
    fits = [name for name, one in COMMANDS.items() if method is None or one.method == method]
    told = [name for name in fits if not COMMANDS[name].telling.isdisjoint(values)]
    loss = values.get("loss_type")
    losses = {str(one) for one in (loss if isinstance(loss, list) else [loss])}
    told = told or [name for name in fits if losses & COMMANDS[name].losses]
    if len(told) == 1 or method is not None:
        return told or fits[:1]
    own = (values.keys() & KEYS.keys()) - COMMON.keys()
    return [name for name in fits if own <= COMMANDS[name].keys.keys()] or ["sft"]
