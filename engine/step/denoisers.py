"""The denoisers of diffusers: what they read, and what they learn to predict.

Each is trained as diffusers' own script for it does (diffusers 0.42): ``train_text_to_image.py``
and ``train_text_to_image_lora_sdxl.py`` in examples/text_to_image, ``train_dreambooth_lora_sd3.py``
and ``train_dreambooth_lora_flux.py`` in examples/dreambooth, all with their default options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import mse_loss

from ..models.diffusion import CLIP_LENGTH, is_xl

_FLUX_GUIDANCE = 3.5
_TIME_IDS = 6  # SDXL: the original size of the image, where it was cropped, and its size


@dataclass(frozen=True)
class Prompt:
    """Encoded captions.

    Attributes:
        tokens: Encodings that the denoiser attends to, of shape (B, S, D).
        pooled: One vector for each caption, (B, P); ``None`` for denoisers that take none.
    """

    tokens: torch.Tensor
    pooled: torch.Tensor | None = None


Encode = Callable[[Sequence[Any], Sequence[torch.Tensor]], Prompt]
"""The prompt by the text encoders and the tokens for each, (B, S)."""

Loss = Callable[[Any, torch.Tensor, Prompt, torch.Tensor], torch.Tensor]
"""The loss by the denoiser, latents (B, C, H, W), encoded captions, and how much of the signal each
of the levels of noise leaves, (levels,)."""

Shapes = Callable[[Mapping[str, Any], int], tuple[tuple[int, int], int]]
"""S and D, and P or 0, of a prompt, by a denoiser's config and the length of its captions."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Training of the denoisers of one kind.

    Attributes:
        precise_vae: Whether the VAE runs in fp32, where everything else that is frozen does not.
    """

    encode: Encode
    loss: Loss
    shapes: Shapes
    precise_vae: bool


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a denoiser, by its config."""
    return _UNET_XL if is_xl(config) else _FAMILIES[config["_class_name"]]


# Captions


def _encode_for_unet(encoders: Sequence[Any], ids: Sequence[torch.Tensor]) -> Prompt:
    return Prompt(encoders[0](ids[0], return_dict=False)[0])


def _encode_for_unet_xl(encoders: Sequence[Any], ids: Sequence[torch.Tensor]) -> Prompt:
    pooled, tokens = None, []
    for encoder, read in zip(encoders, ids, strict=True):
        encoded = encoder(read, output_hidden_states=True, return_dict=False)
        pooled = encoded[0]  # of the last one
        tokens.append(encoded[-1][-2])
    return Prompt(torch.cat(tokens, dim=-1), pooled)


def _encode_for_sd3(encoders: Sequence[Any], ids: Sequence[torch.Tensor]) -> Prompt:
    *clips, t5 = encoders
    pooled, tokens = [], []
    for clip, read in zip(clips, ids, strict=False):
        encoded = clip(read, output_hidden_states=True)
        pooled.append(encoded[0])
        tokens.append(encoded.hidden_states[-2])
    by_clip = torch.cat(tokens, dim=-1)
    by_t5 = t5(ids[-1])[0]
    by_clip = torch.nn.functional.pad(by_clip, (0, by_t5.shape[-1] - by_clip.shape[-1]))
    return Prompt(torch.cat([by_clip, by_t5], dim=-2), torch.cat(pooled, dim=-1))


def _encode_for_flux(encoders: Sequence[Any], ids: Sequence[torch.Tensor]) -> Prompt:
    clip, t5 = encoders
    pooled = clip(ids[0], output_hidden_states=False).pooler_output
    return Prompt(t5(ids[1], output_hidden_states=False)[0], pooled)


# Losses


def _unet_loss(
    denoiser: Any, latents: torch.Tensor, prompt: Prompt, signal: torch.Tensor
) -> torch.Tensor:
    noise = torch.randn_like(latents)
    levels = torch.randint(0, len(signal), (len(latents),), device=latents.device)
    added = None
    if prompt.pooled is not None:
        time_ids = latents.new_zeros(len(latents), _TIME_IDS)
        added = {"time_ids": time_ids, "text_embeds": prompt.pooled}
    predicted = denoiser(
        _with_noise(latents, noise, signal[levels].to(latents.dtype)),
        levels,
        prompt.tokens,
        added_cond_kwargs=added,
        return_dict=False,
    )[0]
    return mse_loss(predicted.float(), noise.float())


