"""Any config made small by the names of its fields, so that a real step takes milliseconds."""

from __future__ import annotations

import json
import re
from typing import Any

from transformers import AutoConfig, PretrainedConfig

VOCABULARY = 500
POSITIONS = 160
_STAGES = ("depths", "num_block_repeats")
_READ = ("projection_dim", "out_hidden_size")
_MAX_LAYERS = 8
_CODES = 64
_LAYERS, _HEADS, _KEY_HEADS, _HEAD, _PATCHES = 2, 4, 2, 16, 8

_SIZES: dict[str, int] = {
    # layers
    r"(num_)?(encoder|decoder)_layers|num_((hidden|encoder|decoder|global)_)?layers": _LAYERS,
    r"n_layers?|depth|num_blocks|num_self_attends_per_block": _LAYERS,
    r"num_hidden_groups|num_nextn_predict_layers|num_conv_pos_embedding_groups": 1,
    r"num_encoder_blocks|first_k_dense_replace|num_hash_layers": 1,
    # widths
    r"(?!patch_embed)\w*(?<!ffn_)hidden_size|n_embd|dim|d_model|emb_dim|embed_dim": 64,
    r"word_embed_proj_dim|embedding_size|vision_output_dim|d_latents": 64,
    r"(\w+_)?projection_dim|projection_size|projector_(in|out)put_dim": 64,
    r"\w*intermediate_size(_mlp)?|\w*ffn_dim|d_ff|n_inner|hidden_dim|d_inner": 128,
    r"ffn_hidden_size": 128,
    r"bottleneck_features|intra_bottleneck_size": 64,
    r"moe_\w*intermediate_size|shared_expert_intermediate_size|expert_ffn_hidden_size": 32,
    r"\w*lora_rank|lru_width|hidden_size_per_layer_input": 32,
    # heads
    r"(\w+_)?num_attention_heads|n_heads?|num_heads|((en|de)coder_)?attention_heads": _HEADS,
    r"(\w+_)?num_key_value_heads|num_kv_heads|n_head_kv": _KEY_HEADS,
    r"qk_head_dim": 32,  # those with and without positions
    r"(global_|\w*_)?head_dim|d_kv|v_head_dim|d_head": 16,
    r"qk_(rope|nope)_head_dim": 16,
    r"rotary_dim": 8,
    # experts
    r"num_(local_|routed_)?experts|n_routed_experts|moe_num_experts": 4,
    r"num_experts_per_tok(en)?|moe_topk|moe_k|num_selected_experts|top_k_experts": 2,
    r"n_group|topk_group|n_groups|num_expert_groups?": 1,
    r"(attn|expert)_layer_period": 2,
    r"(attn|expert)_layer_offset": 1,
    # inputs and outputs
    r"num_queries": 12,
    r"(\w+_)?vocab_size(_per_layer_input|_base)?|\w+_vocab": VOCABULARY,
    r"max_((en|de)coder_)?position_embeddings|max_target_positions|max_seq_len": POSITIONS,
    r"n_positions": POSITIONS,
    r"num_mel_bins": 16,
    r"context_length": 512,
    r"mm_tokens_per_image": 4,
    r"num_query_tokens": 8,
    r"sliding_window|attention_window|block_size": 16,
    r"\w*state_size|n_state|(mamba_)?chunk_size": 16,
}
_BY_NAME = [(re.compile(names), size) for names, size in _SIZES.items()]

_DERIVED = {
    "head_dim": 16,
    "num_key_value_heads": _HEADS,
    "image_token_index": 37,
    "audio_token_id": 37,
    "prediction_length": 24,
}
"""Some models need these, though their configs leave them empty by default; others derive them."""

_LAYER_INDICES = re.compile(
    r"(?!\w*out_)\w+_ind(ex|ic)es|cross_attention_layers|\w*feature_layers?"
)

_ROPE = {"rope_type": "default", "rope_theta": 10000.0}

