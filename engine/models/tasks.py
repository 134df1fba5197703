"""Tasks that models are trained for, and facts about their samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum


class Kind(StrEnum):
    """Kind of input that a model reads."""

    TEXT = "text"
    IMAGE = "image"
    IMAGE_TEXT = "image-text"
    VIDEO = "video"
    SPEECH = "speech"
    TIME_SERIES = "time-series"
    UNKNOWN = "unknown"


class Task(StrEnum):
    """Task that a model is trained for, which decides its head, its batch and its loss.

    Of the tasks of a model, the first of these is its usual one.
    """

    SPEECH_RECOGNITION = "speech-recognition"
    CTC = "ctc"
    AUDIO_CLASSIFICATION = "audio-classification"
    IMAGE_TEXT_TO_TEXT = "image-text-to-text"
    CONTRASTIVE = "contrastive"
    SEQUENCE_TO_SEQUENCE = "sequence-to-sequence"
    CAUSAL_LANGUAGE_MODELLING = "causal-language-modelling"
    SEQUENCE_CLASSIFICATION = "sequence-classification"
    TOKEN_CLASSIFICATION = "token-classification"  # noqa: S105  # tokens of text
    QUESTION_ANSWERING = "question-answering"
    MULTIPLE_CHOICE = "multiple-choice"
    MASKED_LANGUAGE_MODELLING = "masked-language-modelling"
    PERMUTED_LANGUAGE_MODELLING = "permuted-language-modelling"
    SENTENCE_EMBEDDING = "sentence-embedding"
    REWARD_MODELLING = "reward-modelling"
    IMAGE_CLASSIFICATION = "image-classification"
    OBJECT_DETECTION = "object-detection"
    UNIVERSAL_SEGMENTATION = "universal-segmentation"
    SEMANTIC_SEGMENTATION = "semantic-segmentation"
    DEPTH_ESTIMATION = "depth-estimation"
    MASKED_IMAGE_MODELLING = "masked-image-modelling"
    VIDEO_CLASSIFICATION = "video-classification"
    TEXT_TO_IMAGE = "text-to-image"
    TIME_SERIES_PREDICTION = "time-series-prediction"

    @property
    def facts(self) -> TaskFacts:
        """Facts about its samples."""
        return _FACTS[self]


def spoken(task: Task) -> str:
    """The task in words, for a sentence."""
    return task.value.replace("-", " ")


@dataclass(frozen=True)
class SizeLimits:
    """Default and bounds of one input size, both ends included."""

    default: int
    smallest: int
    largest: int


MAX_SEQUENCE_LENGTH = 4_194_304
MAX_IMAGE_SIZE = 4_096

SIZES = {
    "sequence_length": MAX_SEQUENCE_LENGTH,
    "image_size": MAX_IMAGE_SIZE,
    "image_count": 64,
    "target_count": 500,
    "frame_count": 256,
    "audio_seconds": 600,
}
"""The fields of a workload that say how large a sample is, each for some tasks only, with their
largest value for any model: in tokens, pixels per side, images, objects, frames and seconds."""


@dataclass(frozen=True, kw_only=True)
class TaskFacts:
    """Facts about the samples of a task.

    Attributes:
        kind: Kind of input that the model reads.
        sizes: Default and bounds of each input size, by field of the workload. A model may have
            others: fewer positions, images of its own size.
        label_count: The default number of labels; ``None`` where there are none to count.
        counts: Name of the tokens counted per second; empty unless all that is read is text.
        caches: Whether a decoder can return keys and values in training.
        compares_samples: Whether each sample of a batch is compared with every other.
    """

    kind: Kind
    sizes: Mapping[str, SizeLimits] = field(hash=False)
    label_count: int | None = None
    counts: str = ""
    caches: bool = False
    compares_samples: bool = False


def _text(tokens: int, smallest: int = 1) -> dict[str, SizeLimits]:
    return {"sequence_length": SizeLimits(tokens, smallest, MAX_SEQUENCE_LENGTH)}


def _sound(seconds: int) -> dict[str, SizeLimits]:
    return {"audio_seconds": SizeLimits(seconds, 1, SIZES["audio_seconds"])}


USUAL_IMAGES = SizeLimits(default=224, smallest=32, largest=1_024)
_IMAGES = {"image_size": USUAL_IMAGES}
_PIXELS = {"image_size": replace(USUAL_IMAGES, default=512)}
"""Crops of ADE20K that segmentation is trained on."""
_OBJECTS = {
    "image_size": replace(USUAL_IMAGES, default=640),  # as RT-DETR and YOLO read those of COCO
    "target_count": SizeLimits(7, 1, SIZES["target_count"]),
}

_FACTS = {
    Task.SEQUENCE_CLASSIFICATION: TaskFacts(
        kind=Kind.TEXT,
        sizes=_text(128),
        label_count=2,  # yes or no
        counts="tokens",
    ),
    Task.TOKEN_CLASSIFICATION: TaskFacts(
        kind=Kind.TEXT,
        sizes=_text(128),
        label_count=9,  # the tags of CoNLL-2003
        counts="tokens",
    ),
    Task.QUESTION_ANSWERING: TaskFacts(kind=Kind.TEXT, sizes=_text(384), counts="tokens"),
    Task.MULTIPLE_CHOICE: TaskFacts(
        kind=Kind.TEXT,
        sizes=_text(128),
        label_count=4,  # the endings of SWAG
    ),
    Task.MASKED_LANGUAGE_MODELLING: TaskFacts(kind=Kind.TEXT, sizes=_text(128), counts="tokens"),
    Task.PERMUTED_LANGUAGE_MODELLING: TaskFacts(kind=Kind.TEXT, sizes=_text(128), counts="tokens"),
    # A language model predicts the next token, so there must be one.
    Task.CAUSAL_LANGUAGE_MODELLING: TaskFacts(
        kind=Kind.TEXT, sizes=_text(2_048, smallest=2), counts="tokens", caches=True
    ),
    Task.SEQUENCE_TO_SEQUENCE: TaskFacts(
        kind=Kind.TEXT, sizes=_text(512), counts="source tokens", caches=True
    ),
    Task.SENTENCE_EMBEDDING: TaskFacts(kind=Kind.TEXT, sizes=_text(128), compares_samples=True),
    Task.REWARD_MODELLING: TaskFacts(kind=Kind.TEXT, sizes=_text(1_024)),
    Task.IMAGE_CLASSIFICATION: TaskFacts(
        kind=Kind.IMAGE,
        sizes=_IMAGES,
        label_count=1_000,  # the classes of ImageNet-1k
    ),
    # Photographs of COCO (2017, training) have 7 objects each.
    Task.OBJECT_DETECTION: TaskFacts(
        kind=Kind.IMAGE,
        sizes=_OBJECTS,
        label_count=91,  # the classes of COCO, as numbered there
    ),
    Task.UNIVERSAL_SEGMENTATION: TaskFacts(
        kind=Kind.IMAGE,
        sizes=_OBJECTS,
        label_count=133,  # the classes of COCO's panoptic segmentation
    ),
    Task.SEMANTIC_SEGMENTATION: TaskFacts(
        kind=Kind.IMAGE,
        sizes=_PIXELS,
        label_count=150,  # the classes of ADE20K
    ),
    Task.DEPTH_ESTIMATION: TaskFacts(kind=Kind.IMAGE, sizes=_IMAGES),
    Task.MASKED_IMAGE_MODELLING: TaskFacts(kind=Kind.IMAGE, sizes=_IMAGES),
    Task.VIDEO_CLASSIFICATION: TaskFacts(
        kind=Kind.VIDEO,
        sizes=_IMAGES | {"frame_count": SizeLimits(16, 1, SIZES["frame_count"])},
        label_count=400,  # the classes of Kinetics-400
    ),
    Task.TEXT_TO_IMAGE: TaskFacts(kind=Kind.IMAGE_TEXT, sizes=_IMAGES | _text(77)),
    Task.CONTRASTIVE: TaskFacts(
        kind=Kind.IMAGE_TEXT, sizes=_IMAGES | _text(77), compares_samples=True
    ),
    Task.IMAGE_TEXT_TO_TEXT: TaskFacts(
        kind=Kind.IMAGE_TEXT,
        sizes=_IMAGES | _text(512) | {"image_count": SizeLimits(1, 1, SIZES["image_count"])},
        caches=True,
    ),
    Task.SPEECH_RECOGNITION: TaskFacts(
        kind=Kind.SPEECH,
        sizes=_text(128) | _sound(30),  # what Whisper's extractor fills up to
        caches=True,
    ),
    # Utterances of LibriSpeech last 12 s in the mean, 35 s at most.
    Task.CTC: TaskFacts(kind=Kind.SPEECH, sizes=_text(128) | _sound(15)),
    Task.AUDIO_CLASSIFICATION: TaskFacts(
        kind=Kind.SPEECH,
        sizes=_sound(10),  # a clip of AudioSet
        label_count=527,  # the classes of AudioSet
    ),
    # The config decides how long its series are.
    Task.TIME_SERIES_PREDICTION: TaskFacts(kind=Kind.TIME_SERIES, sizes={}),
}
