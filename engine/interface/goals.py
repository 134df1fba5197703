"""Commands of the goals of an analysis, and the settings that count for each."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import Any

from ..core.choices import Goal
from ..core.fields import described_fields
from .request import FIELDS, as_flags
from .subject import PROGRAM
from .texts import Texts
from .workload import Workload

GENERATES = (
    "task", "image_size", "image_count", "audio_seconds", "precision", "attention", "lora_rank",
    "lora_targets", "adapter", "quantization", "software", "config",
)  # fmt: skip
"""The fields of a workload that matter where nothing is trained."""

TEXTS = tuple(described_fields(Texts))
"""The fields of what is generated."""

_ANYWHERE = ("goal", "model", "gpu", "current_batch_size", "memory_limit_bytes", "allocator")
_OF_SAMPLES = ("sequence_length", "batching", "sample_lengths", "run_batches")

_COUNTING: Mapping[Goal, Collection[str]] = {
    Goal.BATCH: {*FIELDS, PROGRAM} - {*TEXTS},
    Goal.GENERATION: {*_ANYWHERE, *TEXTS, *GENERATES},
    Goal.LENGTH: {*_ANYWHERE, *described_fields(Workload)} - {*_OF_SAMPLES},
}

_COMMANDS = {Goal.BATCH: "analyze", Goal.GENERATION: "generate", Goal.LENGTH: "longest"}


def goal_of(request: Mapping[str, Any]) -> Goal:
    """The goal of stored fields; those of an older version have none."""
    return Goal(request.get("goal") or Goal.BATCH)


def counts(name: str, goal: Goal) -> bool:
    """Whether a field of a request matters to a goal."""
    return name in _COUNTING[goal]


def command_line(goal: Goal, model: str, values: Mapping[str, Any]) -> str:
    """The command that requests the same; a config is a file.

    Args:
        goal: Goal of the request.
        model: Name of its model.
        values: The fields to write as flags.
    """
    words = ["memorymark", _COMMANDS[goal], model]
    flags = {name: value for name, value in values.items() if name != "goal"}
    if goal is Goal.BATCH:
        return shlex.join([*words, *as_flags(flags)])
    size = flags.pop("current_batch_size")
    return shlex.join([*words, *as_flags(flags), "--batch-size", str(size)])
