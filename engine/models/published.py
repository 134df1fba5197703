"""Parts of a published ``config.json`` beside the model: code of a repository, and formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .architectures import SUPPORTED

PUBLISHED_FORMAT = "published_format"
"""Key that such a format is kept under, for answers to name it."""
_MADE_PLAIN = ("fp8", "mxfp4")


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
    if isinstance(quantised, dict) and quantised.get("quant_method") in _MADE_PLAIN:
        left.add("quantization_config")
        config = config | {PUBLISHED_FORMAT: quantised["quant_method"]}
    return {name: value for name, value in config.items() if name not in left}


def published_format_caveats(config: Mapping[str, Any]) -> list[str]:
    """Caveats about weights that are published in a format of few bits."""
    published = config.get(PUBLISHED_FORMAT)
    if published not in _MADE_PLAIN:
        return []
    return [
        f"The weights are published in {published}. They are predicted in the format of the chosen "
        f"precision, as transformers makes it of them (dequantize=True); kept in {published}, they "
        "take less."
    ]


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
