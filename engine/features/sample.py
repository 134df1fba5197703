"""Size of a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core.fields import Described, Group, Interval
from ..models.tasks import MAX_IMAGE_SIZE, MAX_SEQUENCE_LENGTH, SIZES


@dataclass(frozen=True, kw_only=True)
class SampleSizes:
    """Size of a sample."""

    sequence_length: Annotated[
        int | None,
        Interval(ge=1, le=MAX_SEQUENCE_LENGTH),
        Described(
            "Sequence length",
            "Tokens per sample, for a model that reads or writes text.",
            Group.TRAINING,
            unit="tokens",
            empty="the model's own",
            metavar="TOKENS",
            chip="{:,} tokens",
        ),
    ] = None
    image_size: Annotated[
        int | None,
        Interval(ge=1, le=MAX_IMAGE_SIZE),
        Described(
            "Image size",
            "Pixels per side, for a model that reads images.",
            Group.TRAINING,
            unit="pixels per side",
            empty="the model's own",
            metavar="PIXELS",
            chip="{:,} px",
        ),
    ] = None
    image_count: Annotated[
        int | None,
        Interval(ge=1, le=SIZES["image_count"]),
        Described(
            "Images",
            "Images per sample, for a model that writes about images. They take tokens of their "
            "own, besides those of the text.",
            Group.TRAINING,
            unit="images per sample",
            empty="1",
            metavar="IMAGES",
            chip=lambda count: "1 image" if count == 1 else f"{count} images",
        ),
    ] = None
    target_count: Annotated[
        int | None,
        Interval(ge=1, le=SIZES["target_count"]),
        Described(
            "Objects",
            "Objects or segments per image, for detection and segmentation.",
            Group.TRAINING,
            unit="objects per image",
            empty="7, as in COCO",
            metavar="OBJECTS",
            chip=lambda count: "1 object" if count == 1 else f"{count} objects",
        ),
    ] = None
    frame_count: Annotated[
        int | None,
        Interval(ge=1, le=SIZES["frame_count"]),
        Described(
            "Frames",
            "Frames per sample, for a model that reads videos.",
            Group.TRAINING,
            unit="frames per sample",
            empty="the model's own",
            metavar="FRAMES",
            chip=lambda count: "1 frame" if count == 1 else f"{count} frames",
        ),
    ] = None
    audio_seconds: Annotated[
        int | None,
        Interval(ge=1, le=SIZES["audio_seconds"]),
        Described(
            "Audio length",
            "Seconds of sound per sample, for a model that listens. Whisper's extractor fills up "
            "to 30.",
            Group.TRAINING,
            unit="seconds per sample",
            empty="the task's own",
            metavar="SECONDS",
            chip="{:,} s of sound",
        ),
    ] = None
