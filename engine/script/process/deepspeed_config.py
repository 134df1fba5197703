"""DeepSpeed's config, read for what decides about memory.

Its keys are those of deepspeed.ai/docs/config-json, and defaults those of DeepSpeed 0.19.8
(deepspeed/runtime/zero/config.py).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ...parallel.zero_division import Division

_STAGES = (1, 2, 3)
_FORMATS = {
    name: known
    for known, names in {
        torch.float32: ("fp32", "float32", "float"),
        torch.float16: ("fp16", "float16", "half"),
        torch.bfloat16: ("bf16", "bfloat16"),
    }.items()
    for name in (*names, str(known))
}
"""Number formats by every name that DeepSpeed has for them (``DtypeEnum`` in
deepspeed/runtime/config.py)."""


def read(config: object) -> Mapping[str, Any]:
    """DeepSpeed's config, as ``deepspeed.initialize`` takes it.

    Args:
        config: A dictionary, the path of a JSON file, or JSON in base64.

    Returns:
        What it says; nothing if it cannot be read, which DeepSpeed itself would refuse.
    """
    if isinstance(config, Mapping):
        return config
    try:
        text = Path(str(config)).read_bytes()
    except OSError:
        text = str(config).encode()
    with suppress(binascii.Error):
        text = base64.b64decode(text, altchars=b"-_", validate=True)
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def fields_of(config: Mapping[str, Any], gpus: int) -> dict[str, Any]:
    """Fields of an analysis that are equivalent to a DeepSpeed config.

    Args:
        config: As DeepSpeed documents it (deepspeed.ai/docs/config-json). What is ``"auto"`` is
            left to the analysis.
        gpus: Number of processes that share the training run.
    """
    zero = config.get("zero_optimization") or {}
    stage = zero.get("stage", 0)
    found: dict[str, Any] = {
        "precision": "bf16-mixed",
        "parallelism": f"zero-{stage}" if stage in _STAGES else "ddp" if gpus > 1 else None,
        "world_size": gpus if gpus > 1 else None,
        "current_batch_size": config.get("train_micro_batch_size_per_gpu"),
        "gradient_accumulation": config.get("gradient_accumulation_steps"),
    }
    if stage in _STAGES:
        found |= {
            "reduce_bucket_size": zero.get("reduce_bucket_size"),
            "overlap_comm": (stage < 3 and zero.get("overlap_comm")) or None,
            "optimizer_offload": updates_on_host(config) or None,
            "cpu_offload": _is_on_host(zero.get("offload_param")) or None,
        }
    return {name: _number(value) for name, value in found.items() if value not in (None, "auto")}


def division_of(config: Mapping[str, Any], gpus: int) -> Division:
    """Division of the training run by ZeRO.

    Args:
        config: As for :func:`fields_of`, of a stage from 1 to 3.
        gpus: Number of processes that share the training run.
    """
    zero = _zero(config)
    usual = Division(zero["stage"], gpus)
    return replace(
        usual,
        bucket_elements=int(zero.get("reduce_bucket_size", usual.bucket_elements)),
        overlaps=usual.stage < 3 and bool(zero.get("overlap_comm")),
        micro_batches=batch_sizes(config, gpus)[1],
        reuse_elements=int(zero.get("stage3_max_reuse_distance", usual.reuse_elements)),
        ahead_elements=int(zero.get("stage3_prefetch_bucket_size", usual.ahead_elements)),
        live_elements=int(zero.get("stage3_max_live_parameters", usual.live_elements)),
        small_elements=int(zero.get("stage3_param_persistence_threshold", usual.small_elements)),
    )


def updates_on_host(config: Mapping[str, Any]) -> bool:
    """Whether the optimizer runs on the host, where its state and the fp32 weights are then."""
    return _is_on_host(_zero(config).get("offload_optimizer"))


def batch_sizes(config: Mapping[str, Any], gpus: int) -> tuple[int, int]:
    """Samples of a micro-batch of one GPU, and micro-batches of a step.

    Two of the three settings determine both.

    Args:
        config: As for :func:`fields_of`.
        gpus: Number of processes that share the training run.
    """
    whole = _number(config.get("train_batch_size"))
    size = _number(config.get("train_micro_batch_size_per_gpu"))
    added = _number(config.get("gradient_accumulation_steps"))
    if size is None:
        size = (whole or gpus) // gpus // (added or 1)
    if added is None:
        added = (whole or size * gpus) // gpus // size
    return size, added


def number_format(config: Mapping[str, Any]) -> torch.dtype | None:
    """Number format that the engine casts all weights to; ``None`` where it leaves them."""
    for name, format_of_weights in (("bf16", torch.bfloat16), ("bfloat16", torch.bfloat16)):
        if _is_on(config, name):
            return format_of_weights
    return torch.float16 if _is_on(config, "fp16") else None


def not_followed(config: Mapping[str, Any]) -> Iterator[str]:
    """Keys of a config that ask for what is not computed for a script."""
    yield from _not_followed_of_zero(_zero(config))
    accumulated = (config.get("data_types") or {}).get("grad_accum_dtype")
    if accumulated and _FORMATS.get(accumulated) is not (number_format(config) or torch.float32):
        yield "data_types.grad_accum_dtype"
    for key in ("torch_autocast", "compile", "flops_profiler", "data_efficiency"):
        if _is_on(config, key):
            yield key
    if (config.get("tensor_parallel") or {}).get("autotp_size", 0) > 1:
        yield "tensor_parallel"


def _not_followed_of_zero(zero: Mapping[str, Any]) -> Iterator[str]:
    if zero.get("stage", 0) not in _STAGES:
        yield f"zero_optimization.stage {zero.get('stage', 0)}"
    if (zero.get("offload_param") or {}).get("device", "none") != "none":
        yield "zero_optimization.offload_param"
    offload = zero.get("offload_optimizer") or {}
    if offload.get("device", "none") not in ("none", "cpu") or offload.get("ratio", 1) != 1:
        yield "zero_optimization.offload_optimizer"
    for key in ("zero_quantized_weights", "zero_quantized_gradients", "zenflow"):
        if zero.get(key):
            yield f"zero_optimization.{key}"
    if zero.get("zero_hpz_partition_size", 1) != 1:
        yield "zero_optimization.zero_hpz_partition_size"


def _zero(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config.get("zero_optimization") or {}


def _is_on(config: Mapping[str, Any], name: str) -> bool:
    return (config.get(name) or {}).get("enabled") is True


def _is_on_host(offload: Mapping[str, Any] | None) -> bool:
    return offload is not None and offload.get("device") == "cpu"


def _number(value: Any) -> Any:
    """Return a number, as an integer where it is written as a float (5e8)."""
    return int(value) if isinstance(value, float) else value
