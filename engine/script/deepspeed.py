"""A script that trains with DeepSpeed: it is told how to describe the same training run instead.

DeepSpeed does not run on fake tensors. What it keeps is computed for models that are described by
their settings (:mod:`engine.parallel.zero`), which its config has.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shlex import join
from typing import Any, NoReturn

from ..request import as_flags
from ..tracing.recurrent import NotPredictable
from .on_import import when_imported
from .process_group import world_size


def refuse_deepspeed() -> None:
    """Refuse DeepSpeed's engine where a script makes one; in a process that traces a script."""
    when_imported({"deepspeed": _replace_initialize})


def _replace_initialize() -> None:
    vars(sys.modules["deepspeed"])["initialize"] = _refuse


def _refuse(
    args: Any = None, *_: Any, config: Any = None, config_params: Any = None, **__: Any
) -> NoReturn:
    given = config or config_params or getattr(args, "deepspeed_config", None)
    words = join(
        ["memorymark", "analyze", "MODEL", *as_flags(fields_of(read(given), world_size()))]
    )
    raise NotPredictable(
        "DeepSpeed does not run on tensors without values. Describe the same training run: "
        f"{words} (the name of a preset or of a model on the Hub in place of MODEL)"
    )


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
    """The fields of an analysis that say what a DeepSpeed config says.

    Args:
        config: As DeepSpeed documents it (deepspeed.ai/docs/config-json). What is ``"auto"`` is
            left to the analysis.
        gpus: How many processes share the training run.
    """
    zero = config.get("zero_optimization") or {}
    stage = zero.get("stage", 0)
    found: dict[str, Any] = {
        "precision": "bf16-mixed",
        "parallelism": f"zero-{stage}" if stage in (1, 2, 3) else "ddp" if gpus > 1 else None,
        "world_size": gpus if gpus > 1 else None,
        "current_batch_size": config.get("train_micro_batch_size_per_gpu"),
        "gradient_accumulation": config.get("gradient_accumulation_steps"),
    }
    if stage in (1, 2, 3):
        found |= {
            "reduce_bucket_size": zero.get("reduce_bucket_size"),
            "overlap_comm": (stage < 3 and zero.get("overlap_comm")) or None,
            "optimizer_offload": _is_on_host(zero.get("offload_optimizer")) or None,
            "cpu_offload": _is_on_host(zero.get("offload_param")) or None,
        }
    return {name: _number(value) for name, value in found.items() if value not in (None, "auto")}


def _is_on_host(offload: Mapping[str, Any] | None) -> bool:
    return offload is not None and offload.get("device") == "cpu"


def _number(value: Any) -> Any:
    """Whole numbers may be written as floats (5e8)."""
    return int(value) if isinstance(value, float) else value
