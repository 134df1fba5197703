"""The settings that decide an analysis, in a few words each: beside its model wherever it is named.

Precision, the size of a sample and the GPU are always among them, others only where they differ
from what is usual for the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from analyses.decided import decided_fields
from analyses.formatting import gpu_of, model_name
from analyses.models import Analysis
from engine.core.choices import Goal
from engine.core.errors import InvalidInput
from engine.core.sizes import gib
from engine.interface.goals import counts, goal_of
from engine.interface.request import usual_values
from engine.models.tasks import SIZES
from engine.versions.software import in_words, parse


def _software(stored: str) -> str:
    try:
        return in_words(parse(stored))
    except InvalidInput:  # stored by a version that knew other packages
        return stored


_HASH_DIGITS = 8
"""Shown digits of a script's hash, enough to tell its versions apart in one lab."""

_WORDS: dict[str, Callable[[Any], str]] = {
    "program": lambda program: f"script {program['hash'][:_HASH_DIGITS]}",
    "goal": {Goal.GENERATION: "generation", Goal.LENGTH: "longest sequence"}.__getitem__,
    "prompt_length": lambda count: f"prompts of {count:,} tokens",
    "new_tokens": lambda count: f"{count:,} new tokens",
    "num_beams": lambda count: f"{count:,} beams",
    "cache_format": lambda kind: f"{kind} cache",
    "precision": str,
    "sequence_length": lambda count: f"{count:,} tokens",
    "image_size": lambda side: f"{side:,} px",
    "image_count": lambda count: "1 image" if count == 1 else f"{count} images",
    "target_count": lambda count: "1 object" if count == 1 else f"{count} objects",
    "frame_count": lambda count: "1 frame" if count == 1 else f"{count} frames",
    "audio_seconds": lambda seconds: f"{seconds:,} s of sound",
    "task": lambda task: task.replace("-", " "),
    "method": str.upper,
    "completion_length": lambda count: f"answers of {count:,} tokens",
    "teacher": lambda name: f"teacher {name}",
    "reward_model": lambda name: f"reward model {name}",
    "kl_reference": lambda _: "KL penalty",
    "rollout": lambda where: f"completions: {where}",
    "vllm_share": lambda share: f"vLLM has {share}%",
    "vllm_sleep": lambda _: "vLLM sleeps",
    "vllm_tensor_parallel": lambda count: f"vLLM in {count:,} parts",
    "steps_per_generation": lambda count: f"{count:,} batches per generation",
    "precomputed_reference": lambda _: "reference scored beforehand",
    "optimizer": str,
    "optimizer_rank": lambda rank: f"projection rank {rank:,}",
    "optimizer_in_backward": lambda _: "optimizer in backward",
    "lora_rank": lambda rank: f"LoRA {rank}",
    "adapter": lambda _: "DoRA",
    "modules_to_save": lambda names: f"trains {names}",
    "trained_tokens": lambda count: f"{count:,} new tokens trained",
    "quantization": str,
    "frozen_backbone": lambda _: "frozen backbone",
    "gradient_checkpointing": lambda _: "checkpointing",
    "checkpoint_every": lambda every: f"1 layer in {every} recomputed",
    "recompute": lambda what: f"{what} parts recomputed",
    "activation_offload": lambda _: "activations offloaded",
    "optimizer_offload": lambda _: "optimizer offloaded",
    "cross_entropy": lambda kind: f"{kind} cross-entropy",
    "gradient_accumulation": lambda count: f"accumulation {count:,}",
    "batching": lambda kind: f"{kind} batches",
    "global_batch_size": lambda size: f"global batch {size:,}",
    "attention": lambda kind: f"{kind} attention",
    "eval_batch_size": lambda size: f"evaluation batch {size:,}",
    "eval_num_beams": lambda count: f"{count:,} beams in evaluation",
    "eval_samples": lambda count: f"metrics over {count:,} samples",
    "eval_accumulation_steps": lambda count: f"evaluation accumulation {count:,}",
    "mode": lambda mode: f"{mode} mode",
    "compile": lambda _: "compiled",
    "parallelism": lambda kind: kind.upper(),
    "world_size": lambda count: f"{count:,} GPUs",
    "reduce_dtype": lambda kind: f"reduced in {kind}",
    "cpu_offload": lambda _: "shards offloaded",
    "reduce_bucket_size": lambda count: f"buckets of {count:,}",
    "overlap_comm": lambda _: "overlapped",
    "shard_size": lambda count: f"sharded among {count:,}",
    "tensor_parallel": lambda count: f"layers split among {count:,}",
    "pipeline_parallel": lambda count: f"{count:,} pipeline stages",
    "context_parallel": lambda count: f"sequences split among {count:,}",
    "context_rotation": lambda way: f"{way} of keys and values",
    "expert_parallel": lambda count: f"experts split among {count:,}",
    "expert_load": lambda load: f"{load:,}% of the mean tokens",
    "stage_layers": lambda layers: f"stages of {layers} layers",
    "sequence_parallel": lambda _: "sequence parallel",
    "memory_limit_bytes": lambda limit: f"{gib(limit)} limit",
    "software": _software,
}
"""The chip text of each field, in their order; the GPU comes last."""

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
    changed = (_changed(now.get(name), then.get(name)) for name in _WORDS)
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


def chips(analysis: Analysis) -> list[str]:
    return chips_of(analysis.request, gpu_of(analysis), decided_fields(analysis))


def name_of(analysis: Analysis) -> str:
    """Model and chips in one line of plain text, for titles and e-mails."""
    return " · ".join([model_name(analysis.model), *chips(analysis)])
