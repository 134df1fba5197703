"""Keys of ms-swift 4.5.2 that change neither memory nor speed of a step.

Those of :data:`OTHER_RUNS` decide about other tuners, and about the training by reinforcement and
distillation that :mod:`.ms_swift` refuses by ``tuner_type`` and ``rlhf_type``.
"""

from __future__ import annotations

UNUSED_KEYS = """
        acc_strategy add_non_thinking_prefix add_version agent_template aligner_lr
        bnb_4bit_compute_dtype cached_dataset cached_val_dataset callbacks check_model columns
        create_checkpoint_symlink custom_dataset_info custom_register_path data_seed
        dataset dataset_num_proc dataset_shuffle desirable_weight device_groups device_map
        disable_auto_column_mapping disable_ignore_empty_think discopop_tau download_mode
        ds3_gather_for_generation early_stop_interval enable_channel_loss enable_npu_model_patch
        enable_thinking eval_dataset eval_dataset_args eval_generation_config eval_limit
        eval_metric eval_use_evalscope external_plugins extra_eval_args freeze_aligner freeze_vit
        hqq_axis ignore_args_error init_strategy init_weights interleave_prob is_binary_loss_scale
        label_smoothing lazy_tokenize ld_alpha load_args load_data_args load_from_cache_file
        local_repo_path logprobs lora_alpha lora_bias lora_dropout lora_dtype lorap_lr_ratio
        loss_scale loss_weights max_epochs max_pixels max_shard_size model_author model_kwargs
        model_name model_revision model_type new_special_tokens norm_bbox num_beams num_labels
        packing_num_proc packing_strategy padding_side preserve_thinking problem_type
        repetition_penalty response_prefix resume_only_model reward_funcs router_aux_loss_coef
        rpo_alpha safe_serialization shuffle_buffer_size simpo_gamma stop_words stopping_strategy
        stream streaming strict structured_outputs_regex swanlab_email_language swanlab_exp_name
        swanlab_mode swanlab_notification_method swanlab_project swanlab_receiver_email
        swanlab_secret swanlab_sender_email swanlab_smtp_port swanlab_smtp_server swanlab_token
        swanlab_webhook_url swanlab_workspace swift_version system temperature template
        template_backend top_k top_logprobs top_p train_dataloader_shuffle truncation_strategy
        undesirable_weight use_chat_template use_flash_ckpt use_hf use_logits_to_keep use_ray
        use_rslora val_dataset val_dataset_shuffle vit_gradient_checkpointing vit_lr"""

OTHER_RUNS = """
        adalora_beta1 adalora_beta2 adalora_deltaT adalora_init_r adalora_orth_reg_weight
        adalora_target_r adalora_tfinal adalora_tinit adapter_act adapter_length
        advantage_estimator advantage_reweight async_generate boft_block_num boft_block_size
        boft_dropout boft_n_butterfly_factor center_rewards_coefficient chord_enable_phi_function
        chord_mu_decay_steps chord_mu_peak chord_mu_valley chord_mu_warmup_steps
        chord_sft_per_device_train_batch_size cliprange cliprange_value
        completion_length_limit_scope cosine_max_len cosine_max_len_value_correct
        cosine_max_len_value_wrong cosine_min_len_value_correct cosine_min_len_value_wrong delta
        enable_flattened_weight_sync epsilon epsilon_high fipo_clip_high_only fipo_clip_range
        fipo_decay_rate fipo_safety_threshold fourier_n_frequency fourier_scaling
        galore_cos_threshold galore_gamma_proj galore_optim_per_parameter galore_proj_bits
        galore_proj_group_size galore_proj_quant galore_proj_type galore_queue_size galore_rank
        galore_scale galore_target_modules galore_update_proj_gap galore_with_embedding gamma
        gkd_logits_topk gym_env importance_sampling_level kl_coef kl_in_reward lam
        lisa_step_interval llamapro_num_new_blocks lmbda local_rollout_forward_batch_size
        log_completions log_rollout_offpolicy_metrics lora_ga_batch_size lora_ga_direction
        lora_ga_iters lora_ga_max_length lora_ga_scale lora_ga_stable_gamma max_resample_times
        max_turns min_p missing_eos_penalty move_model_batches num_generations
        num_generations_eval num_iterations num_mini_batches num_ppo_epochs num_sample_generations
        off_policy_sequence_mask_delta overlong_filter real_tau ref_adapter_name
        ref_model_mixup_alpha ref_model_revision ref_model_sync_steps ref_model_type
        reference_free reft_args reft_intervention_type reft_layer_key reft_layers reft_rank
        repetition_max_penalty repetition_n_grams reward_model_plugin reward_model_revision
        reward_model_type reward_template reward_weights rlsd_lambda rlsd_lambda_decay_steps
        rlsd_lambda_warmup_steps rlsd_negative_only rlsd_reweight_clip_range
        rollout_importance_sampling_mode rollout_importance_sampling_threshold scale_rewards
        sdar_gate_beta seq_kd sft_alpha soft_cache_length soft_max_length tau_neg tau_pos
        teacher_deepspeed teacher_kl_coef teacher_model_revision teacher_model_server
        teacher_model_type teacher_tag_key use_gym_env vera_d_initial vera_dropout
        vera_projection_prng_key vera_rank vf_coef vllm_data_parallel_size
        vllm_disable_cascade_attn vllm_disable_custom_all_reduce vllm_enable_expert_parallel
        vllm_enable_lora vllm_enable_prefix_caching vllm_enforce_eager vllm_engine_kwargs
        vllm_limit_mm_per_prompt vllm_max_lora_rank vllm_max_model_len vllm_max_num_seqs
        vllm_mm_processor_cache_gb vllm_pipeline_parallel_size vllm_quantization
        vllm_reasoning_parser vllm_server_base_url vllm_server_group_port vllm_server_host
        vllm_server_pass_dataset vllm_server_port vllm_server_timeout vllm_speculative_config
        vllm_use_async_engine wandb_log_unique_prompts whiten_rewards"""
