"""Coverage of all the model types that transformers has, as a list and as counts."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from .architectures import ADMITTED, ARCHITECTURES, Architecture
from .presets import PRESETS
from .tasks import Kind, Task


@dataclass(frozen=True)
class ModelType:
    """Tasks that the models of one type can be trained for.

    Attributes:
        name: The ``model_type`` in a config.
        kinds: Kinds of input that its models read, for one task or another.
        tasks: Tasks that they can be trained for, the usual one first.
        refused: The tasks that transformers has a class for but MemoryMark refuses, with the
            reason.
        presets: The models of this type that have a name here.
        needs: Optional packages that must be installed to predict it.
    """

    name: str
    kinds: tuple[Kind, ...]
    tasks: tuple[Task, ...]
    refused: dict[Task, str]
    presets: tuple[str, ...]
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Coverage:
    """Number of model types, and of pairs of a type and a task, that are predicted.

    Attributes:
        predicted_types: Types predicted for some task.
        types: Types that transformers has a class to train with.
    """

    predicted_types: int
    types: int
    predicted_pairs: int
    pairs: int

    @classmethod
    def of(cls, architectures: Iterable[Architecture]) -> Coverage:
        tasks = [(len(known.tasks), len(known.refused)) for known in architectures]
        predicted = [count for count, _ in tasks if count]
        return cls(len(predicted), len(tasks), sum(predicted), sum(map(sum, tasks)))


@cache
def model_types() -> tuple[ModelType, ...]:
    """Every type that transformers has a class to train with, by name."""
    presets: dict[str, list[str]] = {}
    for preset in PRESETS.values():
        presets.setdefault(preset.config()["model_type"], []).append(preset.name)
    return tuple(
        ModelType(
            name,
            tuple(dict.fromkeys(task.facts.kind for task in (*known.tasks, *known.refused))),
            known.tasks,
            dict(known.refused),
            tuple(presets.get(name, ())),
            known.needs,
        )
        for name, known in sorted(ARCHITECTURES.items())
    )


@cache
def checked_with() -> str:
    """The version of transformers that the list was made with."""
    version: str = tomllib.loads(ADMITTED.read_text(encoding="utf-8"))["transformers"]
    return version
