"""Recipes of LLaMA-Factory 0.9.5.

Keys and defaults: ``src/llamafactory/hparams/`` (``model_args.py``, ``data_args.py``,
``finetuning_args.py``, ``training_args.py``, ``generating_args.py``) and transformers'
``TrainingArguments``. What they do: ``hparams/parser.py``, ``model/adapter.py`` (trained weights
are cast to fp32 unless ``pure_bf16``), ``model/model_utils/checkpointing.py`` (checkpointing is on
unless switched off), ``attention.py``, ``liger_kernel.py`` and ``quantization.py``.
"""

from __future__ import annotations

from ..core.choices import Attention, CrossEntropy, Method, Precision
from ..core.optimizers import Optimizer
from ..models.tasks import Task
from .deepspeed import is_zero, precision_with_zero, set_deepspeed
from .framework import Framework
from .settings import Settings
from .steps import (
    AS_ORPO,
    BF16_UNDER_AUTOCAST,
    LIGER,
    LIGER_WITHOUT_LOSS,
    UNSLOTH,
    need_flash,
    note_frozen_vision,
    set_loss,
    set_packing,
    set_peft,
    set_quantization,
)
from .tables import (
    Key,
    all_refused,
    names,
    refused,
    switch,
    text,
    unused,
    whole,
    words,
)
from .trainer_keys import TRAINER_KEYS, mixed_precision, set_trainer_step

_ATTENTION = {
    "auto": None,
    "disabled": Attention.EAGER,
    "sdpa": Attention.SDPA,
    "fa2": Attention.FLASH,
    "fa3": Attention.FLASH,
}
_LOSSES = {
    "sigmoid": Method.DPO,
    "hinge": Method.DPO,
    "ipo": Method.DPO,
    "orpo": Method.ORPO,
    "simpo": Method.ORPO,
}
"""``pref_loss``: hinge and IPO are other losses of DPO's scores."""

_OTHER_LAYERS = "which layers train then is not predicted; choose finetuning_type lora or full"

