"""Text-to-image models of diffusers: what their configs say without building them.

One config has those of a model's parts, as a diffusers repository has them in its folders::

    {"model_type": "diffusers",
     "denoiser": unet/config.json or transformer/config.json,
     "vae": vae/config.json,
     "text_encoders": [text_encoder/config.json, text_encoder_2/config.json, ...]}

Without ``vae`` and ``text_encoders``, latents and encoded captions are computed beforehand; the
denoiser's config alone says the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.errors import InvalidInput
from ..core.parsing import shown
from .tasks import SizeLimits

MODEL_TYPE = "diffusers"

CLIP_LENGTH = 77
"""Tokens that CLIP's text encoders read, whatever the caption."""

_VAE = "AutoencoderKL"
_CLIP = ("CLIPTextModel", "CLIPTextModelWithProjection")
_T5 = ("T5EncoderModel",)


@dataclass(frozen=True, kw_only=True)
class Denoiser:
    """Known facts about the denoisers of one kind.

    Attributes:
        text_encoders: The classes that each of its text encoders may have.
        caption_length: Tokens of a caption that its T5 reads by default; CLIP's without a T5.
    """

    text_encoders: tuple[tuple[str, ...], ...]
    caption_length: int = CLIP_LENGTH


# Lengths of captions are those of --max_sequence_length in diffusers' training scripts.
_UNET_XL = Denoiser(text_encoders=(_CLIP, _CLIP))
_DENOISERS = {
    "UNet2DConditionModel": Denoiser(text_encoders=(_CLIP,)),
    "SD3Transformer2DModel": Denoiser(text_encoders=(_CLIP, _CLIP, _T5)),
    "FluxTransformer2DModel": Denoiser(text_encoders=(_CLIP, _T5), caption_length=512),
}
_OTHER_CONDITIONS = (
    "class_embed_type",
    "num_class_embeds",
    "encoder_hid_dim_type",
    "encoder_hid_dim",
)
"""Settings by which a UNet of diffusers reads more than an encoded caption, or another one."""
_MAX_CAPTION_LENGTH = 512
_SCRIPT = "enter your training script in place of the config"
_USUAL_SIDE = 1_024
_VAE_FACTOR = 8

IMAGE_MULTIPLE = 16
"""Divisor of the side of every image: eight pixels a latent, two latents a token."""


def as_config(given: Mapping[str, Any]) -> dict[str, Any]:
    """A denoiser's own config, as its folder has it, as that of a model without encoders."""
    if "_class_name" not in given or "model_type" in given:
        return dict(given)
    return {"model_type": MODEL_TYPE, "denoiser": dict(given)}


def is_xl(denoiser: Mapping[str, Any]) -> bool:
    """Whether a UNet reads the size of images and a vector for each caption, as SDXL's does."""
    return denoiser.get("addition_embed_type") == "text_time"


def is_cached(config: Mapping[str, Any]) -> bool:
    """Whether latents and encoded captions are computed beforehand."""
    return not config.get("vae")


def _check(config: Mapping[str, Any]) -> None:
    """Check that a config has the parts of a model that can be trained."""
    known = _known(config)
    vae, encoders = config.get("vae"), config.get("text_encoders")
    if not vae and not encoders:
        return
    if not isinstance(vae, dict) or vae.get("_class_name") != _VAE:
        raise _wrong(f"vae is not the config of an {_VAE}")
    if not isinstance(encoders, list) or len(encoders) != len(known.text_encoders):
        raise _wrong(f"text_encoders is not a list of {len(known.text_encoders)} configs")
    for encoder, allowed in zip(encoders, known.text_encoders, strict=True):
        classes = encoder.get("architectures") if isinstance(encoder, dict) else None
        if not isinstance(classes, list) or len(classes) != 1 or classes[0] not in allowed:
            raise _wrong(f"text_encoders: architectures is not one of {', '.join(allowed)}")


def sizes(config: Mapping[str, Any]) -> dict[str, SizeLimits]:
    """The tokens of a caption and the side of an image, in pixels.

    CLIP always reads ``CLIP_LENGTH`` tokens, T5 as many as there are.

    Raises:
        InvalidInput: If a part of the model is missing or not known, for the field ``config``.
    """
    _check(config)
    known = _known(config)
    tokens = SizeLimits(CLIP_LENGTH, CLIP_LENGTH, CLIP_LENGTH)
    if _T5 in known.text_encoders:
        tokens = SizeLimits(known.caption_length, 1, _MAX_CAPTION_LENGTH)
    own = config["denoiser"].get("sample_size")
    side = own * _VAE_FACTOR if isinstance(own, int) else _USUAL_SIDE
    return {
        "sequence_length": tokens,
        "image_size": SizeLimits(side, min(side, 64), max(side, 2_048)),
    }


def _known(config: Mapping[str, Any]) -> Denoiser:
    denoiser = config.get("denoiser")
    name = denoiser.get("_class_name") if isinstance(denoiser, dict) else None
    if name not in _DENOISERS:
        raise _wrong(
            f"denoiser: the class {shown(name)} is not supported; choose one of "
            f"{', '.join(_DENOISERS)}, or {_SCRIPT}"
        )
    _check_conditions(config["denoiser"])
    return _UNET_XL if is_xl(config["denoiser"]) else _DENOISERS[str(name)]


def _check_conditions(denoiser: Mapping[str, Any]) -> None:
    """Refuse a UNet that is told what to draw by something other than captions, as for audio."""
    other = [name for name in _OTHER_CONDITIONS if denoiser.get(name) is not None]
    if denoiser.get("addition_embed_type") not in (None, "text_time"):
        other.append("addition_embed_type")
    if isinstance(denoiser.get("cross_attention_dim"), list):
        other.append("cross_attention_dim")
    for name in other:
        raise _wrong(
            f"denoiser: {name} is {shown(denoiser[name])}, so that it reads other than one encoded "
            f"caption, which is not predicted; {_SCRIPT}"
        )


def _wrong(message: str) -> InvalidInput:
    return InvalidInput({"config": message})
