"""Lists the models of timm, and tries the smallest of each family: its trace against real steps.

``python -m benchmarks.coverage.timm_models`` writes ``timm.toml``. It needs the package timm. Of a
family, a file of timm's, all models run the same code.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch

from engine.models import timm_models
from engine.models.tasks import SizeLimits, Task

from . import admission

_SMALL = admission.SIZES["image_size"]
_NOT_SQUARE = "the images that it reads are not square"


@dataclass(frozen=True)
class Listed:
    """A model of timm.

    Attributes:
        side: Side of its images, in pixels.
        is_fixed: Whether it reads no others.
    """

    name: str
    family: str
    side: int
    is_fixed: bool
    refused: str = ""


def listed() -> list[Listed]:
    """Every model that timm lists."""
    import timm
    from timm.models._registry import _model_to_module

    found = []
    for name in timm.list_models():
        config: Any = timm.get_pretrained_cfg(name)
        _, height, width = config.input_size
        refused = "" if height == width else _NOT_SQUARE
        found.append(Listed(name, _model_to_module[name], width, config.fixed_input_size, refused))
    return found


def parameters(model: Listed) -> int:
    """Count the parameters of the model with ten classes, built without weights."""
    import timm

    with torch.device("meta"):
        built = timm.create_model(model.name, num_classes=10)
    return sum(parameter.numel() for parameter in built.parameters())


def why_not(model: Listed) -> str:
    """Why a model is refused, tried in a process of its own; empty if it is not."""
    sides = [model.side] if model.is_fixed else [_SMALL, model.side]
    for side in sides:  # small images suit most, and make a step quick
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            try:
                refused = pool.submit(_why_not, model.name, side).result()
            except BrokenProcessPool:
                refused = "its step ends the process"
        if not refused:
            return ""
    return refused


def _why_not(name: str, side: int) -> str:
    alone = timm_models.Listed({name: SizeLimits(side, side, side)}, {})
    with patch.object(timm_models, "listed", lambda: alone):
        config = timm_models.config_of(name)
        return admission.try_config(config, Task.IMAGE_CLASSIFICATION, image_size=side).refused


def as_toml(models: list[Listed], refused: dict[str, str], version: str) -> str:
    """The contents of ``timm.toml``; ``refused`` is by family."""
    lines = [
        "# Made by `python -m benchmarks.coverage.timm_models`. Not to be edited.",
        f'timm = "{version}"',
    ]
    why = {model.name: model.refused or refused.get(model.family, "") for model in models}
    for title, is_fixed in (("fixed", True), ("flexible", False)):
        lines += ["", f"[{title}]"]
        lines += [
            f"{one.name} = {one.side}"
            for one in models
            if one.is_fixed is is_fixed and not why[one.name]
        ]
    lines += ["", "[refused]", *(f'{name} = "{reason}"' for name, reason in why.items() if reason)]
    return "\n".join(lines) + "\n"


def main() -> int:
    import timm

    torch.set_num_threads(1)
    models = listed()
    families = defaultdict(list)
    for model in models:
        if not model.refused:
            families[model.family].append(model)
    refused = {}
    for family, members in families.items():
        smallest = min(members, key=parameters)
        refused[family] = why_not(smallest)
        sys.stdout.write(f"{family:32}{smallest.name:40}{refused[family] or 'admitted'}\n")
        sys.stdout.flush()
    timm_models.LISTED.write_text(as_toml(models, refused, timm.__version__))
    return 0


if __name__ == "__main__":
    sys.exit(main())