KEYS: dict[str, Key] = {
    **TRAINER_KEYS,
    "model_name_or_path": text(field="model"),
    "stage": text("sft"),
    "finetuning_type": text("lora"),
    "cutoff_len": whole(2048, field="sequence_length"),
    "packing": switch(None, told=True),
    "neat_packing": switch(),
    "lora_rank": whole(8),
    "lora_target": names("all"),
    "additional_target": names(),
    "use_dora": switch(),
    "quantization_bit": whole(),
    "quantization_method": text("bnb"),
    "quantization_type": text("nf4"),
    "double_quantization": switch(True),
    "flash_attn": text("auto"),
    "enable_liger_kernel": switch(),
    "disable_gradient_checkpointing": switch(told=True),
    "use_unsloth": switch(),
    "use_unsloth_gc": switch(),
    "pure_bf16": switch(),
    "pref_loss": text("sigmoid"),
    "use_galore": switch(),
    "galore_rank": whole(16),
    "use_apollo": switch(),
    "apollo_rank": whole(16),
    "use_adam_mini": switch(),
    "use_muon": switch(),
    "upcast_layernorm": switch(),
    "train_from_scratch": switch(),
    **unused(
        """adapter_folder cache_dir use_fast_tokenizer split_special_tokens add_tokens
        add_special_tokens new_special_tokens_config init_special_tokens model_revision
        low_cpu_mem_usage infer_backend offload_folder use_kv_cache infer_dtype hf_hub_token
        ms_hub_token om_hub_token print_param_status trust_remote_code use_reentrant_gc
        quantization_device_map export_dir export_size export_device export_quantization_bit
        export_quantization_dataset export_quantization_nsamples export_quantization_maxlen
        export_legacy_format export_hub_model_id vllm_maxlen vllm_gpu_util vllm_enforce_eager
        vllm_max_lora_rank vllm_config sglang_maxlen sglang_mem_fraction sglang_tp_size
        sglang_config sglang_lora_backend template dataset eval_dataset dataset_dir media_dir
        train_on_prompt mask_history streaming buffer_size mix_strategy interleave_probs
        overwrite_cache preprocessing_batch_size preprocessing_num_workers max_samples
        eval_num_beams ignore_pad_token_for_loss val_size eval_on_each_dataset tool_format
        default_system enable_thinking preserve_thinking tokenized_path data_shared_file_system
        freeze_trainable_layers freeze_trainable_modules freeze_extra_modules lora_alpha
        lora_dropout loraplus_lr_ratio loraplus_lr_embedding use_rslora pissa_iter pissa_convert
        create_new_adapter pref_beta dpo_label_smoothing kto_chosen_weight kto_rejected_weight
        simpo_gamma ppo_buffer_size ppo_epochs ppo_score_norm ppo_target ppo_whiten_rewards
        galore_target galore_update_interval galore_scale galore_proj_type apollo_target
        apollo_update_interval apollo_scale apollo_proj apollo_proj_type apollo_scale_type
        apollo_scale_front badam_mode badam_start_block badam_switch_mode badam_switch_interval
        badam_update_ratio badam_mask_mode badam_verbose use_swanlab swanlab_project
        swanlab_workspace swanlab_run_name swanlab_mode swanlab_api_key swanlab_logdir
        swanlab_lark_webhook_url swanlab_lark_secret compute_accuracy disable_shuffling
        early_stopping_steps plot_loss include_effective_tokens_per_second asft_alpha eaft_alpha
        freeze_vision_tower freeze_multi_modal_projector ray_num_workers ray_init_kwargs
        master_addr master_port ray_run_name ray_storage_path resources_per_worker
        placement_strategy enable_torch_profiler profiler_output_dir profiler_wait_steps
        profiler_warmup_steps profiler_active_steps profiler_repeat profiler_record_shapes
        profiler_profile_memory profiler_with_stack profile_modules do_sample temperature top_p
        top_k num_beams max_length max_new_tokens repetition_penalty length_penalty
        skip_special_tokens image_max_pixels image_min_pixels image_do_pan_and_scan
        crop_to_patches video_max_pixels video_min_pixels video_fps video_maxlen
        use_audio_in_video audio_sampling_rate moe_aux_loss_coef ld_alpha reward_model_type
        model_max_length compute_dtype device_map oft_rank oft_block_size oft_target
        module_dropout"""
    ),
    **all_refused(
        "adapter_name_or_path ref_model ref_model_adapters ref_model_quantization_bit reward_model "
        "reward_model_adapters reward_model_quantization_bit pissa_init",
        "other weights beside the model's are not predicted from a recipe; take it out, or "
        "describe the training run by --method",
    ),
    **all_refused(
        "use_llama_pro freeze_language_model use_badam mixture_of_depths shift_attn "
        "galore_layerwise apollo_layerwise",
        _OTHER_LAYERS,
    ),
    **all_refused(
        "use_kt kt_weight_path kt_expert_checkpoint_path kt_use_lora_experts kt_lora_expert_num "
        "kt_lora_expert_intermediate_size use_mca use_hyper_parallel hyper_parallel_args "
        "use_v1_kernels",
        "KTransformers, Megatron and their kernels are not predicted; take it out for an answer of "
        "transformers",
    ),
    **all_refused(
        "fp8 fp8_backend fp8_enable_fsdp_float8_all_gather",
        "training in fp8 is not predicted; take it out for bf16",
        unless=("auto",),
    ),
    **all_refused(
        "use_dft_loss use_asft_loss use_eaft_loss pref_bco_weight pref_ftx upcast_lmhead_output",
        "this loss keeps more of the logits, which is not predicted; take it out",
        unless=(0, 0.0),
    ),
    **all_refused(
        "rope_scaling resize_vocab",
        "it changes the model's config; pass a config.json that has it by --config",
    ),
    "predict_with_generate": refused("evaluation is not read from recipes; take it out"),
}


def _derive(settings: Settings) -> None:
    set_trainer_step(settings)
    _set_attention(settings)
    _set_method(settings)
    _set_adapter(settings)
    set_deepspeed(settings, "deepspeed")
    _set_optimizer(settings)
    _set_precision(settings)
    _set_savers(settings)


def _set_attention(settings: Settings) -> None:
    attention = settings.value("flash_attn")
    if attention not in _ATTENTION:
        settings.refuse("flash_attn", f"choose one of {', '.join(_ATTENTION)}")
    else:
        settings.set("attention", _ATTENTION[attention], "flash_attn")


