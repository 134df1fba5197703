"""Recipes of axolotl 0.18.0.

Keys and defaults: ``src/axolotl/utils/schemas/`` (``config.py``, ``model.py``, ``peft.py``,
``training.py``, ``deprecated.py``) and ``src/axolotl/integrations/*/args.py``. What they do:
``utils/config/__init__.py`` (``resolve_dtype``), ``loaders/model.py`` and ``loaders/adapter.py``,
``core/builders/base.py`` and ``causal.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.choices import CrossEntropy, Method, Precision, Rollout
from ..core.optimizers import Optimizer
from .accelerate import set_fsdp
from .axolotl_keys import REFUSED_KEYS, UNUSED_KEYS
from .deepspeed import is_zero, precision_with_zero, set_deepspeed
from .framework import Framework
from .rollouts import Generation, Vllm, set_grpo, whole_or_none
from .settings import Settings
from .steps import (
    BF16_UNDER_AUTOCAST,
    LIGER,
    check_optimizer_arguments,
    model_config,
    need_length,
    note_cpo,
    note_evaluation,
    set_attention,
    set_loss,
    set_optimizer,
    set_packing,
    set_peft,
    set_quantization,
)
from .tables import (
    Key,
    anything,
    mapping,
    names,
    number,
    switch,
    text,
    unused,
    whole,
    words,
)

_ATTENTION_FLAGS = {
    "xformers_attention": "xformers",
    "sage_attention": "sage",
    "flex_attention": "flex_attention",
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}
"""``LEGACY_ATTN_FLAG_TO_IMPL`` in ``schemas/enums.py``, in its order."""

_NO_MEMORY = ("liger_fused_linear_cross_entropy", "liger_rope", "liger_use_token_scaling")
"""Liger's settings that are predicted, or change no memory."""

_PLUGINS = {"CutCrossEntropyPlugin", "LigerPlugin", "LMEvalPlugin", "SwanLabPlugin"}
"""Plugins of ``axolotl.integrations``: two for losses, and two that look on."""

_GRPO = ("grpo", "gdpo")
"""GDPO adds up rewards in another order (``builders/rl.py``)."""

_TRL_READ = words(
    """beta max_completion_length use_vllm vllm_mode vllm_enable_sleep_mode generation_batch_size"""
)
_TRL_UNUSED = words(
    """vllm_server_host vllm_server_port vllm_server_timeout vllm_guided_decoding_regex reward_funcs
    reward_weights num_generations log_completions num_completions_to_print
    importance_sampling_level ref_model_mixup_alpha ref_model_sync_steps scale_rewards temperature
    top_p top_k min_p repetition_penalty generation_kwargs chat_template_kwargs num_iterations
    epsilon epsilon_high loss_type mask_truncated_completions multi_objective_aggregation
    vllm_importance_sampling_correction vllm_importance_sampling_mode vllm_importance_sampling_cap
    off_policy_mask_threshold use_bias_correction_kl reward_num_workers vllm_lora_sync rollout_func
    prefetch_depth vllm_sync_interval streaming_partial_batch streaming_min_groups
    replay_recompute_logps reroll_start_fraction reroll_max_groups skip_zero_advantage_batches"""
)
"""Keys of ``trl`` (``schemas/trl.py``) that change neither memory nor speed of an update. Those of
its asynchronous trainer do, where ``async_prefetch`` or ``use_data_producer`` turns that on."""
_TRL_REFUSED = {
    "async_prefetch": "generates while it updates",
    "use_data_producer": "generates while it updates",
    "replay_buffer_size": "keeps groups of completions",
    "use_liger_loss": "keeps no logits of the completions",
    "sync_ref_model": "keeps a reference that follows the model",
}

_METHODS = {
    "dpo": Method.DPO,
    "ipo": Method.DPO,
    "orpo": Method.ORPO,
    "kto": Method.KTO,
    "simpo": Method.ORPO,
}
"""Members of ``RLType``; IPO is DPO with another loss of the same scores, SimPO a loss of CPO."""