def _with_noise(latents: torch.Tensor, noise: torch.Tensor, signal: torch.Tensor) -> torch.Tensor:
    """Latents of which a share of the signal is left in each, (B,); ``DDPMScheduler.add_noise``."""
    signal = signal.view(-1, 1, 1, 1)
    return signal**0.5 * latents + (1 - signal) ** 0.5 * noise


def _sd3_loss(
    denoiser: Any, latents: torch.Tensor, prompt: Prompt, signal: torch.Tensor
) -> torch.Tensor:
    noise = torch.randn_like(latents)
    sigmas = _sigmas(latents)
    noisy = (1.0 - sigmas) * latents + sigmas * noise
    predicted = denoiser(
        hidden_states=noisy,
        timestep=sigmas.flatten() * len(signal),
        encoder_hidden_states=prompt.tokens,
        pooled_projections=prompt.pooled,
        return_dict=False,
    )[0]
    return _flow_loss(predicted * (-sigmas) + noisy, latents, sigmas)


def _flux_loss(
    denoiser: Any, latents: torch.Tensor, prompt: Prompt, signal: torch.Tensor
) -> torch.Tensor:
    count, channels, height, width = latents.shape
    noise = torch.randn_like(latents)
    sigmas = _sigmas(latents)
    noisy = (1.0 - sigmas) * latents + sigmas * noise
    # Each patch of two by two latents is a token.
    patches = noisy.view(count, channels, height // 2, 2, width // 2, 2)
    tokens = patches.permute(0, 2, 4, 1, 3, 5).reshape(count, -1, channels * 4)
    guidance = None
    if denoiser.config.guidance_embeds:
        guidance = torch.full((1,), _FLUX_GUIDANCE, device=latents.device).expand(count)
    predicted = denoiser(
        hidden_states=tokens,
        timestep=sigmas.flatten(),
        guidance=guidance,
        pooled_projections=prompt.pooled,
        encoder_hidden_states=prompt.tokens,
        txt_ids=latents.new_zeros(prompt.tokens.shape[1], 3),
        img_ids=latents.new_zeros(height // 2 * (width // 2), 3),
        return_dict=False,
    )[0]
    patches = predicted.view(count, height // 2, width // 2, channels, 2, 2)
    predicted = patches.permute(0, 3, 1, 4, 2, 5).reshape(latents.shape)
    return _flow_loss(predicted, noise - latents, sigmas)


def _sigmas(latents: torch.Tensor) -> torch.Tensor:
    """The noise in each sample, between 0 and 1: (B, 1, 1, 1)."""
    drawn = torch.randn(len(latents), device=latents.device).sigmoid()
    return drawn.to(latents.dtype).view(-1, 1, 1, 1)


def _flow_loss(predicted: torch.Tensor, target: torch.Tensor, sigmas: torch.Tensor) -> torch.Tensor:
    weights = torch.ones_like(sigmas)
    squares = weights.float() * (predicted.float() - target.float()) ** 2
    return squares.reshape(len(target), -1).mean(1).mean()


# What captions become, for a batch that has them encoded already


def _shapes_for_unet(config: Mapping[str, Any], length: int) -> tuple[tuple[int, int], int]:
    return (length, config["cross_attention_dim"]), 0


def _shapes_for_unet_xl(config: Mapping[str, Any], length: int) -> tuple[tuple[int, int], int]:
    times = _TIME_IDS * config["addition_time_embed_dim"]
    pooled = config["projection_class_embeddings_input_dim"] - times
    return (length, config["cross_attention_dim"]), pooled


def _shapes_for_sd3(config: Mapping[str, Any], length: int) -> tuple[tuple[int, int], int]:
    return (CLIP_LENGTH + length, config["joint_attention_dim"]), config["pooled_projection_dim"]


def _shapes_for_flux(config: Mapping[str, Any], length: int) -> tuple[tuple[int, int], int]:
    return (length, config["joint_attention_dim"]), config["pooled_projection_dim"]


_UNET_XL = Family(
    encode=_encode_for_unet_xl,
    loss=_unet_loss,
    shapes=_shapes_for_unet_xl,
    precise_vae=True,
)
_FAMILIES = {
    "UNet2DConditionModel": Family(
        encode=_encode_for_unet,
        loss=_unet_loss,
        shapes=_shapes_for_unet,
        precise_vae=False,
    ),
    "SD3Transformer2DModel": Family(
        encode=_encode_for_sd3,
        loss=_sd3_loss,
        shapes=_shapes_for_sd3,
        precise_vae=True,
    ),
    "FluxTransformer2DModel": Family(
        encode=_encode_for_flux,
        loss=_flux_loss,
        shapes=_shapes_for_flux,
        precise_vae=False,
    ),
}
