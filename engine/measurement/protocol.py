"""What the process that asks for a trial and the process that runs it say to each other."""

from __future__ import annotations

import json
from dataclasses import dataclass

from engine.workload import Workload


@dataclass(frozen=True)
class DeviceFacts:
    """The local device.

    Attributes:
        kind: ``cuda``, ``mps`` or ``cpu``.
        name: As its driver names it.
        total_bytes: Its memory; on the CPU, the memory of the machine.
        context_bytes: Used before the first tensor; zero on the CPU.
        compute_capability: On CUDA, such as 9.0; else zero.
    """

    kind: str
    name: str
    total_bytes: int
    context_bytes: int
    compute_capability: float


@dataclass(frozen=True)
class TrialOrder:
    """One trial to be run.

    Attributes:
        workload: What is trained.
        batch_size: Samples per step.
        memory_limit_bytes: What the device may use; ``None`` for all of it.
        forward_only: Whether to run the forward pass alone, to compare with.
    """

    workload: Workload
    batch_size: int
    memory_limit_bytes: int | None = None
    forward_only: bool = False

    def to_json(self) -> str:
        """The order as JSON; :meth:`from_json` takes it back."""
        return json.dumps(vars(self) | {"workload": self.workload.to_dict()})

    @classmethod
    def from_json(cls, text: str) -> TrialOrder:
        """The order that :meth:`to_json` wrote."""
        fields = json.loads(text)
        return cls(**fields | {"workload": Workload.parse(fields["workload"])})
