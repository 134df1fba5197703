"""What is known about a model without building it: kind, tasks, input sizes, architecture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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


def spoken(task: Task) -> str:
    """The task in words, for a sentence."""
    return task.value.replace("-", " ")


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

    def why_not(self, task: Task) -> str:
        """Why it cannot be trained for a task that transformers has a class for; empty if so."""
        return ""

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
        refused: Why it cannot be trained for some tasks that transformers has a class for.
    """

    given: Mapping[str, Any]
    refused: Mapping[Task, str] = field(default_factory=dict, hash=False)

    def why_not(self, task: Task) -> str:
        return self.refused.get(task, "")

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
