"""Keys of axolotl 0.18.0 that change nothing, and those that are not predicted.

Unused are data, logging, saving, learning rates, what is generated for looking at, and settings of
features that are refused by the key that switches them on.
"""

from __future__ import annotations

from .steps import LIGER_OF_ANSWERS
from .tables import Key, all_refused, refused

UNUSED_KEYS = """
        pretrain_multipack_attn
        accelerator_config adam_beta1 adam_beta2 adam_beta3 adam_epsilon adam_epsilon2
        added_tokens_overrides auto_resume_from_checkpoints axolotl_config_path base_model_config
        bench_dataset bench_split chat_template chat_template_jinja chat_template_kwargs
        comet_api_key comet_experiment_config comet_experiment_key comet_mode comet_online
        comet_project_name comet_workspace cosine_constant_lr_ratio cosine_min_lr_ratio
        curriculum_sampling dataloader_drop_last dataloader_num_workers dataloader_pin_memory
        dataloader_prefetch_factor dataset_exact_deduplication dataset_keep_in_memory
        dataset_num_proc dataset_prepared_path dataset_processes dataset_shard_idx
        dataset_shard_num datasets ddp ddp_broadcast_buffers ddp_find_unused_parameters
        ddp_timeout default_system_message device device_map dion_lr dion_momentum
        dion_rank_multiple_of do_bench_eval do_causal_lm_eval dpo_beta dpo_generate_during_eval
        dpo_label_smoothing dpo_loss_type dpo_loss_weights dpo_norm_loss dpo_use_weighting
        dynamic_checkpoint eaft_k early_stopping_patience embedding_lr embedding_lr_scale
        embeddings_skip_upcast eot_tokens eval_batch_size eval_causal_lm_metrics
        eval_max_new_tokens eval_sample_packing eval_sequence_len eval_steps eval_strategy
        eval_table_size evals_per_epoch evaluation_strategy excess_length_strategy
        experimental_skip_move_to_device fix_untrained_tokens flash_attn_cross_entropy
        flash_optimum flex_attn_compile_kwargs fsdp_final_state_dict_type
        gc_collect_steps gc_steps generate_samples generation_do_sample generation_max_new_tokens
        generation_prompt_ratio generation_temperature generation_top_k generation_top_p
        gradient_checkpointing_kwargs gradio_max_new_tokens gradio_server_name gradio_server_port
        gradio_share gradio_temperature gradio_title greater_is_better hf_mlflow_log_artifacts
        hf_use_auth_token hub_model_id hub_revision hub_strategy image_resize_algorithm
        include_tkps include_tokens_per_second is_falcon_derived_model is_llama_derived_model
        is_mistral_derived_model is_preprocess is_qwen_derived_model jagged_restart_anneal_steps
        jagged_restart_steps jagged_restart_warmup_steps kto_desirable_weight
        kto_undesirable_weight learning_rate liger_rope liger_use_token_scaling
        load_best_model_at_end local_rank logging_steps lora_alpha lora_alpha_pattern
        lora_dropout lora_fan_in_fan_out lora_model_dir lora_on_cpu loraplus_lr_embedding
        loraplus_lr_ratio loss_watchdog_patience loss_watchdog_threshold low_cpu_mem_usage
        lr_div_factor lr_groups lr_quadratic_warmup lr_scheduler lr_scheduler_kwargs
        max_grad_norm max_prompt_len max_steps mean_resizing_embeddings merge_lora merge_method
        metric_for_best_model min_sample_len mlflow_experiment_name mlflow_run_name
        mlflow_tracking_uri model_kwargs model_revision model_type multipack_real_batches
        num_dataset_shards_to_save num_epochs num_generation_samples orpo_alpha otel_metrics_host
        otel_metrics_port output_dir overrides_of_model_kwargs pad_to_multiple_of peft_use_rslora
        pose_max_context_len pose_num_chunks pose_split_on_token_ids preprocess_iterable
        pretrain_multipack_buffer_size processor_kwargs processor_type profiler_steps
        profiler_steps_start push_dataset_to_hub qgalore_cos_threshold qgalore_gamma_proj
        qgalore_proj_bits qgalore_proj_group_size qgalore_proj_quant qgalore_proj_type
        qgalore_queue_size qgalore_scale qgalore_update_proj_gap qlora_sharded_model_loading
        reinit_weights relora_prune_method remove_unused_columns resize_token_embeddings_to_32x
        resources_per_worker resume_from_checkpoint revision_of_model role_boundaries
        rpo_alpha sample_packing_bin_size sample_packing_eff_est sample_packing_group_size
        sample_packing_mp_start_method sample_packing_sequentially save_first_step
        save_only_model save_safetensors save_steps save_strategy save_total_limit
        saves_per_epoch scaling_softmax scaling_softmax_bias scaling_softmax_factor seed
        shuffle_before_merging_datasets shuffle_merged_datasets simpo_gamma skip_prepare_dataset
        special_tokens streaming streaming_multipack_buffer_size strict
        tiled_mlp_use_original_mlp tokenizer_config tokenizer_legacy tokenizer_save_jinja_files
        tokenizer_type tokenizer_use_fast tokenizer_use_mistral_common tokens
        torch_compile_backend torch_compile_mode torch_compile_options torchdistx_path
        total_num_tokens total_supervised_tokens trackio_project_name trackio_run_name
        trackio_space_id train_on_inputs trainer_cls trust_remote_code type_of_model use_comet
        use_mlflow use_otel_metrics use_tensorboard use_trackio use_wandb wandb_entity
        wandb_log_model wandb_mode wandb_name wandb_project wandb_run_id wandb_watch warmup_ratio
        warmup_steps weight_decay world_size"""

