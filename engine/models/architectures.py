"""Types of models, the tasks that they can be trained for, and what their batches need.

That is data: ``python -m benchmarks.coverage`` tries every type and task that transformers has, and
writes ``admitted.toml``. A pair is admitted once the trace of a small model was equal to real steps
to the byte; the others are refused with the reason.
"""

from __future__ import annotations

import tomllib
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .tasks import Task

ADMITTED = Path(__file__).parent / "admitted.toml"


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Training of the models of one ``model_type``.

    Attributes:
        tasks: Tasks that they can be trained for, the usual one first; none where all are refused.
        refused: The tasks that transformers has a class for but MemoryMark refuses, with the
            reason.
        positions: The config field with the number of positions; empty for no limit.
        default_positions: Their number where a config does not give it; 0 if unknown.
        first_position: Positions before the first token's (padding, in RoBERTa and its kin).
        learned_positions: Whether positions have parameters, so that their number must be known.
        image_processor: The transformers class that prepares an image, on Pillow or torchvision;
            empty where there is none, and each image is given in the one size that the model reads.
        feature_extractor: The transformers class that prepares sound.
        windows: Whether it attends within windows, which limits how small images can be: the last
            stage must still fill one.
        square_images: Whether it reads squares only, which its processor makes of all photographs
            only by the settings published with a model.
        one_image: Whether a sample of text and images has one image at most.
        kernels: Packages with faster kernels, which transformers runs where they are installed.
        package: The optional package that its models come from; empty for transformers itself.
        needs: Optional packages that transformers needs for its models or their images.
    """

    tasks: tuple[Task, ...] = ()
    refused: Mapping[Task, str] = field(default_factory=dict)
    positions: str = ""
    default_positions: int = 0
    first_position: int = 0
    learned_positions: bool = False
    image_processor: str = ""
    feature_extractor: str = ""
    windows: bool = False
    square_images: bool = False
    one_image: bool = False
    kernels: tuple[str, ...] = ()
    package: str = ""
    needs: tuple[str, ...] = ()


def read_architectures(path: Path = ADMITTED) -> dict[str, Architecture]:
    """The architectures of a file, by their ``model_type``."""
    read = tomllib.loads(path.read_text())
    return {model_type: _architecture(written) for model_type, written in read["models"].items()}


def _architecture(written: dict[str, Any]) -> Architecture:
    refused = {Task(task): reason for task, reason in written.pop("refused", {}).items()}
    return Architecture(
        tasks=tuple(Task(task) for task in written.pop("tasks", ())),
        refused=refused,
        kernels=tuple(written.pop("kernels", ())),
        needs=tuple(written.pop("needs", ())),
        **written,
    )


ARCHITECTURES = read_architectures()
"""Architectures that are a part of transformers."""

OF_PACKAGES = {
    "timm_wrapper": Architecture(tasks=(Task.IMAGE_CLASSIFICATION,), package="timm"),
    "diffusers": Architecture(tasks=(Task.TEXT_TO_IMAGE,), package="diffusers"),
}
"""Architectures of optional packages, whose models are tried apart: :mod:`.timm_models`,
:mod:`.diffusion`."""


KNOWN: Mapping[str, Architecture] = ChainMap(OF_PACKAGES, ARCHITECTURES)

SUPPORTED = [name for name, architecture in ARCHITECTURES.items() if architecture.tasks]
"""The types that can be trained for some task."""