KEYS: dict[str, Key] = {
    "cpo_alpha": number(1.0),
    "base_model": text(field="model"),
    "micro_batch_size": whole(1, field="current_batch_size"),
    "gradient_accumulation_steps": whole(1),
    "batch_size": whole(),
    "sequence_len": whole(512, field="sequence_length"),
    "sample_packing": switch(None, told=True),
    "pad_to_sequence_len": switch(None),
    "bf16": anything("auto"),
    "fp16": switch(None),
    "bfloat16": switch(None),
    "float16": switch(None),
    "float32": switch(None),
    "tf32": anything("auto"),
    "optimizer": text("adamw_torch_fused"),
    "optim_args": anything(),
    "adapter": text(),
    "load_in_8bit": switch(),
    "load_in_4bit": switch(),
    "lora_r": whole(),
    "lora_target_modules": names(),
    "lora_target_linear": switch(None),
    "lora_modules_to_save": names(),
    "peft_use_dora": switch(None),
    **{
        name: switch(None)
        for name in ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel")
    },
    "gradient_checkpointing": anything(False, told=True),
    "activation_offloading": anything(False),
    "attn_implementation": text(),
    **{name: switch(None) for name in _ATTENTION_FLAGS},
    "plugins": names(),
    "cut_cross_entropy": switch(None),
    "liger_fused_linear_cross_entropy": switch(None),
    "liger_cross_entropy": switch(None),
    "liger_rms_norm": switch(None),
    "liger_rms_norm_gated": switch(None),
    "liger_layer_norm": switch(None),
    "liger_glu_activation": switch(None),
    "liger_swiglu": switch(None),
    "chunked_cross_entropy": switch(None),
    "chunked_cross_entropy_num_chunks": whole(),
    "deepspeed": anything(),
    "fsdp": anything(),
    "fsdp_config": mapping(),
    "fsdp_version": whole(),
    "rl": text(),
    "rl_beta": number(),
    "precompute_ref_log_probs": switch(None, field="precomputed_reference"),
    "torch_compile": anything(),
    "val_set_size": anything(0.0),
    "test_datasets": anything(),
    **unused(UNUSED_KEYS),
    **REFUSED_KEYS,
    "trl": mapping(),
    "vllm": mapping(),
}


def _derive(settings: Settings) -> None:
    _set_batch(settings)
    _set_adapter(settings)
    _set_sharing(settings)
    _set_precision(settings)
    _set_attention_and_savers(settings)
    if settings.is_on("sample_packing") and settings.fields.get("attention") != "flash":
        settings.note(
            "Packed rows that are not quite full have a mask without FlashAttention, of the "
            "sequence length squared for each sample, which is not counted."
        )
    _set_loss(settings)
    _set_method(settings)
    own = {"muon": Optimizer.MUON}
    if "optimizer" not in settings.fields:  # else DeepSpeed's own, on the host
        set_optimizer(settings, settings.value("optimizer"), "optimizer", own)
    check_optimizer_arguments(settings, "optim_args")
    if settings.value("torch_compile"):
        settings.set("compile", True, "torch_compile")
    evaluates = bool(settings.value("val_set_size")) or "test_datasets" in settings
    note_evaluation(settings, "val_set_size", "eval_batch_size", runs=evaluates)


