"""Fine-tuning a text-to-image model of diffusers: a trained denoiser behind frozen encoders.

As in diffusers' own scripts (:mod:`.denoisers`), frozen weights are in the number format of the
forward pass, but for some VAEs, and only the denoiser runs under autocast. Of a quantized denoiser,
all that is not quantized is in fp32 then (peft's ``prepare_model_for_kbit_training``, which those
scripts call); what it reads is in the lower format still.

Adapters have the format of the layers that they adapt, for in diffusers peft leaves it at that; but
fp32 on quantized ones, which have none, and in fp16, where the scripts cast them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import diffusers
import torch
import transformers

from ..core.choices import Precision, Quantization
from ..interface.workload import Workload
from ..models.diffusion import is_cached
from .denoisers import Prompt, family_of
from .output import Output

_LEVELS = 1_000
_FIRST_BETA, _LAST_BETA = 0.00085, 0.012  # "scaled_linear", as Stable Diffusion's scheduler has it

_MIXED = {Precision.BF16_MIXED: torch.bfloat16, Precision.FP16_MIXED: torch.float16}
_FROZEN = _MIXED | {Precision.BF16_TRUE: torch.bfloat16}


class TextToImage(torch.nn.Module):
    """A denoiser with the frozen encoders that prepare what it reads.

    Args:
        denoiser: The model that is trained.
        vae: Encodes images; ``None`` where latents were computed beforehand.
        text_encoders: Encode captions; none where that was done beforehand.
        dtype: The number format of the denoiser's inputs.
        adapters: The number format of adapters added to it.
    """

    signal: torch.Tensor

    def __init__(
        self,
        denoiser: Any,
        vae: Any | None,
        text_encoders: Sequence[torch.nn.Module],
        *,
        dtype: torch.dtype,
        adapters: torch.dtype,
    ) -> None:
        super().__init__()
        self.dtype = dtype
        self._adapters = adapters
        # First, since the first parameter decides the number format of the images of a batch.
        self.vae = vae
        self.text_encoders = torch.nn.ModuleList(text_encoders)
        self.requires_grad_(False)
        self.denoiser = denoiser
        betas = torch.linspace(_FIRST_BETA**0.5, _LAST_BETA**0.5, _LEVELS) ** 2
        self.register_buffer("signal", (1 - betas).cumprod(0), persistent=False)

    @property
    def base_model(self) -> torch.nn.Module:
        """All that is trained, as transformers names it: there is no head."""
        return cast(torch.nn.Module, self.denoiser)

    @property
    def supports_gradient_checkpointing(self) -> bool:
        """As transformers names it."""
        return bool(self.denoiser._supports_gradient_checkpointing)

    def gradient_checkpointing_enable(self, _: Mapping[str, Any]) -> None:
        """Recompute each block in backward; diffusers does so by the non-reentrant variant."""
        self.denoiser.enable_gradient_checkpointing()

    def linear_layers(self) -> list[str]:
        """The names of the denoiser's linear layers, in it."""
        modules = self.denoiser.named_modules()
        return [name for name, module in modules if isinstance(module, torch.nn.Linear)]

    def add_adapter(self, config: Any) -> None:
        """Freeze the denoiser, and add adapters to it.

        Raises:
            ValueError: If it has none of the modules that they are for.
        """
        self.denoiser.requires_grad_(False)
        self.denoiser.add_adapter(config)
        for parameter in self.denoiser.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.to(self._adapters)

    def train(self, mode: bool = True) -> TextToImage:
        """Set the denoiser's mode; frozen encoders never drop out anything."""
        super().train(False)
        self.denoiser.train(mode)
        self.training = mode
        return self

    def forward(self, **inputs: torch.Tensor) -> Output:
        """The loss of one batch.

        Args:
            inputs: ``pixel_values`` (B, 3, H, W) and the tokens (B, S) for each text encoder,
                ``input_ids_1`` and so on; or ``latents`` (B, C, H / 8, W / 8), ``prompt_embeds``
                (B, S, D) and, for denoisers that take them, ``pooled_prompt_embeds`` (B, P).
        """
        with torch.no_grad(), torch.autocast(self.signal.device.type, enabled=False):
            latents = inputs.get("latents")
            if latents is None:
                latents = self._encoded(inputs["pixel_values"])
            latents = latents.to(self.dtype)
            prompt = self._prompt(inputs)
        family = family_of(self.denoiser.config)
        return Output(family.loss(self.denoiser, latents, prompt, self.signal))

    def _encoded(self, pixels: torch.Tensor) -> torch.Tensor:
        vae = cast(Any, self.vae)
        sampled = vae.encode(pixels).latent_dist.sample()
        scaled = (sampled - (vae.config.shift_factor or 0.0)) * vae.config.scaling_factor
        return cast(torch.Tensor, scaled)

    def _prompt(self, inputs: Mapping[str, torch.Tensor]) -> Prompt:
        if not self.text_encoders:
            pooled = inputs.get("pooled_prompt_embeds")
            if pooled is not None:
                pooled = pooled.to(self.dtype)
            return Prompt(inputs["prompt_embeds"].to(self.dtype), pooled)
        ids = [inputs[f"input_ids_{number}"] for number, _ in enumerate(self.text_encoders, 1)]
        return family_of(self.denoiser.config).encode(list(self.text_encoders), ids)


def new_text_to_image(workload: Workload) -> TextToImage:
    """The workload's model with random weights, on the current device.

    In mixed precision, weights that are not trained are in the lower one.
    """
    config = workload.preset.config()
    frozen = _FROZEN.get(workload.precision, torch.float32)
    is_quantized = workload.quantization is not Quantization.NONE
    mixes = workload.precision in _MIXED and (workload.lora_rank is None or is_quantized)
    in_fp32 = is_quantized or workload.precision is Precision.FP16_MIXED
    new = partial(
        TextToImage,
        _of_diffusers(config["denoiser"], torch.float32 if mixes else frozen),
        dtype=frozen,
        adapters=torch.float32 if in_fp32 else frozen,
    )
    if is_cached(config):
        return new(None, [])
    precise = family_of(config["denoiser"]).precise_vae
    vae = _of_diffusers(config["vae"], torch.float32 if precise else frozen)
    return new(vae, [_text_encoder(one, frozen) for one in config["text_encoders"]])


def _of_diffusers(config: Mapping[str, Any], dtype: torch.dtype) -> Any:
    model = getattr(diffusers, config["_class_name"]).from_config(dict(config))
    return torch.nn.Module.to(model, dtype)  # diffusers' own warns of what does not apply


def _text_encoder(config: Mapping[str, Any], dtype: torch.dtype) -> Any:
    encoder = getattr(transformers, config["architectures"][0])
    fields = {name: value for name, value in config.items() if name != "model_type"}
    return encoder(encoder.config_class(**fields)).to(dtype)
