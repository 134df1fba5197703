"""Which types of models can be trained for which tasks, and what their batches need.

That is data: ``python -m benchmarks.coverage`` tries every type and task that transformers has, and
writes ``admitted.toml``. A pair is admitted once the trace of a small model was equal to real steps
to the byte; the others are refused with the reason.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .kinds import Kind, Task

ADMITTED = Path(__file__).parent / "admitted.toml"


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """How the models of one ``model_type`` are trained.

    Attributes:
        tasks: What they can be trained for, the usual one first; none where all are refused.
        refused: The tasks that transformers has a class for but MemoryMark refuses, with the
            reason.
        positions: The config field with the number of positions; empty for no limit.
        first_position: Positions before the first token's (padding, in RoBERTa and its kin).
        learned_positions: Whether positions have parameters, so that their number must be known.
        image_processor: The transformers class that prepares an image, on Pillow.
        windows: Whether it attends within windows, which limits how small images can be: the last
            stage must still fill one.
        needs: Config fields without which no batch can be made.
    """

    kind: Kind
    tasks: tuple[Task, ...] = ()
    refused: Mapping[Task, str] = field(default_factory=dict)
    positions: str = ""
    first_position: int = 0
    learned_positions: bool = False
    image_processor: str = ""
    windows: bool = False
    needs: tuple[str, ...] = ()


def read_architectures(path: Path = ADMITTED) -> dict[str, Architecture]:
    """The architectures of a file, by their ``model_type``."""
    read = tomllib.loads(path.read_text())
    return {model_type: _architecture(written) for model_type, written in read["models"].items()}


def _architecture(written: dict[str, Any]) -> Architecture:
    refused = {Task(task): reason for task, reason in written.pop("refused", {}).items()}
    return Architecture(
        kind=Kind(written.pop("kind")),
        tasks=tuple(Task(task) for task in written.pop("tasks", ())),
        needs=tuple(written.pop("needs", ())),
        refused=refused,
        **written,
    )


ARCHITECTURES = read_architectures()
SUPPORTED = [name for name, architecture in ARCHITECTURES.items() if architecture.tasks]
"""The types that can be trained for some task."""
