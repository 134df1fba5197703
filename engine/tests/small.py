"""Models at reduced depth and width: a real step of theirs takes milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.models.model import Model
from engine.models.tasks import Task

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
# Every second layer has a sliding window, shorter than the 32 tokens of a small workload.
_SLIDING = _DECODER | {"sliding_window": 16, "sliding_window_pattern": 2}
_ALTERNATING = _SLIDING | {"layer_types": ["sliding_attention", "full_attention"]}
_MIXTURE = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}
_VIT = {name: _ENCODER[name] for name in _ENCODER.keys() - {"vocab_size"}}

# Models of images and text; their token for images is within the small vocabulary.
_IMAGE_TOKEN = {"image_token_index": 37}
_IMAGE_ID = {"image_token_id": 37}
_ROPE_OF_IMAGES = {"mrope_section": [2, 3, 3], "rope_type": "default"}
_READER = _DECODER | {"rope_scaling": _ROPE_OF_IMAGES}
_PATCHES = {"depth": 2, "hidden_size": 64, "num_heads": 4, "intermediate_size": 128}
_AROUND_IMAGES = dict.fromkeys(("vision_start_token_id", "vision_end_token_id"), 38)

SMALL_BOTH = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
}
"""Sizes of an encoder and a decoder."""
_LISTENER = _ENCODER | {"conv_dim": [32] * 7, "vocab_size": 32}

SMALL: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("bert", "roberta", "deberta-v2", "xlm-roberta"), _ENCODER),
    # The second layer has a sliding window.
    "modernbert": _ENCODER
    | {
        "local_attention": 16,
        "pad_token_id": 0,
        **dict.fromkeys(("bos_token_id", "cls_token_id"), 1),
        **dict.fromkeys(("eos_token_id", "sep_token_id"), 2),
    },
    "distilbert": {"n_layers": 2, "dim": 64, "n_heads": 4, "hidden_dim": 256, "vocab_size": 1000},
    "gpt2": {
        "n_layer": 2,
        "n_embd": 64,
        "n_head": 4,
        "vocab_size": 1000,
        "bos_token_id": 999,
        "eos_token_id": 999,
    },
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma"), _DECODER),
    "qwen3_moe": _DECODER | _MIXTURE | {"num_experts": 4},
    "gemma3_text": _SLIDING,
    "gemma3": _IMAGE_TOKEN
    | {
        "mm_tokens_per_image": 4,
        "text_config": _SLIDING,
        "vision_config": _VIT | {"image_size": 64},
    },
    "llava": _IMAGE_TOKEN
    | {
        "text_config": _DECODER | {"model_type": "llama"},
        "vision_config": _VIT
        | {"model_type": "clip_vision_model", "image_size": 112, "patch_size": 14},
    },
    "paligemma": _IMAGE_TOKEN
    | {
        "projection_dim": 64,
        "text_config": _DECODER | {"model_type": "gemma2", "sliding_window": 16},
        "vision_config": _VIT
        | {"model_type": "siglip_vision_model", "image_size": 112, "patch_size": 14}
        | {"projection_dim": 64},
    },
    "qwen2_5_vl": _READER
    | _IMAGE_ID
    | _AROUND_IMAGES
    | {"vision_config": _PATCHES | {"out_hidden_size": 64, "fullatt_block_indexes": [1]}},
    "qwen3_vl": _IMAGE_ID
    | _AROUND_IMAGES
    | {
        "text_config": _READER,
        "vision_config": _PATCHES | {"out_hidden_size": 64, "deepstack_visual_indexes": [1]},
    },
    "llama4": _IMAGE_TOKEN
    | {
        "text_config": _DECODER
        | {"num_hidden_layers": 4, "num_local_experts": 4, "intermediate_size_mlp": 128},
        "vision_config": _VIT
        | {"image_size": 336, "patch_size": 84, "vision_output_dim": 64}
        | {"projector_input_dim": 64, "projector_output_dim": 64},
    },
    # The last layer has the keys and values of one before it.
    "gemma4": _IMAGE_ID
    | {
        "audio_config": None,
        "text_config": _ALTERNATING
        | {"pad_token_id": 0, "num_hidden_layers": 4, "num_kv_shared_layers": 2}
        | {"layer_types": ["sliding_attention", "full_attention"] * 2, "global_head_dim": 32}
        | {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 1000},
        "vision_config": _VIT | {"num_key_value_heads": 4, "head_dim": 16},
    },
    "smolvlm": _IMAGE_ID
    | {
        "scale_factor": 2,
        "text_config": _DECODER | {"model_type": "llama", "pad_token_id": 0},
        "vision_config": _VIT | {"image_size": 64, "patch_size": 16},
    },
    "mllama": _IMAGE_TOKEN
    | {
        "text_config": _DECODER | {"cross_attention_layers": [1], "pad_token_id": 0},
        "vision_config": _VIT
        | {"attention_heads": 4, "num_global_layers": 2, "intermediate_layers_indices": [1]}
        | {"image_size": 112, "patch_size": 14, "vision_output_dim": 128},
    },
    **dict.fromkeys(("phi3", "olmo2"), _DECODER | {"pad_token_id": 0}),
    "olmo3": _ALTERNATING | {"pad_token_id": 0},
    "smollm3": _DECODER | {"pad_token_id": 0, "no_rope_layer_interval": 2},
    "mixtral": _DECODER | {"num_local_experts": 4},
    "gpt_oss": _ALTERNATING | {"pad_token_id": 0, "num_local_experts": 4},
    "deepseek_v3": _ENCODER
    | _MIXTURE
    | {
        "num_key_value_heads": 4,
        "first_k_dense_replace": 1,
        "n_routed_experts": 8,
        "n_group": 2,
        "topk_group": 1,
        "q_lora_rank": 32,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
    },
    "t5": {
        "num_layers": 2,
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 128,
        "num_heads": 4,
        "vocab_size": 1000,
    },
    "bart": SMALL_BOTH | {"vocab_size": 1000},
    "resnet": {"depths": [1, 1, 1, 1], "hidden_sizes": [32, 64, 128, 256], "embedding_size": 16},
    **dict.fromkeys(("vit", "dinov2"), _VIT),
    "efficientnet": {"width_coefficient": 0.25, "hidden_dim": 320},
    "convnext": {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 64, 128]},
    "swin": {"depths": [1, 1, 2, 1], "embed_dim": 16, "num_heads": [1, 2, 2, 4]},
    "clip": {
        "projection_dim": 32,
        "text_config": _ENCODER | {"max_position_embeddings": 77, "eos_token_id": 2},
        "vision_config": _VIT | {"patch_size": 32},
    },
    "siglip": {
        "text_config": _ENCODER | {"max_position_embeddings": 64, "pad_token_id": 1},
        "vision_config": _VIT | {"patch_size": 16},
    },
    "diffusers": {},  # made small by the tests that build them
    "segformer": {"depths": [1, 1, 1, 1], "decoder_hidden_size": 32},
    **dict.fromkeys(("wav2vec2", "hubert"), _LISTENER),
    "detr": SMALL_BOTH
    | {
        "num_queries": 20,
        "backbone_config": {
            "model_type": "resnet",
            "depths": [1, 1, 1, 1],
            "hidden_sizes": [32, 64, 128, 256],
            "embedding_size": 16,
            "out_features": ["stage4"],
        },
    },
    "whisper": SMALL_BOTH
    | {
        "num_mel_bins": 16,
        "vocab_size": 1000,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 3,
    },
}
"""Differences from a config, by its model type."""


def made_small(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config at reduced depth and width."""
    return {**config, **SMALL[config["model_type"]]}


def small_sizes(model: Model, task: Task | None = None) -> dict[str, int]:
    """Small inputs, as far as the model allows them for a task, or for its default one."""
    return {
        name: max(size, limits.smallest)
        for name, size in {"sequence_length": 32, "image_size": 64, "audio_seconds": 2}.items()
        if (limits := model.limits(name, task))
    }
