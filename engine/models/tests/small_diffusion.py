"""Text-to-image models at reduced depth and width: a real step of theirs takes milliseconds."""

from __future__ import annotations

from typing import Any

from engine.interface.workload import Workload

_CLIP = {
    "architectures": ["CLIPTextModel"],
    "model_type": "clip_text_model",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 500,
    "max_position_embeddings": 77,
    "projection_dim": 32,
    "eos_token_id": 2,
}
_PROJECTING = _CLIP | {"architectures": ["CLIPTextModelWithProjection"]}
_LARGER = _PROJECTING | {"hidden_size": 48, "projection_dim": 48}
_T5_ENCODER = {
    "architectures": ["T5EncoderModel"],
    "model_type": "t5",
    "d_model": 96,
    "d_ff": 64,
    "d_kv": 8,
    "num_heads": 4,
    "num_layers": 2,
    "vocab_size": 500,
    "feed_forward_proj": "gated-gelu",
}
_VAE = {
    "_class_name": "AutoencoderKL",
    "block_out_channels": [32, 64, 64, 64],
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
    "latent_channels": 4,
    "layers_per_block": 1,
}
_VAE_16 = _VAE | {"latent_channels": 16, "use_quant_conv": False, "shift_factor": 0.06}
_UNET = {
    "_class_name": "UNet2DConditionModel",
    "block_out_channels": [32, 64],
    "cross_attention_dim": 32,
    "attention_head_dim": 4,
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    "layers_per_block": 1,
    "in_channels": 4,
    "sample_size": 8,
}
_UNET_XL = _UNET | {
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 8,
    "projection_class_embeddings_input_dim": 96,
    "cross_attention_dim": 80,
    "use_linear_projection": True,
    "transformer_layers_per_block": [1, 2],
}
_SD3 = {
    "_class_name": "SD3Transformer2DModel",
    "sample_size": 8,
    "in_channels": 16,
    "out_channels": 16,
    "num_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 4,
    "joint_attention_dim": 96,
    "caption_projection_dim": 64,
    "pooled_projection_dim": 80,
    "pos_embed_max_size": 32,
    "qk_norm": "rms_norm",
}
_FLUX = {
    "_class_name": "FluxTransformer2DModel",
    "in_channels": 64,
    "num_layers": 2,
    "num_single_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 4,
    "joint_attention_dim": 96,
    "pooled_projection_dim": 32,
    "guidance_embeds": True,
    "axes_dims_rope": [4, 6, 6],
}

SMALL_DIFFUSION: dict[str, dict[str, Any]] = {
    "sd-1.5": {"denoiser": _UNET, "vae": _VAE, "text_encoders": [_CLIP]},
    "sdxl": {"denoiser": _UNET_XL, "vae": _VAE, "text_encoders": [_CLIP, _LARGER]},
    "sd-3.5-medium": {
        "denoiser": _SD3 | {"dual_attention_layers": [0]},
        "vae": _VAE_16,
        "text_encoders": [_PROJECTING, _LARGER, _T5_ENCODER],
    },
    "flux-dev": {"denoiser": _FLUX, "vae": _VAE_16, "text_encoders": [_CLIP, _T5_ENCODER]},
}
"""By the preset that they are like."""


def small(name: str, *, cached: bool = False, **settings: Any) -> Workload:
    """A small model like a preset."""
    parts = SMALL_DIFFUSION[name]
    if cached:
        parts = {"denoiser": parts["denoiser"]}
    tokens = {"sequence_length": 16} if "T5" in str(SMALL_DIFFUSION[name]) else {}
    config = {"model_type": "diffusers"} | parts
    return Workload("small", config=config, image_size=64, **tokens | settings)