def _set_method(settings: Settings) -> None:
    stage = settings.value("stage")
    packs = settings.value("packing")
    packs = stage == "pt" if packs is None else bool(packs)
    packs = packs or settings.is_on("neat_packing")
    if settings.is_on("neat_packing"):
        need_flash(settings, "neat_packing")
    if stage in ("sft", "pt"):
        set_packing(settings, "packing", packs=packs)
    elif stage == "dpo":
        loss = settings.value("pref_loss")
        if loss in _LOSSES:
            settings.set(
                "method", _LOSSES[loss], "pref_loss" if "pref_loss" in settings else "stage"
            )
            if loss == "simpo":
                settings.note(AS_ORPO)
        else:
            settings.refuse("pref_loss", f"{loss} is not predicted; choose {', '.join(_LOSSES)}")
    elif stage == "kto":
        settings.set("method", Method.KTO, "stage")
    elif stage == "rm":
        settings.set("task", Task.REWARD_MODELLING, "stage")
    else:
        settings.refuse("stage", f"{stage} is not predicted from a recipe; describe it by --method")


def _set_adapter(settings: Settings) -> None:
    kind, bits = settings.value("finetuning_type"), settings.value("quantization_bit")
    if kind not in ("lora", "full"):
        settings.refuse("finetuning_type", f"{kind}: {_OTHER_LAYERS}")
        return
    if bits is not None and str(settings.value("quantization_method")).lower() not in (
        "bnb",
        "bitsandbytes",
    ):
        settings.refuse("quantization_method", "only bitsandbytes is predicted; choose bnb")
    set_quantization(
        settings,
        bits,
        "quantization_bit",
        kind=settings.value("quantization_type"),
        doubly=settings.is_on("double_quantization"),
    )
    note_frozen_vision(settings, "The parts that read images (freeze_vision_tower and others)")
    if kind == "full":
        return
    set_peft(
        settings,
        rank="lora_rank",
        targets="lora_target",
        saved="additional_target",
        dora="use_dora",
    )


def _set_optimizer(settings: Settings) -> None:
    """The optimizers that LLaMA-Factory makes itself (``train/trainer_utils.py``)."""
    for key, one, rank in (
        ("use_galore", Optimizer.GALORE, "galore_rank"),
        ("use_apollo", Optimizer.APOLLO, "apollo_rank"),
        ("use_adam_mini", Optimizer.ADAM_MINI, None),
        ("use_muon", Optimizer.MUON, None),
    ):
        if settings.is_on(key):
            settings.set("optimizer", one, key)
            if rank is not None:
                settings.set("optimizer_rank", settings.value(rank), rank)


def _set_precision(settings: Settings) -> None:
    """Weights are loaded in the format of training; those that are trained become fp32."""
    pure, bf16, fp16 = (settings.is_on(name) for name in ("pure_bf16", "bf16", "fp16"))
    key = "pure_bf16" if pure else "fp16" if fp16 else "bf16"
    adapts = "lora_rank" in settings.fields
    if is_zero(settings):
        value = precision_with_zero(settings, key, in_bf16=bf16 or pure)
    elif pure or (adapts and not fp16):
        value = Precision.BF16_TRUE
        settings.note(BF16_UNDER_AUTOCAST)
    elif adapts:
        settings.refuse("fp16", "frozen weights in fp16 are not predicted; bf16 takes as much")
        return
    else:
        value = mixed_precision(settings)
    settings.set("precision", value, key if key in settings else "")
    if settings.is_on("upcast_layernorm"):
        settings.note(
            "Norms in fp32 are predicted in bf16: 2 bytes for each of their weights more."
        )


def _set_savers(settings: Settings) -> None:
    off = settings.is_on("disable_gradient_checkpointing")
    settings.set("gradient_checkpointing", not off, "disable_gradient_checkpointing" if off else "")
    if settings.is_on("enable_liger_kernel") or settings.is_on("use_liger_kernel"):
        has_labels = settings.fields.get("method") is None and "task" not in settings.fields
        if has_labels:
            set_loss(settings, CrossEntropy.LIGER, "enable_liger_kernel")
        settings.note(LIGER if has_labels else LIGER_WITHOUT_LOSS)  # require_logits
    if settings.is_on("use_unsloth") or settings.is_on("use_unsloth_gc"):
        settings.note(UNSLOTH)
    for key in ("fsdp", "fsdp_config"):
        if settings.value(key):
            settings.refuse(key, "FSDP comes from accelerate's config; pass --accelerate-config")


LLAMA_FACTORY = Framework(
    name="llama-factory",
    title="LLaMA-Factory",
    release="0.9.5",
    repository="hiyouga/LLaMA-Factory",
    needed=frozenset({"model_name_or_path"}),
    marks=words(
        """stage finetuning_type template cutoff_len dataset_dir lora_rank lora_target
        quantization_bit flash_attn pure_bf16 enable_liger_kernel overwrite_cache"""
    ),
    keys=KEYS,
    derive=_derive,
)
