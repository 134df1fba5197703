"""Parts of a published ``config.json`` beside the model: code of a repository, and formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .architectures import SUPPORTED


def without_what_trainers_leave(config: dict[str, Any]) -> dict[str, Any]:
    """Without what is left aside when a model of transformers' own is trained.

    That is code of the model's repository, without ``trust_remote_code``, but for the names of its
    classes: transformers may not have them. And it is a format that weights are published in only
    to be small, from which transformers makes plain ones again (``FineGrainedFP8Config`` and
    ``Mxfp4Config`` with ``dequantize``).
    """
    left = set()
    if config.get("model_type") in SUPPORTED and "auto_map" in config:
        left.add("auto_map")
        config = config | {"architectures": _classes(config)}
    quantised = config.get("quantization_config")
    if isinstance(quantised, dict) and quantised.get("quant_method") in ("fp8", "mxfp4"):
        left.add("quantization_config")
    return {name: value for name, value in config.items() if name not in left}


def _classes(config: Mapping[str, Any]) -> list[Any]:
    """The classes of models that a config names, of transformers or of a repository's own code."""
    named = config.get("architectures")
    mapped = config.get("auto_map")
    own = [
        code.rpartition(".")[2]
        for auto, code in (mapped.items() if isinstance(mapped, dict) else ())
        if auto.startswith("AutoModel") and isinstance(code, str)
    ]
    return list(dict.fromkeys([*(named if isinstance(named, list) else []), *own]))
