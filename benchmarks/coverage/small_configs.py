"""Any config made small by the names of its fields, so that a real step takes milliseconds."""

from __future__ import annotations

import json
import re
from typing import Any

from transformers import AutoConfig, PretrainedConfig

VOCABULARY = 500
POSITIONS = 64
_STAGES = ("depths", "num_block_repeats")
_MOST_LAYERS = 8
_LAYERS, _HEADS, _KEY_HEADS = 2, 4, 2

_SIZES: dict[str, int] = {
    # layers
    r"(num_)?(encoder|decoder)_layers|n_layers?|num_(hidden_|encoder_|decoder_)?layers": _LAYERS,
    r"num_hidden_groups|num_nextn_predict_layers|num_conv_pos_embedding_groups": 1,
    r"num_encoder_blocks|first_k_dense_replace|num_hash_layers": 1,
    # widths
    r"hidden_size|n_embd|dim|d_model|emb_dim|embed_dim|word_embed_proj_dim|embedding_size": 64,
    r"\w*intermediate_size|\w*ffn_dim|d_ff|n_inner|hidden_dim|d_inner|ffn_hidden_size": 128,
    r"moe_\w*intermediate_size|shared_expert_intermediate_size|expert_ffn_hidden_size": 32,
    r"\w*lora_rank|lru_width|hidden_size_per_layer_input": 32,
    # heads
    r"(\w+_)?num_attention_heads|n_heads?|num_heads|(en|de)coder_attention_heads": _HEADS,
    r"(\w+_)?num_key_value_heads|num_kv_heads|n_head_kv": _KEY_HEADS,
    r"(global_|\w*_)?head_dim|d_kv|v_head_dim|d_head": 16,
    r"qk_(rope|nope)_head_dim": 16,
    r"rotary_dim": 8,
    # experts
    r"num_(local_|routed_)?experts|n_routed_experts|moe_num_experts": 4,
    r"num_experts_per_tok(en)?|moe_topk|moe_k|num_selected_experts|top_k_experts": 2,
    r"n_group|topk_group|n_groups|num_expert_groups?": 1,
    r"(attn|expert)_layer_period": 2,
    r"(attn|expert)_layer_offset": 1,
    # inputs
    r"vocab_size(_per_layer_input)?": VOCABULARY,
    r"max_position_embeddings|n_positions|max_target_positions|max_seq_len": POSITIONS,
    r"max_source_positions": 50,
    r"num_mel_bins": 16,
    r"sliding_window|attention_window|block_size": 16,
    r"\w*state_size|n_state": 16,
}
_BY_NAME = [(re.compile(names), size) for names, size in _SIZES.items()]

_DERIVED = {"head_dim": 16, "num_key_value_heads": _HEADS}
"""Some models need these, though their configs leave them empty by default; others derive them."""

_EXCEPTIONS: dict[str, dict[str, Any]] = {
    "gemma3n_text": {
        "num_hidden_layers": 10,
        "num_kv_shared_layers": 5,
        "activation_sparsity_pattern": [0.95] * 5 + [0.0] * 5,
    },
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},
}
"""What the rule cannot know, by model type: fields that are empty by default and in no published
config, and those that must agree with the number of layers."""


def small_config(model_type: str) -> dict[str, Any]:
    """The fields of a small config, as a ``config.json`` has them.

    Raises:
        Exception: Of any class, where transformers makes no config by default.
    """
    changes = _changes(AutoConfig.for_model(model_type)) | _EXCEPTIONS.get(model_type, {})
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
    for name in _STAGES:
        if isinstance(depths := getattr(config, name, None), list | tuple):
            return {name: [1] * len(depths)}  # the stages' widths and heads belong together
    heads = getattr(config, "num_attention_heads", None)
    kinds = _layers_that_show_every_kind(config)
    for name, value in vars(config).items():
        small = value
        if isinstance(value, PretrainedConfig):
            small = _changes(value) | {"model_type": value.model_type}
        elif value is None:
            small = _DERIVED.get(name)
        elif type(value) is int and not name.startswith("_"):
            small = _small(name, value)
            if small == _LAYERS and "layer" in name:
                small = max(small, kinds)
            elif small == _KEY_HEADS and value == heads:  # each has its own keys and values
                small = _HEADS
        if small != value:
            changes[name] = small
    return changes


def _small(name: str, value: int) -> int:
    if re.search(r"_token_(id|index)$", name):
        return value if 0 <= value < VOCABULARY else 1 + sum(name.encode()) % 50
    for pattern, size in _BY_NAME:
        if pattern.fullmatch(name):
            return min(value, size) if value > 0 else value
    return value


def _layers_that_show_every_kind(config: Any) -> int:
    """So many of the first layers have one of each kind, by lists such as ``layer_types``."""
    needed = _LAYERS
    count = getattr(config, "num_hidden_layers", None)
    for value in list(vars(config).values()):
        if isinstance(value, list) and len(value) == count and value and isinstance(value[0], str):
            needed = max(needed, max(value.index(kind) for kind in set(value)) + 1)
    return min(needed, _MOST_LAYERS)
