"""The model that is trained, and its task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..core.fields import Described, Group, Interval
from ..models.config import MAX_LABEL_COUNT
from ..models.tasks import Task


@dataclass(frozen=True)
class ModelAndTask:
    """The model that is trained, and its task."""

    model: Annotated[
        str,
        Described(
            "Model",
            "A preset's name or the ID of a model on the Hugging Face Hub (org/name); with a "
            "config, any name for it.",
            Group.MODEL,
        ),
    ]
    task: Annotated[
        Task | None,
        Described(
            "Task",
            "What the model is trained to do. It decides the head and the loss.",
            Group.TASK,
            empty="the model's own",
            chip=lambda task: task.replace("-", " "),
        ),
    ] = None
    label_count: Annotated[
        int | None,
        Interval(ge=1, le=MAX_LABEL_COUNT),
        Described(
            "Labels",
            "Classes of a classifier; one makes it a regression.",
            Group.TASK,
            empty="the model's own",
        ),
    ] = None