_DINO = {
    "model_type": "dinov2",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 4,
}
_EXCEPTIONS: dict[str, dict[str, Any]] = {
    "gemma3n_text": {
        "num_hidden_layers": 10,
        "num_kv_shared_layers": 5,
        "activation_sparsity_pattern": [0.95] * 5 + [0.0] * 5,
    },
    "align": {"projection_dim": 640},
    "aria": {"projector_patch_to_query_dict": {"900": 16}},
    "chameleon": {
        "vocabulary_map": {"<image>": 37}
        | {
            "IMGIMG" + "".join(chr(ord("A") + int(digit)) for digit in str(code)) + "Z": 100 + code
            for code in range(_CODES)
        }
    },
    "chameleon_vqgan": {"num_embeddings": _CODES, "base_channels": 32},
    "muse_glimmer": {"out_hidden_size": 256},
    "muse_spark": {"out_hidden_size": 256},
    "nemotron_h_omni": {"image_token_id": 37},
    "sapiens2": {
        "head_config": {"upsample_out_channels": [32] * 4, "conv_out_channels": [32]},
        "num_key_value_heads_per_layer": [_HEADS] * 25,
    },
    "unlimited_ocr_sam_vision_model": {"downsample_channels": [32, 64]},
    "gemma3n_vision": {"model_args": {"channel_multiplier": 0.125}},
    "depth_pro": {
        "patch_size": 16,
        "intermediate_hook_ids": [1, 0],
        "intermediate_feature_dims": [64, 64],
        "scaled_images_feature_dims": [64, 64, 64],
        **dict.fromkeys(("image_model_config", "patch_model_config", "fov_model_config"), _DINO),
    },
    "dots3_note_audio_encoder": {"adapter_input_size": 64, "adapter_output_size": 64},
    "dots3_note_vision_encoder": {
        "num_hidden_layers": 42,
        "adapter_in_dim": 64,
        "adapter_out_dim": 64,
    },
    "molmo2": {"image_patch_id": 37},
    "moonshine_streaming": {"num_key_value_heads": _HEADS},
    "qwen2_5_omni_thinker": {"vision_start_token_id": 38},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 38},
    "vibevoice_acoustic_tokenizer_encoder": {"num_filters": 4},
    "lw_detr": {"projector_scale_factors": [1.0]},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "llama4_vision_model": {"intermediate_size": 256},
    "mllama_vision_model": {"vision_output_dim": 128},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "cohere_compass_text": {"rope_parameters": {"full_attention": _ROPE}},
    "blt_local_decoder": {"hidden_size_global": 64},
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "kv_n_heads": _KEY_HEADS, "clip_qkv": 8}},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "lilt": {"hidden_size": 96, "pad_token_id": 1},
    "layoutlmv3": {"hidden_size": 96, "coordinate_size": 16, "shape_size": 16},
    "mamba2": {"num_heads": 8},
    "mistral4": {"head_dim": 32},
    "qwen4_exp_text": {
        "indexer_n_heads": _HEADS,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 16,
        "indexer_compress_ratio": 4,
    },
    "zamba": {"num_hidden_layers": 5, "attention_hidden_size": 128, "attention_head_dim": 32},
    "zamba2": {
        "num_hidden_layers": 4,
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "attention_hidden_size": 128,
        "attention_head_dim": 32,
    },
}
"""Fields the rule cannot know, by model type: those that are empty by default and in no published
config, and those that must agree with other fields, such as the number of layers."""

