"""Results and requests as the first version of MemoryMark stored them."""

from __future__ import annotations

from typing import Any

from engine.interface.result import AnalysisResult

NEW_IN_RESULTS = (
    "decision", "fastest_batch_size",
    "timeline", "largest_tensors", "certificate", "safe_batch_size", "global_batch",
    "speedup_low", "speedup_high", "comparison", "measured_on", "lengths",
    "compared_gpus", "phases", "limiting_phase", "profile",
)  # fmt: skip
NEW_IN_TRIALS = (
    "device_used_low_bytes", "device_used_high_bytes", "step_seconds_low", "step_seconds_high",
    "operations_seconds",
)  # fmt: skip
NEW_IN_WORKLOADS = (
    "method", "completion_length", "teacher", "reward_model", "kl_reference", "rollout",
    "vllm_share", "vllm_sleep", "vllm_tensor_parallel", "steps_per_generation",
    "precomputed_reference",
    "task", "label_count", "attention", "gradient_checkpointing", "checkpoint_every", "use_cache",
    "cross_entropy", "recompute", "optimizer_in_backward", "activation_offload",
    "optimizer_offload",
    "gradient_accumulation", "batching", "sample_lengths", "run_batches",
    "lora_rank", "lora_targets", "adapter", "modules_to_save", "trained_tokens", "quantization",
    "eval_batch_size", "eval_samples", "eval_accumulation_steps", "eval_num_beams",
    "frozen_backbone", "compile", "parallelism", "world_size",
    "gradient_as_bucket_view", "reshard_after_forward", "reduce_dtype", "shard_size",
    "cpu_offload", "tensor_parallel", "sequence_parallel", "pipeline_parallel",
    "context_parallel", "context_rotation", "expert_parallel", "expert_load",
    "stage_layers", "reduce_bucket_size", "overlap_comm", "config",
)  # fmt: skip
"""Fields that the first version of MemoryMark did not store."""


def of_first_version(result: AnalysisResult) -> dict[str, Any]:
    """A result as the first version of MemoryMark stored it."""
    stored: dict[str, Any] = result.to_dict()
    for name in NEW_IN_RESULTS:
        del stored[name]
    for name in NEW_IN_WORKLOADS:
        del stored["workload"][name]
    for trial in [*stored["trials"], *stored["curve"]]:
        for name in NEW_IN_TRIALS:
            del trial[name]
    return stored
