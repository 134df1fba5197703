"""What the benchmark asks its predicting processes, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.measurement.protocol import DeviceFacts
from engine.result import Trial


@dataclass(frozen=True)
class Asked:
    """What is asked of a workload.

    Attributes:
        fields: Of the workload.
        facts: The device as it was measured.
        limits: Capacities whose largest batch is wanted.
        sizes: Batch sizes whose trials are wanted, each with its capacity.
    """

    fields: dict[str, Any]
    facts: DeviceFacts
    limits: tuple[int | None, ...] = ()
    sizes: tuple[tuple[int | None, int], ...] = ()

    @classmethod
    def parse(cls, read: dict[str, Any]) -> Asked:
        """The question of its JSON."""
        return cls(
            fields=read["fields"],
            facts=DeviceFacts(**read["facts"]),
            limits=tuple(read["limits"]),
            sizes=tuple((limit, size) for limit, size in read["sizes"]),
        )


@dataclass(frozen=True)
class Foreseen:
    """The answers, in the order of the questions."""

    largest: list[int]
    trials: list[Trial]
