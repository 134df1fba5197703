"""What is known of a model without building it: its kind, its tasks, the sizes it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What a model reads; it decides which input sizes it has."""

    TEXT = "text"
    IMAGE = "image"
    IMAGE_TEXT = "image-text"
    SPEECH = "speech"
    UNKNOWN = "unknown"


class Task(StrEnum):
    """What a model is trained to do; it decides the head, the batch and the loss."""

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
"""Labels of the classifiers: a yes or no, the tags of CoNLL-2003, the classes of ImageNet-1k."""


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
    """A model that can be trained, with the task it is mostly trained for.

    Attributes:
        name: What a workload calls it.
        hub_id: Its name on the Hugging Face hub; empty for a config from elsewhere.
        task: The task taken where none is named; one of ``tasks``.
        tasks: All that it can be trained for.
        sequence_length: Limits in tokens, for what reads or writes text; the largest is the number
            of positions.
        image_size: Limits in pixels per side, for what reads images.
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

    def config(self) -> dict[str, Any]:
        """The fields of the model's ``config.json``, as a new dictionary.

        Raises:
            LookupError: It has not been fetched from the hub yet.
        """
        raise LookupError(
            f"the config of {self.name} is not here yet; see engine.models.hub.resolve"
        )

    def label_count_for(self, task: Task) -> int | None:
        """The labels a classifier has where none are named; ``None`` for other tasks."""
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
        """The given fields, as a new dictionary."""
        return dict(self.given)


def hub_model(hub_id: str) -> Model:
    """A model of the hub before its config is there; ``engine.models.hub.resolve`` fetches that.

    Any task and any size may be named for it so far.
    """
    return Model(
        name=hub_id,
        display_name=hub_id,
        hub_id=hub_id,
        kind=Kind.UNKNOWN,
        task=Task.SEQUENCE_CLASSIFICATION,
        tasks=tuple(Task),
        description="A model of the Hugging Face hub; only its config is fetched.",
        sequence_length=SizeLimits(LARGEST_SEQUENCE_LENGTH, 1, LARGEST_SEQUENCE_LENGTH),
        image_size=SizeLimits(LARGEST_IMAGE_SIZE, 1, LARGEST_IMAGE_SIZE),
    )
