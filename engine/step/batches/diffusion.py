"""Batches of images with captions, for text-to-image models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ...interface.workload import Workload
from ...models.diffusion import CLIP_LENGTH, is_cached
from ..denoisers import family_of
from .batch import Batch

_VAE_FACTOR = 8


def captioned(workload: Workload, batch_size: int) -> Batch:
    """Images with a caption each, for each text encoder; encoded, if that is done beforehand."""
    config = workload.preset.config()
    if is_cached(config):
        return _encoded(workload, config["denoiser"], batch_size)
    side = workload.image_size or 0
    tokens = {
        f"input_ids_{number}": _tokens(workload, encoder, batch_size)
        for number, encoder in enumerate(config["text_encoders"], 1)
    }
    return {"pixel_values": torch.rand(batch_size, 3, side, side)} | tokens


def _tokens(workload: Workload, encoder: Mapping[str, Any], count: int) -> torch.Tensor:
    """Plain tokens of shape (count, S), padded to the length as the scripts do, without a mask."""
    length = CLIP_LENGTH if encoder["model_type"].startswith("clip") else workload.sequence_length
    return torch.ones(count, length or 0, dtype=torch.int64)


def _encoded(workload: Workload, denoiser: Mapping[str, Any], count: int) -> Batch:
    channels = denoiser["in_channels"]
    if denoiser["_class_name"] == "FluxTransformer2DModel":
        channels //= 4  # of which each token has two by two
    side = (workload.image_size or 0) // _VAE_FACTOR
    shape, pooled = family_of(denoiser).shapes(denoiser, workload.sequence_length or 0)
    batch = {
        "latents": torch.rand(count, channels, side, side),
        "prompt_embeds": torch.rand(count, *shape),
    }
    return batch | ({"pooled_prompt_embeds": torch.rand(count, pooled)} if pooled else {})
