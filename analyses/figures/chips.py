"""The settings that decide an analysis, in a few words each: beside its model wherever it is named.

Precision, the size of a sample and the GPU are always among them, others only where they differ
from what is usual for the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from analyses.formatting import gpu_of, model_name
from analyses.models import Analysis
from analyses.results.decided import decided_fields
from engine.interface.goals import counts, goal_of
from engine.interface.request import FIELDS, usual_values
from engine.models.tasks import SIZES

_HASH_DIGITS = 8
"""Shown digits of a script's hash, enough to tell its versions apart in one lab."""

_ORDER = (
    "program", "goal", "prompt_length", "new_tokens", "num_beams", "cache_format", "precision",
    "sequence_length", "image_size", "image_count", "target_count", "frame_count",
    "audio_seconds", "task", "method", "completion_length", "teacher", "reward_model",
    "kl_reference", "rollout", "vllm_share", "vllm_sleep", "vllm_tensor_parallel",
    "steps_per_generation", "precomputed_reference", "optimizer", "optimizer_rank",
    "optimizer_in_backward", "lora_rank", "adapter", "modules_to_save", "trained_tokens",
    "quantization", "frozen_backbone", "gradient_checkpointing", "checkpoint_every",
    "recompute", "activation_offload", "optimizer_offload", "cross_entropy",
    "gradient_accumulation", "batching", "global_batch_size", "attention", "eval_batch_size",
    "eval_num_beams", "eval_samples", "eval_accumulation_steps", "mode", "compile",
    "parallelism", "world_size", "reduce_dtype", "cpu_offload", "reduce_bucket_size",
    "overlap_comm", "shard_size", "tensor_parallel", "pipeline_parallel", "context_parallel",
    "context_rotation", "expert_parallel", "expert_load", "stage_layers", "sequence_parallel",
    "memory_limit_bytes", "software",
)  # fmt: skip
"""The fields whose chips come first, in this order; others follow as on the form."""


_WORDS: dict[str, Callable[[Any], str]] = {
    "program": lambda program: f"script {program['hash'][:_HASH_DIGITS]}",
    **{name: field.chip_of for name, field in FIELDS.items() if field.described.chip},
}
"""The chip text of each field that has one."""

_PLACES = sorted(_WORDS, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
"""The chips in their order; the GPU comes last."""

_ALWAYS = ("precision", *SIZES)


def chips_of(
    request: Mapping[str, Any], gpu: str, decided: Mapping[str, Any] = MappingProxyType({})
) -> list[str]:
    """The chips of one analysis.

    Args:
        request: Its stored fields; an older version lacks some.
        gpu: The name of its GPU, as it is shown.
        decided: The fields that its decision changes; their chips show both values.
    """
    now, then = _words(request), _words({**request, **decided})
    changed = (_changed(now.get(name), then.get(name)) for name in _PLACES)
    return [*filter(None, changed), gpu]


def _words(request: Mapping[str, Any]) -> dict[str, str]:
    """The words of the fields that have a chip."""
    usual, goal = usual_values(request), goal_of(request)
    return {
        name: say(request[name])
        for name, say in _WORDS.items()
        if request.get(name)
        and (name in _ALWAYS or request[name] != usual.get(name))
        and counts(name, goal)
    }


def _changed(now: str | None, then: str | None) -> str:
    """Such as ``fp32 → bf16``; empty where there is no chip."""
    if now == then:
        return now or ""
    return f"{now or ''} \N{RIGHTWARDS ARROW} {then or 'off'}".strip()


def chips(analysis: Analysis, changes: Mapping[str, Any] | None = None) -> list[str]:
    """The chips of an analysis.

    Args:
        analysis: The analysis.
        changes: The fields that are changed, with their new values; by default those of its
            decision.
    """
    changed = decided_fields(analysis) if changes is None else changes
    return chips_of(analysis.request, gpu_of(analysis), changed)


def name_of(analysis: Analysis) -> str:
    """Model and chips in one line of plain text, for titles and e-mails."""
    return " · ".join([model_name(analysis.model), *chips(analysis)])