def _set_batch(settings: Settings) -> None:
    """``gradient_accumulation_steps``, or what ``batch_size`` makes of the micro-batch."""
    whole_batch, micro = settings.value("batch_size"), settings.value("micro_batch_size") or 1
    added = settings.value("gradient_accumulation_steps")
    if whole_batch and "gradient_accumulation_steps" not in settings:
        settings.set("gradient_accumulation", whole_batch // micro, "batch_size")
    else:
        settings.set("gradient_accumulation", added, "gradient_accumulation_steps")
    packs = settings.is_on("sample_packing")
    settings.value("pad_to_sequence_len")
    set_packing(settings, "sample_packing", packs=packs)


def _set_adapter(settings: Settings) -> None:
    adapter = settings.value("adapter")
    if adapter not in (None, "lora", "qlora"):
        settings.refuse("adapter", f"{adapter} is not predicted; choose lora or qlora")
        return
    in_4_bits = settings.is_on("load_in_4bit")
    in_8_bits = settings.is_on("load_in_8bit")
    if adapter is None:
        if in_4_bits or in_8_bits:
            settings.refuse("adapter", "quantized weights need an adapter; set lora or qlora")
        return
    # 4 bits come with qlora alone, 8 bits with lora (loaders/model.py).
    bits = 4 if adapter == "qlora" and in_4_bits else 8 if adapter == "lora" and in_8_bits else None
    key = "load_in_4bit" if bits == 4 else "load_in_8bit"
    set_quantization(settings, bits, key, kind="nf4", doubly=True)
    if settings.value("lora_r") is None:
        settings.refuse("adapter", "lora_r is missing; axolotl needs it for this adapter")
    linear = settings.is_on("lora_target_linear")
    set_peft(
        settings,
        rank="lora_r",
        targets="lora_target_linear" if linear else "lora_target_modules",
        saved="lora_modules_to_save",
        dora="peft_use_dora",
        all_linear=linear,
    )
    _note_kernels(settings, in_8_bits=bits == 8)


def _note_kernels(settings: Settings, *, in_8_bits: bool) -> None:
    """Fused LoRA kernels, which are on unless a key sets one of them.

    Source: ``check_auto_enable_lora_kernels`` in ``schemas/config.py``.
    """
    kernels = [name for name in KEYS if name.startswith("lora_") and name.endswith("_kernel")]
    said = [name for name in kernels if name in settings]
    if in_8_bits or (said and not any(settings.is_on(name) for name in said)):
        return
    settings.note(
        "axolotl's fused LoRA kernels (lora_mlp_kernel and others, on by default) are predicted as "
        "peft's layers, which keep more: without gradient checkpointing the answer is too high."
    )


def _set_sharing(settings: Settings) -> None:
    set_deepspeed(settings, "deepspeed")
    config, listed = settings.part("fsdp_config"), settings.value("fsdp")
    if config or listed:
        key = "fsdp_config" if config else "fsdp"
        set_fsdp(settings, config, key, settings.value("fsdp_version"))


def _set_precision(settings: Settings) -> None:
    """Weights are loaded in the format that is trained in (``resolve_dtype``)."""
    fp16 = settings.is_on("fp16") or settings.is_on("float16")
    bf16 = settings.value("bf16")
    if bf16 not in ("auto", None, True, False):
        settings.refuse("bf16", f"{bf16} is not auto, true or false")
    in_bf16 = bool((bf16 == "auto" and not fp16) or bf16 not in ("auto", None, False))
    in_bf16 = in_bf16 or settings.is_on("bfloat16")
    settings.value("float32")
    adapts = "lora_rank" in settings.fields
    if is_zero(settings):
        settings.set("precision", precision_with_zero(settings, "bf16", in_bf16=in_bf16), "bf16")
    elif fp16 and not in_bf16:
        settings.refuse("fp16", "weights in fp16 are not predicted; bf16: true takes as much")
    elif not in_bf16:
        tf32 = settings.value("tf32") in ("auto", True)
        settings.set("precision", Precision.TF32 if tf32 else Precision.FP32, "bf16")
    elif settings.fields.get("parallelism") == "fsdp" and not adapts:
        settings.set("precision", Precision.BF16_MIXED, "bf16")  # fsdp2_prepare_model upcasts
    else:
        settings.set("precision", Precision.BF16_TRUE, "bf16")
        settings.note(BF16_UNDER_AUTOCAST)


def _set_attention_and_savers(settings: Settings) -> None:
    flags = [name for name in _ATTENTION_FLAGS if settings.is_on(name)]
    name = settings.value("attn_implementation")
    key = "attn_implementation" if name or not flags else flags[0]
    set_attention(settings, name or (_ATTENTION_FLAGS[flags[0]] if flags else None), key)
    checkpoints = settings.value("gradient_checkpointing")
    if checkpoints not in (None, True, False, "offload", "offload_disk"):
        settings.refuse("gradient_checkpointing", f"{checkpoints} is not one of axolotl's values")
    offloads = settings.value("activation_offloading")
    if checkpoints:
        settings.set("gradient_checkpointing", True, "gradient_checkpointing")
    if offloads in (True, "hidden_states") or checkpoints == "offload":
        settings.set("activation_offload", True, "activation_offloading")
    elif offloads or checkpoints == "offload_disk":
        settings.refuse("activation_offloading", f"{offloads} is not predicted; choose true")
    _note_fp32_embeddings(settings)


def _note_fp32_embeddings(settings: Settings) -> None:
    """Embeddings and head that stay in fp32 (``_configure_embedding_dtypes``)."""
    casts = settings.fields.get("attention") in ("flash", "flex") or "lora_rank" in settings.fields
    if casts or settings.fields.get("precision") != Precision.BF16_TRUE:
        return
    if settings.is_on("cut_cross_entropy") or settings.fields.get("parallelism") == "fsdp":
        return
    config = model_config(settings)
    size = config.get("vocab_size", 0) * config.get("hidden_size", 0)
    copies = 1 if config.get("tie_word_embeddings") else 2
    more = f", {size * copies * 8 / 2**30:.1f} GiB" if size else ""
    settings.note(
        "With sdpa or eager attention axolotl trains embeddings and head in fp32, which are "
        f"predicted in bf16: with AdamW 8 bytes for each of their weights are missing{more}."
    )


def _set_loss(settings: Settings) -> None:
    _check_plugins(settings)
    fused = settings.is_on("liger_fused_linear_cross_entropy")
    cut = any("CutCrossEntropy" in name for name in settings.listed("plugins"))
    if settings.is_on("cut_cross_entropy") or (cut and "cut_cross_entropy" not in settings):
        set_loss(settings, CrossEntropy.LIGER, "cut_cross_entropy")
        settings.note(
            "Cut cross-entropy is predicted as Liger's fused loss, which has a part of the logits "
            "at a time where it has none: the answer is on the safe side."
        )
    elif fused:
        set_loss(settings, CrossEntropy.LIGER, "liger_fused_linear_cross_entropy")
    elif settings.is_on("chunked_cross_entropy"):
        if settings.value("chunked_cross_entropy_num_chunks") not in (None, 8):
            settings.refuse("chunked_cross_entropy_num_chunks", "8 parts are predicted; set 8")
        set_loss(settings, CrossEntropy.CHUNKED, "chunked_cross_entropy")
    kernels = [name for name in KEYS if name.startswith("liger_") and name not in _NO_MEMORY]
    on = [name for name in kernels if settings.is_on(name)]
    if on:
        settings.note(LIGER)


def _check_plugins(settings: Settings) -> None:
    """Refuse plugins whose code is not known to leave the step alone."""
    for name in settings.listed("plugins"):
        if name.rpartition(".")[2] not in _PLUGINS:
            settings.refuse("plugins", f"what {name} does to the step is not known; take it out")


def _set_method(settings: Settings) -> None:
    rl = settings.value("rl")
    if rl is None:
        return
    settings.set("batching", None)
    if rl in _GRPO:
        _set_grpo(settings)
        return
    if rl not in _METHODS:
        settings.refuse(
            "rl",
            f"{rl} is not predicted from axolotl's recipes; choose "
            f"{', '.join((*_METHODS, *_GRPO))}, or describe it by --method",
        )
        return
    settings.set("method", _METHODS[rl], "rl")
    if rl == "simpo":
        note_cpo(settings)
    if settings.value("sequence_len") is None:
        need_length(settings, "sequence_len", "answers need a length")


def _set_grpo(settings: Settings) -> None:
    """TRL's GRPO with the settings in ``trl`` and ``vllm`` (``core/trainers/grpo/__init__.py``)."""
    trl = settings.part("trl")
    if unknown := sorted(trl.keys() - _TRL_READ - _TRL_UNUSED - _TRL_REFUSED.keys()):
        settings.refuse("trl", f"axolotl 0.18.0 has no {', '.join(unknown)} in it; take it out")
    for name, what in _TRL_REFUSED.items():
        if trl.get(name):
            settings.refuse("trl", f"{name} {what}, which is not predicted; take it out")
    need_length(
        settings, "sequence_len", "it does not cut the prompts of GRPO, whose rows have no limit"
    )
    beta = trl.get("beta")
    generation = Generation(
        completion=whole_or_none(trl.get("max_completion_length")),
        beta=settings.value("rl_beta") if beta is None else beta,
        samples=whole_or_none(trl.get("generation_batch_size")),
        vllm=_vllm(settings, trl),
    )
    set_grpo(settings, generation, "rl", completion="trl", beta="trl", samples="trl", vllm="trl")


def _vllm(settings: Settings, trl: Mapping[str, Any]) -> Vllm | Rollout | None:
    if not trl.get("use_vllm"):
        return None
    if trl.get("vllm_mode") == "server":
        return Rollout.SERVER
    if trl.get("vllm_mode") is None:  # TRL's own defaults
        return Vllm(share=0.3)
    vllm = settings.part("vllm")
    return Vllm(
        share=vllm.get("gpu_memory_utilization") or 0.9,
        sleeps=bool(trl.get("vllm_enable_sleep_mode")),
        gpus=whole_or_none(vllm.get("tensor_parallel_size")),
    )


def _of_plugins(values: Mapping[str, Any]) -> frozenset[str]:
    """Keys of integrations that change nothing on the GPU while it trains."""
    prefixes = ("swanlab_", "use_swanlab", "lm_eval_", "spectrum_", "ray_")
    return frozenset(name for name in values if name.startswith(prefixes))


AXOLOTL = Framework(
    name="axolotl",
    title="axolotl",
    release="0.18.0",
    repository="axolotl-ai-cloud/axolotl",
    needed=frozenset({"base_model"}),
    marks=frozenset({"base_model"}),
    keys=KEYS,
    derive=_derive,
    also=_of_plugins,
)
