"""Presets at reduced depth and width: a real step of theirs takes milliseconds."""

from __future__ import annotations

from typing import Any

from engine.models.kinds import Model

_ENCODER = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "vocab_size": 1000,
}
_DECODER = _ENCODER | {
    "num_key_value_heads": 2,
    "head_dim": 16,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_T5 = {
    "num_layers": 2,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_heads": 4,
    "vocab_size": 1000,
}
_VIT = {name: _ENCODER[name] for name in _ENCODER.keys() - {"vocab_size"}}
_RESNET = {"depths": [1, 1, 1, 1], "hidden_sizes": [32, 64, 128, 256], "embedding_size": 16}

SMALL: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("bert", "bert-large", "roberta", "deberta-v3"), _ENCODER),
    "distilbert": {"n_layers": 2, "dim": 64, "n_heads": 4, "hidden_dim": 256, "vocab_size": 1000},
    "gpt2": {
        "n_layer": 2,
        "n_embd": 64,
        "n_head": 4,
        "vocab_size": 1000,
        "bos_token_id": 999,
        "eos_token_id": 999,
    },
    **dict.fromkeys(
        ("llama-3-8b", "llama-3.2-1b", "llama-3.2-3b", "mistral-7b", "qwen3-0.6b", "qwen3-8b"),
        _DECODER,
    ),
    "gemma-2b": _DECODER,
    # Every second layer has a sliding window, shorter than the 32 tokens of a small workload.
    "gemma-3-1b": _DECODER | {"sliding_window": 16, "sliding_window_pattern": 2},
    **dict.fromkeys(("t5-small", "t5-base"), _T5),
    **dict.fromkeys(("resnet", "resnet-18", "resnet-101", "resnet-152"), _RESNET),
    **dict.fromkeys(("vit-b", "vit-l"), _VIT),
    "convnext-t": {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 64, 128]},
    "swin-t": {"depths": [1, 1, 2, 1], "embed_dim": 16, "num_heads": [1, 2, 2, 4]},
    "clip": {
        "projection_dim": 32,
        "text_config": _ENCODER | {"max_position_embeddings": 77, "eos_token_id": 2},
        "vision_config": _VIT | {"patch_size": 32},
    },
    "whisper": {
        "d_model": 64,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128,
        "max_source_positions": 50,
        "num_mel_bins": 16,
        "vocab_size": 1000,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 3,
    },
}
"""What differs from a preset's config, by its name."""


def small_sizes(model: Model) -> dict[str, int]:
    """Small inputs, as far as the model allows them."""
    return {
        name: max(size, limits.smallest)
        for name, size in {"sequence_length": 32, "image_size": 64}.items()
        if (limits := getattr(model, name))
    }
