"""Model presets: each carries its Hugging Face config, so that nothing is downloaded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CONFIGS = Path(__file__).parent / "configs"


@dataclass(frozen=True)
class SizeLimits:
    """Default and bounds of one input size (tokens, or pixels per side), both ends included."""

    default: int
    smallest: int
    largest: int


@dataclass(frozen=True)
class Preset:
    """A model people train, with the task they mostly train it for.

    Attributes:
        name: The short name used on the command line and in the API.
        hub_id: Where the config comes from on the Hugging Face hub.
        kind: ``text`` or ``image``.
        task: What is trained (one of the keys of ``engine.training.TASKS``).
        sequence_length: Limits for text models; the largest is the number of positions.
        image_size: Limits for image models.
        image_processor: The transformers class that prepares an image for it, on Pillow.
    """

    name: str
    display_name: str
    hub_id: str
    kind: str
    task: str
    description: str
    sequence_length: SizeLimits | None = None
    image_size: SizeLimits | None = None
    image_processor: str = ""

    def config(self) -> dict[str, Any]:
        """The model's ``config.json``, as the hub has it."""
        loaded: dict[str, Any] = json.loads((_CONFIGS / f"{self.name}.json").read_text())
        return loaded


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="bert",
            display_name="BERT base",
            hub_id="google-bert/bert-base-uncased",
            kind="text",
            task="sequence-classification",
            description="Encoder, 110 M parameters, trained here as a classifier of 2 labels.",
            sequence_length=SizeLimits(default=128, smallest=1, largest=512),
        ),
        Preset(
            name="gpt2",
            display_name="GPT-2",
            hub_id="openai-community/gpt2",
            kind="text",
            task="causal-language-modelling",
            description="Decoder, 124 M parameters, trained here to predict the next token.",
            sequence_length=SizeLimits(default=1024, smallest=2, largest=1024),
        ),
        Preset(
            name="resnet",
            display_name="ResNet-50",
            hub_id="microsoft/resnet-50",
            kind="image",
            task="image-classification",
            description="Convolutional network, 26 M parameters, trained here on 1,000 labels.",
            image_size=SizeLimits(default=224, smallest=32, largest=1024),
            image_processor="ConvNextImageProcessorPil",
        ),
    )
}