_ALONE = {"beit": {"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4]}}
"""The same, for models that are not a part of another model, which would set them."""


def small_config(model_type: str) -> dict[str, Any]:
    """The fields of a small config, as a ``config.json`` has them.

    Raises:
        Exception: Of any class, where transformers makes no config by default.
    """
    changes = _changes(AutoConfig.for_model(model_type)) | _ALONE.get(model_type, {})
    small = AutoConfig.for_model(model_type, **changes)
    fields: dict[str, Any] = json.loads(small.to_json_string(), object_hook=_as_published)
    return fields


def _as_published(fields: dict[str, Any]) -> dict[str, Any]:
    """Without what transformers derives again, or writes in a form that it does not read."""
    return {
        name: value
        for name, value in fields.items()
        if name != "per_layer_config" and "__float__" not in str(value)
    }


def _changes(config: Any) -> dict[str, Any]:
    """The fields of a config that a small one has otherwise, those of nested configs too."""
    changes: dict[str, Any] = {}
    for name, value in vars(config).items():
        small = _small_value(config, name, value)
        if small != value:
            changes[name] = small
    for name in _STAGES:
        if isinstance(depths := getattr(config, name, None), list | tuple):
            # The stages' widths and heads belong together; and those that are read, to the reader.
            kept = {one: changes[one] for one in changes if one in _READ}
            read = {"out_features": config.out_features} if hasattr(config, "out_features") else {}
            changes = {name: [1] * len(depths)} | kept | read
    return changes | _EXCEPTIONS.get(config.model_type, {})


def _small_value(config: Any, name: str, value: Any) -> Any:
    if value is None and name == "vision_config":  # by default, but in every published config
        value = config.sub_configs[name]()
    if isinstance(value, PretrainedConfig):
        return _small_part(config, name, value)
    if value is None:
        return _DERIVED.get(name)
    if isinstance(value, list | tuple) and value and _LAYER_INDICES.fullmatch(name):
        return [_LAYERS - 1]
    if type(value) is not int or name.startswith("_"):
        return value
    small = _small(name, value)
    if small == _LAYERS and "layer" in name:
        return max(small, _layers_that_show_every_kind(config))
    heads = config.attribute_map.get("num_attention_heads", "num_attention_heads")
    if small == _KEY_HEADS and value == vars(config).get(heads):
        return _HEADS  # each has its own keys and values
    return small


def _small_part(config: Any, name: str, part: Any) -> dict[str, Any]:
    """The fields of a config within another that a small one has otherwise."""
    if part.model_type == "timm_backbone":  # one of transformers' own in its place
        features = [f"stage{index}" for index in part.out_indices or [4] if index > 0]
        return {"model_type": "resnet", "depths": [1] * 4, "out_features": features}
    own = _as_published(part.to_diff_dict())
    if not any(hasattr(part, name) for name in _STAGES):  # whose lists do not count layers
        layers = getattr(part, "num_hidden_layers", None)
        own = {
            one: value
            for one, value in own.items()
            if not (isinstance(value, list | tuple) and len(value) == layers)
        }
    small = own | _changes(part) | {"model_type": part.model_type}
    if name == "text_config" and "vision_config" in config.sub_configs:
        small |= _rope_of_images(part)
    if name == "vision_config" and not hasattr(config, "image_grid_pinpoints"):
        small |= _image_size(part)
    return small


def _image_size(config: Any) -> dict[str, Any]:
    """A small square of patches."""
    size, patch = getattr(config, "image_size", None), getattr(config, "patch_size", None)
    if isinstance(size, int) and isinstance(patch, int):
        return {"image_size": _PATCHES * patch}
    if isinstance(size, tuple) and isinstance(patch, tuple):
        return {"image_size": [_PATCHES * side for side in patch]}
    return {}


def _rope_of_images(config: Any) -> dict[str, Any]:
    """Rotary positions of a small text model that may count time, rows and columns apart.

    Each has a share of the pairs of numbers that are turned, which are half of a head. Models that
    count tokens only do not look at it.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    if "rope_theta" not in rope:  # none, or those of each kind of layers
        return {}
    turned = int(_HEAD * rope.get("partial_rotary_factor", 1)) // 2
    side = turned * 3 // 8
    return {"rope_parameters": rope | {"mrope_section": [turned - 2 * side, side, side]}}


def _small(name: str, value: int) -> int:
    if re.search(r"_token_(id|index)$", name):
        return value if 0 <= value < VOCABULARY else 1 + sum(name.encode()) % 50
    for pattern, size in _BY_NAME:
        if pattern.fullmatch(name):
            return min(value, size) if value > 0 else value
    return value


def _layers_that_show_every_kind(config: Any) -> int:
    """The number of first layers that include one of each kind, by lists such as ``layer_types``.

    Where the states of some layers are read, the number covers the last of them.
    """
    needed = _LAYERS
    count = getattr(config, "num_hidden_layers", None)
    for name, value in list(vars(config).items()):
        if name.endswith("out_indices") and value:
            return int(max(value)) + 1
        if isinstance(value, list) and len(value) == count and value and isinstance(value[0], str):
            needed = max(needed, max(value.index(kind) for kind in set(value)) + 1)
    return min(needed, _MAX_LAYERS)
