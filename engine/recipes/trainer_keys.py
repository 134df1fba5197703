"""Keys of transformers' ``TrainingArguments``, which LLaMA-Factory, TRL and ms-swift hand on.

Names and defaults are those of ``src/transformers/training_args.py`` and
``training_args_seq2seq.py``, releases 4.57 and 5.x together: the frameworks run with both.
"""

from __future__ import annotations

from ..core.choices import Precision
from .settings import Settings
from .steps import check_optimizer_arguments, note_evaluation, set_optimizer
from .tables import Key, all_refused, anything, switch, text, unused, whole

TRAINER_KEYS: dict[str, Key] = {
    **unused(
        """output_dir overwrite_output_dir num_train_epochs max_steps learning_rate
        lr_scheduler_type lr_scheduler_kwargs warmup_steps warmup_ratio weight_decay adam_beta1
        adam_beta2 adam_epsilon average_tokens_across_devices max_grad_norm
        include_num_input_tokens_seen include_tokens_per_second logging_strategy logging_steps
        logging_first_step logging_dir log_on_each_node logging_nan_inf_filter log_level
        log_level_replica disable_tqdm report_to run_name project trackio_space_id
        trackio_bucket_id trackio_static_space_id eval_steps eval_delay eval_on_start
        eval_do_concat_batches eval_use_gather_object include_for_metrics batch_eval_metrics
        include_inputs_for_metrics per_device_eval_batch_size eval_accumulation_steps
        prediction_loss_only bf16_full_eval fp16_full_eval save_only_model save_strategy save_steps
        save_on_each_node save_total_limit save_safetensors enable_jit_checkpoint push_to_hub
        hub_token hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision
        load_best_model_at_end metric_for_best_model greater_is_better ignore_data_skip
        restore_callback_states_from_checkpoint full_determinism seed data_seed accelerator_config
        dataloader_drop_last dataloader_num_workers dataloader_pin_memory
        dataloader_persistent_workers dataloader_prefetch_factor
        dataloader_multiprocessing_context dataloader_in_order remove_unused_columns label_names
        length_column_name ddp_backend ddp_timeout ddp_broadcast_buffers
        ddp_find_unused_parameters ddp_static_graph debug skip_memory_metrics do_train do_eval
        do_predict resume_from_checkpoint local_rank past_index jit_mode_eval torchdynamo
        ray_scope half_precision_backend sortish_sampler predict_with_generate
        generation_max_length generation_num_beams generation_config mp_parameters
        gradient_checkpointing_kwargs activation_checkpointing_kwargs
        torch_compile_backend torch_compile_mode use_cache"""
    ),
    **all_refused(
        "neftune_noise_alpha",
        "noise on the embeddings is not predicted; take it out for an answer without it",
    ),
    **all_refused(
        "torch_empty_cache_steps auto_find_batch_size",
        "it changes memory while the run goes on, which is not predicted; take it out",
    ),
    **all_refused(
        "train_sampling_strategy group_by_length",
        "batches of similar lengths need the lengths of your samples; take it out and pass "
        "--batching bucketed --sample-lengths",
        unless=("random", "sequential"),
    ),
    **all_refused(
        "label_smoothing_factor",
        "label smoothing keeps more of the logits, which is not predicted; set it to 0",
        unless=(0, 0.0),
    ),
    **all_refused(
        "use_cpu no_cuda use_mps_device tpu_num_cores", "only CUDA GPUs are predicted; take it out"
    ),
    **all_refused(
        "liger_kernel_config",
        "which of Liger's kernels it chooses is not read; take it out for the usual ones",
    ),
    **all_refused(
        "optim_target_modules",
        "projections are predicted for all linear layers of numbered blocks; take it out",
    ),
    **all_refused(
        "ddp_bucket_cap_mb", "DDP's buckets are predicted with 25 MiB; take it out", unless=(25,)
    ),
    **all_refused(
        "parallelism_config", "describe it by --tensor-parallel or --context-parallel instead"
    ),
    "per_device_train_batch_size": whole(8, field="current_batch_size"),
    "gradient_accumulation_steps": whole(1, field="gradient_accumulation"),
    "gradient_checkpointing": switch(False, told=True),
    "activation_checkpointing": switch(None),
    "bf16": switch(False),
    "fp16": switch(False),
    "optim": text("adamw_torch_fused"),
    "optim_args": anything(),
    "adafactor": switch(False),
    "torch_compile": switch(False, field="compile"),
    "tf32": switch(None),
    "use_liger_kernel": switch(False),
    "eval_strategy": text("no"),
    "evaluation_strategy": text(),
    "deepspeed": anything(),
    "fsdp": anything(),
    "fsdp_config": anything(),
}
"""All keys, with the Trainer's defaults; a framework lays its own over them."""


def set_trainer_step(settings: Settings) -> None:
    """Set what the Trainer does alike under every framework: batch, optimizer, compilation."""
    for name, field in (
        ("per_device_train_batch_size", "current_batch_size"),
        ("gradient_accumulation_steps", "gradient_accumulation"),
    ):
        if settings.fields.get(field) is None:
            settings.refuse(name, "it is empty; enter a whole number")
    settings.value("torch_compile")
    adafactor = "adafactor" in settings and settings.is_on("adafactor")
    key = "adafactor" if adafactor else "optim"
    set_optimizer(settings, "adafactor" if adafactor else settings.value("optim"), key)
    check_optimizer_arguments(settings, "optim_args")
    strategy = settings.value("evaluation_strategy") or settings.value("eval_strategy")
    evaluates = strategy not in ("no", None, False)
    note_evaluation(settings, "eval_strategy", "per_device_eval_batch_size", runs=evaluates)


def checkpoints(settings: Settings) -> bool:
    """Whether layers are computed again in backward, by either of the Trainer's two names."""
    if "activation_checkpointing" in settings:
        return settings.is_on("activation_checkpointing")
    return settings.is_on("gradient_checkpointing")


def mixed_precision(settings: Settings) -> Precision:
    """The Trainer's precision, for weights in fp32."""
    if settings.is_on("bf16"):
        return Precision.BF16_MIXED
    if settings.is_on("fp16"):
        return Precision.FP16_MIXED
    return Precision.TF32 if settings.is_on("tf32") else Precision.FP32
