"""Facts about a model that are known without building it: its tasks and its input sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from .tasks import SIZES, Kind, SizeLimits, Task

_MODULES = {
    "timm": ("timm", "torchvision"),
    "diffusers": ("diffusers",),
    "torchvision": ("torchvision",),
}
"""Modules that each optional package needs."""

_EXPERTS = re.compile(r"(num|n|moe_num)_(local_|routed_)?experts")
"""Names of the number of experts in configs of mixtures."""


def missing_modules(*packages: str) -> list[str]:
    """Missing modules of optional packages; nothing is imported to see."""
    names = dict.fromkeys(name for package in packages for name in _MODULES.get(package, ()))
    return [name for name in names if find_spec(name) is None]


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model that can be trained.

    Attributes:
        name: Its name in a workload.
        hub_id: Its name on the Hugging Face hub; empty for a config from elsewhere.
        task: The default task; one of ``tasks``.
        tasks: All that it can be trained for.
        sequence_length: In tokens; the largest is the number of positions. ``None`` where no task
            has text.
        image_size: In pixels per side, as the model was published; ``None`` for the task's.
        image_count: Images per sample; ``None`` where no task has several.
        frame_count: In frames of a video, as the model was published; ``None`` for no number.
        image_processor: The transformers class that prepares an image for it; empty where images
            are given as the model reads them.
        square_images: Whether photographs must be squares before it prepares them.
        feature_extractor: The transformers class that prepares sound for it.
        label_count: Labels of its own head, where that is the default for its task.
        package: The optional package that it comes from; empty for transformers itself.
        needs: Optional packages that it needs besides.
    """

    name: str
    display_name: str
    hub_id: str
    task: Task
    tasks: tuple[Task, ...]
    description: str
    sequence_length: SizeLimits | None = None
    image_size: SizeLimits | None = None
    image_count: SizeLimits | None = None
    frame_count: SizeLimits | None = None
    image_processor: str = ""
    square_images: bool = False
    feature_extractor: str = ""
    label_count: int | None = None
    package: str = ""
    needs: tuple[str, ...] = ()

    @property
    def optional_packages(self) -> tuple[str, ...]:
        """All that must be installed for it beside transformers, by the names of our extras."""
        return tuple(filter(None, (self.package, *self.needs)))

    @property
    def kind(self) -> Kind:
        """Kind of input that it reads, for its default task."""
        return self.task.facts.kind

    def why_not(self, task: Task) -> str:
        """Why it cannot be trained for a task that transformers has a class for; empty if so."""
        return ""

    def caches(self, task: Task | None) -> bool:
        """Whether it has a decoder for a task, which can return keys and values in training."""
        return self.task.facts.caches or (task is not None and task.facts.caches)

    def limits(self, size: str, task: Task | None) -> SizeLimits | None:
        """Default and bounds of an input size; ``None`` if the task's samples have no such size.

        Args:
            size: A field of the workload, such as ``sequence_length``.
            task: The task that it is trained for; ``None`` for its default task.
        """
        usual = (task or self.task).facts.sizes.get(size)
        own: SizeLimits | None = getattr(self, size, None)
        return usual and (own or usual)

    def limits_for_any(self, size: str) -> SizeLimits | None:
        """Limits for the first of its tasks that has such a size."""
        found = (self.limits(size, task) for task in self.tasks)
        return next((limits for limits in found if limits is not None), None)

    def config(self) -> dict[str, Any]:
        """The fields of the model's ``config.json``, as a new dictionary.

        Raises:
            LookupError: It has not been fetched from the hub yet.
        """
        raise LookupError(f"the config of {self.name} was not fetched; see engine.hub.resolve")

    @property
    def has_experts(self) -> bool:
        """Whether its config counts experts, as that of a mixture does."""
        return _counts_experts(self.config())

    def label_count_for(self, task: Task) -> int | None:
        """The default number of labels of a classifier; ``None`` for other tasks."""
        if task is self.task and self.label_count is not None:
            return self.label_count
        return task.facts.label_count


def _counts_experts(config: Mapping[str, Any]) -> bool:
    parts = [value for value in config.values() if isinstance(value, Mapping)]
    counts = [value for name, value in config.items() if _EXPERTS.fullmatch(name)]
    several = any(isinstance(count, int) and count > 1 for count in counts)
    return several or any(map(_counts_experts, parts))


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


@dataclass(frozen=True, kw_only=True)
class UnknownModel(Model):
    """A hub model whose config :func:`engine.hub.resolve` has not fetched yet.

    Until then any task and any size is valid.
    """

    @property
    def kind(self) -> Kind:
        return Kind.UNKNOWN

    def limits(self, size: str, task: Task | None) -> SizeLimits | None:
        return SizeLimits(SIZES[size], 1, SIZES[size])


def hub_model(hub_id: str) -> UnknownModel:
    """A model of the hub that only its ID is known of."""
    return UnknownModel(
        name=hub_id,
        display_name=hub_id,
        hub_id=hub_id,
        task=Task.SEQUENCE_CLASSIFICATION,
        tasks=tuple(Task),
        description="Model on the Hugging Face Hub. Only its config is fetched.",
    )
