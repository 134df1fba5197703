"""The architectures that can be trained here, by the ``model_type`` of their ``config.json``.

Each of them was traced through a whole training step. What is not listed is refused rather than
guessed: its step may depend on the data (a mixture of experts, for example), which no trace shows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.models.kinds import Kind, Task


@dataclass(frozen=True)
class Architecture:
    """How the models of one ``model_type`` are trained.

    Attributes:
        tasks: What they can be trained for, the usual one first.
        positions: The config's field with the number of positions; empty if there is no such limit.
        first_position: Positions that stand before the first token's (padding, in RoBERTa's line).
        learned_positions: Whether each position has a parameter of its own, so that their number
            must be known.
        image_processor: The transformers class that prepares an image, on Pillow.
        windows: Whether it attends within windows, each of which the image has to fill even where
            the last stage has made it small.
        needs: Fields without which no batch can be made for it.
    """

    kind: Kind
    tasks: tuple[Task, ...]
    positions: str = ""
    first_position: int = 0
    learned_positions: bool = False
    image_processor: str = ""
    windows: bool = False
    needs: tuple[str, ...] = ()


_ENCODER = Architecture(
    kind=Kind.TEXT,
    tasks=(
        Task.SEQUENCE_CLASSIFICATION,
        Task.TOKEN_CLASSIFICATION,
        Task.MASKED_LANGUAGE_MODELLING,
    ),
    positions="max_position_embeddings",
    learned_positions=True,
    needs=("vocab_size",),
)
_OFFSET_ENCODER = replace(_ENCODER, first_position=2)
_DECODER = Architecture(
    kind=Kind.TEXT,
    tasks=(
        Task.CAUSAL_LANGUAGE_MODELLING,
        Task.SEQUENCE_CLASSIFICATION,
        Task.TOKEN_CLASSIFICATION,
    ),
    positions="max_position_embeddings",
    needs=("vocab_size",),
)
_LEARNED_DECODER = replace(_DECODER, learned_positions=True)
_UNTAGGED = (Task.CAUSAL_LANGUAGE_MODELLING, Task.SEQUENCE_CLASSIFICATION)
_TRANSLATOR = Architecture(
    kind=Kind.TEXT,
    tasks=(Task.SEQUENCE_TO_SEQUENCE,),
    positions="max_position_embeddings",
    learned_positions=True,
    needs=("vocab_size",),
)
_IMAGES = Architecture(
    kind=Kind.IMAGE,
    tasks=(Task.IMAGE_CLASSIFICATION,),
    image_processor="ViTImageProcessorPil",
)
_CONVOLUTIONS = replace(_IMAGES, image_processor="ConvNextImageProcessorPil")
_PAIRS = Architecture(
    kind=Kind.IMAGE_TEXT,
    tasks=(Task.CONTRASTIVE,),
    positions="max_position_embeddings",
    learned_positions=True,
    image_processor="CLIPImageProcessorPil",
    needs=("vocab_size",),
)
_SPEECH = Architecture(
    kind=Kind.SPEECH,
    tasks=(Task.SPEECH_RECOGNITION,),
    positions="max_target_positions",
    learned_positions=True,
    needs=("vocab_size", "num_mel_bins", "max_source_positions"),
)

ARCHITECTURES: dict[str, Architecture] = {
    **dict.fromkeys(("albert", "bert", "deberta", "deberta-v2", "distilbert", "electra"), _ENCODER),
    **dict.fromkeys(("camembert", "mpnet", "roberta", "xlm-roberta"), _OFFSET_ENCODER),
    **dict.fromkeys(
        [
            "falcon",
            "gemma",
            "gemma2",
            "gpt_neox",
            "llama",
            "mistral",
            "phi",
            "phi3",
            "qwen2",
            "qwen3",
            "smollm3",
            "stablelm",
            "starcoder2",
        ],
        _DECODER,
    ),
    **dict.fromkeys(("gemma3_text", "olmo", "olmo2"), replace(_DECODER, tasks=_UNTAGGED)),
    "bloom": replace(_DECODER, positions=""),
    "gpt2": replace(_LEARNED_DECODER, positions="n_positions"),
    "gpt_bigcode": replace(_LEARNED_DECODER, positions="n_positions"),
    "granite": replace(_DECODER, tasks=(Task.CAUSAL_LANGUAGE_MODELLING,)),
    "gptj": replace(_DECODER, positions="n_positions", tasks=_UNTAGGED),
    "opt": replace(_LEARNED_DECODER, tasks=_UNTAGGED),
    **dict.fromkeys(("bart", "mbart"), _TRANSLATOR),
    **dict.fromkeys(
        ("mt5", "t5", "umt5"), replace(_TRANSLATOR, positions="", learned_positions=False)
    ),
    **dict.fromkeys(("beit", "deit", "dinov2", "swinv2", "vit", "vit_msn"), _IMAGES),
    "swin": replace(_IMAGES, windows=True),
    **dict.fromkeys(
        ("convnext", "convnextv2", "mobilenet_v1", "mobilenet_v2", "mobilevit", "regnet", "resnet"),
        _CONVOLUTIONS,
    ),
    "clip": _PAIRS,
    "siglip": replace(_PAIRS, image_processor="SiglipImageProcessorPil"),
    "whisper": _SPEECH,
}
