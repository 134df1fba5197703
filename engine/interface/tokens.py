"""Tokens per second, beside samples per second, for a model that reads text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.choices import Method
from ..features.length_distribution import FIELD, Lengths
from ..models.tasks import Task
from .workload import Workload


@dataclass(frozen=True)
class Tokens:
    """Token count of a workload.

    Attributes:
        per_sample: Tokens per sample: every position of the sequence, padding too: the step
            computes them all. Where samples differ in length, the mean of their own.
        unit: ``tokens``; ``source tokens`` where a target, which is not counted, is as long again.
    """

    per_sample: int
    unit: str

    def per_second(self, samples_per_second: float | None) -> float | None:
        """Tokens per second at a speed; ``None`` where the speed is not known."""
        return None if samples_per_second is None else samples_per_second * self.per_sample


def tokens_of(trained: Workload | Mapping[str, Any] | None) -> Tokens | None:
    """Whether the tokens of a workload are counted, and how.

    Args:
        trained: The workload, or its stored fields; ``None`` for a script.

    Returns:
        ``None`` unless the whole input is known to be text of a known length.
    """
    if trained is None:
        return None
    fields = vars(trained) if isinstance(trained, Workload) else trained
    length, task = fields.get("sequence_length"), fields.get("task")
    if not length or task not in list(Task):
        return None
    unit = Task(task).facts.counts
    if lengths := fields.get(FIELD):
        length = round(Lengths.parse(lengths).cut(length).mean)
    texts = Method(fields.get("method") or Method.SFT).texts_per_sample
    return Tokens(length * texts, unit) if unit else None


def tokens_per_second(
    trained: Workload | Mapping[str, Any] | None, samples_per_second: float | None
) -> float | None:
    """Tokens per second at a speed; ``None`` where there are no tokens to count, or no speed."""
    tokens = tokens_of(trained)
    return tokens.per_second(samples_per_second) if tokens else None
