"""What is known about a model without building it: kind, tasks, input sizes, architecture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What a model reads, which decides its input sizes."""

    TEXT = "text"
    IMAGE = "image"
    IMAGE_TEXT = "image-text"
    SPEECH = "speech"
    UNKNOWN = "unknown"


class Task(StrEnum):
    """What a model is trained to do, which decides its head, its batch and its loss."""

    SEQUENCE_CLASSIFICATION = "sequence-classification"
    TOKEN_CLASSIFICATION = "token-classification"  # noqa: S105  # tokens of text
    MASKED_LANGUAGE_MODELLING = "masked-language-modelling"
    CAUSAL_LANGUAGE_MODELLING = "causal-language-modelling"
    SEQUENCE_TO_SEQUENCE = "sequence-to-sequence"
    IMAGE_CLASSIFICATION = "image-classification"
    CONTRASTIVE = "contrastive"
    SPEECH_RECOGNITION = "speech-recognition"


DEFAULT_LABEL_COUNTS = {
    Task.SEQUENCE_CLASSIFICATION: 2,
    Task.TOKEN_CLASSIFICATION: 9,
    Task.IMAGE_CLASSIFICATION: 1000,
}
"""Labels of classifiers: yes or no, the tags of CoNLL-2003, the classes of ImageNet-1k."""


_CACHING = {
    Task.CAUSAL_LANGUAGE_MODELLING,
    Task.SEQUENCE_TO_SEQUENCE,
    Task.SPEECH_RECOGNITION,
}

LARGEST_SEQUENCE_LENGTH = 131_072
LARGEST_IMAGE_SIZE = 4_096
"""Bounds of the input sizes of every model, in tokens and in pixels per side."""


@dataclass(frozen=True)
class SizeLimits:
    """Default and bounds of one input size (tokens, or pixels per side), both ends included."""

    default: int
    smallest: int
    largest: int


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model that can be trained.

    Attributes:
        name: Its name in a workload.
        hub_id: Its name on the Hugging Face hub; empty for a config from elsewhere.
        task: The default task; one of ``tasks``.
        tasks: All that it can be trained for.
        sequence_length: In tokens, for models of text; the largest is the number of positions.
        image_size: In pixels per side, for models of images.
        image_processor: The transformers class that prepares an image for it, on Pillow.
        label_count: Labels of its own head, where that is the default for its task.
    """

    name: str
    display_name: str
    hub_id: str
    kind: Kind
    task: Task
    tasks: tuple[Task, ...]
    description: str
    sequence_length: SizeLimits | None = None
    image_size: SizeLimits | None = None
    image_processor: str = ""
    label_count: int | None = None

    @property
    def caches(self) -> bool:
        """Whether it has a decoder, which can return keys and values in training."""
        return bool(_CACHING & set(self.tasks))

    def config(self) -> dict[str, Any]:
        """The fields of the model's ``config.json``, as a new dictionary.

        Raises:
            LookupError: It has not been fetched from the hub yet.
        """
        raise LookupError(f"the config of {self.name} was not fetched; see engine.hub.resolve")

    def label_count_for(self, task: Task) -> int | None:
        """The default number of labels of a classifier; ``None`` for other tasks."""
        if task is self.task and self.label_count is not None:
            return self.label_count
        return DEFAULT_LABEL_COUNTS.get(task)


@dataclass(frozen=True, kw_only=True)
class GivenModel(Model):
    """A model whose config came from a file or from the hub.

    Attributes:
        given: The fields of its ``config.json``, checked.
    """

    given: Mapping[str, Any]

    def config(self) -> dict[str, Any]:
        return dict(self.given)


def hub_model(hub_id: str) -> Model:
    """A hub model whose config :func:`engine.hub.resolve` has not fetched yet.

    Until then any task and any size is valid.
    """
    return Model(
        name=hub_id,
        display_name=hub_id,
        hub_id=hub_id,
        kind=Kind.UNKNOWN,
        task=Task.SEQUENCE_CLASSIFICATION,
        tasks=tuple(Task),
        description="Model on the Hugging Face Hub. Only its config is fetched.",
        sequence_length=SizeLimits(LARGEST_SEQUENCE_LENGTH, 1, LARGEST_SEQUENCE_LENGTH),
        image_size=SizeLimits(LARGEST_IMAGE_SIZE, 1, LARGEST_IMAGE_SIZE),
    )


@dataclass(frozen=True)
class Architecture:
    """How the models of one ``model_type`` are trained.

    Attributes:
        tasks: What they can be trained for, the usual one first.
        positions: The config field with the number of positions; empty for no limit.
        first_position: Positions before the first token's (padding, in RoBERTa and its kin).
        learned_positions: Whether positions have parameters, so that their number must be known.
        image_processor: The transformers class that prepares an image, on Pillow.
        windows: Whether it attends within windows, which limits how small images can be: the last
            stage must still fill one.
        needs: Config fields without which no batch can be made.
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

# Each was traced through a whole training step. Others are refused rather than guessed: their steps
# may depend on the data, as a mixture of experts does, which no trace shows.
ARCHITECTURES: dict[str, Architecture] = {
    **dict.fromkeys(("albert", "bert", "deberta", "deberta-v2", "distilbert", "electra"), _ENCODER),
    **dict.fromkeys(("camembert", "mpnet", "roberta", "xlm-roberta"), _OFFSET_ENCODER),
    **dict.fromkeys(
        ("falcon", "gemma", "gemma2", "gpt_neox", "llama", "mistral", "phi", "phi3"), _DECODER
    ),
    **dict.fromkeys(("qwen2", "qwen3", "smollm3", "stablelm", "starcoder2"), _DECODER),
    **dict.fromkeys(("gemma3_text", "olmo", "olmo2"), replace(_DECODER, tasks=_UNTAGGED)),
    "bloom": replace(_DECODER, positions=""),
    "gpt2": replace(_LEARNED_DECODER, positions="n_positions"),
    "gpt_bigcode": replace(_LEARNED_DECODER, positions="n_positions"),
    "gpt_neo": _LEARNED_DECODER,
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
