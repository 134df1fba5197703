"""JSON files that lie beside a ``config.json`` in a repository, and are taken for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.parsing import shown

_BESIDE = "enter the config.json that lies beside it, of the model itself"
_BY_KEYS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"added_tokens_decoder", "tokenizer_class", "tokenizer_file"}), "a tokenizer"),
    (
        frozenset({"image_processor_type", "feature_extractor_type", "processor_class"}),
        "a processor of inputs",
    ),
    (
        frozenset({"pooling_mode_mean_tokens", "word_embedding_dimension", "similarity_fn_name"}),
        "a part of sentence-transformers",
    ),
    (frozenset({"producer"}), "a quantizer (hf_quant_config.json)"),
)
"""Keys of which a file has at least one, with what they describe."""
_BY_CLASS = {
    "Pipeline": "a whole pipeline",
    "Scheduler": "a scheduler",
    "AutoencoderKL": "an autoencoder",
}
"""Ends of the names of diffusers' classes that are no denoisers."""


def why_no_config(read: Mapping[str, Any]) -> str:
    """Why a parsed file is not the config of a model, and which file is; empty if it may be."""
    if "model_type" in read or "architectures" in read:
        return ""
    if "peft_type" in read:
        base, rank = read.get("base_model_name_or_path"), read.get("r")
        named = f" ({shown(base)})" if isinstance(base, str) and base else ""
        with_rank = f", with --lora-rank {rank}" if type(rank) is int else ""
        return (
            f"this describes an adapter of peft; enter its base model{named} or the config.json "
            f"of that{with_rank}"
        )
    name = str(read.get("_class_name", ""))
    if kind := next((kind for end, kind in _BY_CLASS.items() if name.endswith(end)), ""):
        return (
            f"this describes {kind} of diffusers; enter unet/config.json or "
            "transformer/config.json of the same repository"
        )
    kind = next((kind for keys, kind in _BY_KEYS if not keys.isdisjoint(read)), "")
    return f"this describes {kind}; {_BESIDE}" if kind else ""
