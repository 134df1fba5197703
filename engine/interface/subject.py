"""The subject of training, whether MemoryMark builds it or somebody's script does.

A workload is known by its fields, a program by a name and a hash. Whatever lists, totals or
compares analyses reads the subject of their requests, and need not know which of the two it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MODEL, PROGRAM = "model", "program"
"""The stored fields of a request that name its subject; workloads have no program."""

_HASH = "hash"


@dataclass(frozen=True)
class Subject:
    """The subject of an analysis, by what lists and totals show of it.

    Attributes:
        name: The model's name, or the program's.
        program_hash: Hash of a program; empty for a workload.
        precision: Empty for a program, whose code decides it; so is the optimizer.
        software: Versions that are pinned; mostly empty.
    """

    name: str
    program_hash: str = ""
    precision: str = ""
    optimizer: str = ""
    software: str = ""

    @property
    def program_name(self) -> str:
        """Its name where it is a program; empty for a workload."""
        return self.name if self.program_hash else ""


def program_hash_in(request: Mapping[str, Any]) -> str:
    """The hash of the program in stored fields; empty for a workload."""
    program = request.get(PROGRAM) or {}
    return str(program.get(_HASH, ""))
