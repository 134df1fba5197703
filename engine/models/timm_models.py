"""The models of timm, by name, with the size of the images that each reads.

That is data: ``python -m benchmarks.coverage.timm_models`` lists the names, tries the smallest
model of each of timm's families, and writes ``timm.toml``. timm itself is not needed to name one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..core.parsing import shown
from .tasks import SizeLimits

LISTED = Path(__file__).parent / "timm.toml"
MODEL_TYPE = "timm_wrapper"
"""``model_type`` of timm's models in transformers."""

PREFIX = "timm/"
"""Prefix of their names, here and on the Hub."""

_MIN_SIDE, _MAX_SIDE = 32, 1_024


@dataclass(frozen=True)
class Listed:
    """Known facts about timm's architectures.

    Attributes:
        sides: Sides of the images that each reads, in pixels.
        refused: Reasons why others are refused.
    """

    sides: Mapping[str, SizeLimits]
    refused: Mapping[str, str]


@cache
def listed() -> Listed:
    """All of them, read on first use."""
    read = tomllib.loads(LISTED.read_text())
    fixed = {name: SizeLimits(side, side, side) for name, side in read["fixed"].items()}
    flexible = {
        name: SizeLimits(side, min(side, _MIN_SIDE), max(side, _MAX_SIDE))
        for name, side in read["flexible"].items()
    }
    return Listed(fixed | flexible, read["refused"])


def config_of(name: str) -> dict[str, Any]:
    """The config of a model named ``timm/`` and its architecture, with or without a tag.

    The tag names weights, as in ``timm/resnet50.a1_in1k``, and does not matter.
    """
    return {"model_type": MODEL_TYPE, "architecture": name.removeprefix(PREFIX).partition(".")[0]}


def as_config(read: dict[str, Any]) -> dict[str, Any]:
    """A ``config.json`` as timm writes it on the Hub, as transformers reads it."""
    if "model_type" in read or not {"architecture", "pretrained_cfg"} <= read.keys():
        return read
    return {
        "model_type": MODEL_TYPE,
        "architecture": read["architecture"],
        "num_labels": read.get("num_classes") or None,  # 0 is without a head
    }


def sizes(config: Mapping[str, Any]) -> dict[str, SizeLimits]:
    """The sides of the images that a config's architecture reads.

    Raises:
        InvalidInput: If timm has no such architecture, or it is refused; for the field ``config``.
    """
    architecture, known = str(config.get("architecture")), listed()
    if architecture in known.refused:
        raise _wrong(f"{architecture} of timm is not supported: {known.refused[architecture]}")
    if architecture not in known.sides:
        similar = get_close_matches(architecture, known.sides, n=5)
        such_as = f", such as {', '.join(similar)}" if similar else ""
        raise _wrong(
            f"timm has no architecture {shown(architecture)}; choose one of the "
            f"{len(known.sides):,} that `memorymark models timm/` lists{such_as}"
        )
    return {"image_size": known.sides[architecture]}


def names() -> list[str]:
    """The names of all models, as a workload takes them."""
    return [f"{PREFIX}{architecture}" for architecture in sorted(listed().sides)]


def _wrong(message: str) -> InvalidInput:
    return InvalidInput({"config": message})