_BY_FLAGS = "describe it by --tensor-parallel, --context-parallel or --shard-size instead"

REFUSED_KEYS: dict[str, Key] = {
    **all_refused(
        "relora relora_prune_ratio relora_cpu_offload lora_target_parameters lora_rank_pattern "
        "peft_layers_to_transform peft_layers_pattern peft peft_layer_replication "
        "peft_trainable_token_indices peft_ensure_weight_tying "
        "peft_autocast_adapter_dtype gptq bnb_config_kwargs",
        "such adapters are not predicted; take it out for those that lora_r and "
        "lora_target_modules describe",
    ),
    "peft_init_lora_weights": refused(
        "weights that are split for it are not predicted; take it out", unless=(True, "gaussian")
    ),
    **all_refused(
        "dp_shard_size dp_replicate_size sequence_parallel_degree context_parallel_size "
        "tensor_parallel_size expert_parallel_size heads_k_stride ring_attn_func",
        _BY_FLAGS,
        unless=(1,),
    ),
    **all_refused(
        "layer_offloading selective_checkpointing tiled_mlp tiled_mlp_num_shards deepcompile "
        "gpu_memory_limit max_memory unfrozen_parameters shrink_embeddings "
        "torch_empty_cache_steps auto_find_batch_size ddp_bucket_cap_mb",
        "it changes what is kept on the GPU, in a way that is not predicted; take it out",
    ),
    **all_refused(
        "fp8 fp8_enable_fsdp_float8_all_gather qat quantization quantize_moe_experts "
        "model_quantization_config model_quantization_config_kwargs use_onebitllms fp32_norms "
        "fp32_norm_classes",
        "such weights are not predicted; choose load_in_4bit or load_in_8bit, or take it out",
    ),
    **all_refused(
        "flash_attn_fuse_mlp gemma4_hybrid_attn_impl large_head_attention flash_attn_d512 "
        "sdpa_varlen fused_attn_kernel experts_implementation use_kernels s2_attention "
        "flash_attn_rms_norm expert_backend use_scattermoe use_sonicmoe nonexpert_quantization "
        "llama4_linearized_experts moe_grouped_backend moe_dequant_chunk_size moe_bnb_fast "
        "use_dsv4_kernels use_glm_dsa_kernels dsv4_fp8_nonexpert_mode dsv4_fp8_lora_kernel "
        "dsv4_shared_mlp_lora_kernel dsv4_bf16_all dsv4_fp4_grouped_mode gemma4_fp8_nonexpert "
        "gemma4_nf4_nonexpert nvfp4_merge_aware nvfp4_merge_aware_start_step dense_mixer "
        "expert_parallel_backend expert_parallel_num_nvl_bytes expert_parallel_num_rdma_bytes "
        "expert_parallel_token_capacity expert_parallel_fallback_on_unsupported",
        "kernels of this kind are not known here; take it out for an answer without them",
        unless=("eager", "sdpa", "auto", "grouped_mm"),
    ),
    **all_refused(
        "reward_model process_reward_model num_labels center_rewards_coefficient ebft "
        "use_eaft diffusion kd_trainer use_mora mora mora_type nemo_gym_enabled llmcompressor "
        "hatchery grokfast_alpha grokfast_lamb dpo_padding_free "
        "dpo_use_logits_to_keep",
        "training of this kind is not predicted from axolotl's recipes; describe it by --task or "
        "--method",
    ),
    **all_refused(
        "use_pose max_packed_sequence_len pretraining_dataset pretraining_sample_concatenation "
        "batch_flattening group_by_length lisa_n_layers lisa_step_interval lisa_layers_attribute "
        "neftune_noise_alpha freeze_mm_modules noisy_embedding_alpha use_ray",
        "how this makes batches or trains layers is not predicted; take it out",
    ),
    **all_refused(
        "rope_scaling overrides_of_model_config model_config cls_model_config image_size",
        "it changes the model's config; pass a config.json that has it by --config",
    ),
    **all_refused(
        "optim_target_modules dion_rank_fraction qgalore_rank",
        "such projections are not predicted; choose --optimizer galore or apollo",
    ),
    "dpo_use_liger_kernel": refused(LIGER_OF_ANSWERS),
    "eaft_alpha": refused("this loss is not predicted; take it out", unless=(1.0,)),
}
"""Keys that matter where they have a value, and which no field of a request expresses."""
