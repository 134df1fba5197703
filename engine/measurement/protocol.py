"""What the process that asks for a trial and the process that runs it say to each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.own.factory import Factory
from engine.result import LargeTensor, TimelinePoint
from engine.workload import Workload

GAVE_UP = 3
"""Exit status of a process of a group that did not fit: its answer says why, the others wait."""


@dataclass(frozen=True)
class DeviceFacts:
    """The local device.

    Attributes:
        kind: ``cuda``, ``mps`` or ``cpu``.
        name: As its driver names it.
        total_bytes: Its memory; on the CPU, the memory of the machine.
        context_bytes: Used before the first tensor; zero on the CPU.
        compute_capability: On CUDA, such as 9.0; else zero.
        count: How many of them there are to share the work; on the CPU, its cores.
    """

    kind: str
    name: str
    total_bytes: int
    context_bytes: int
    compute_capability: float
    count: int = 1


@dataclass(frozen=True)
class RecordedStep:
    """Where memory went along one step.

    Attributes:
        timeline: Bytes alive, from the step's begin to its end.
        largest_tensors: Those alive at its peak, largest first.
        breakdown: Bytes of the tensors at the peak, by category.
    """

    timeline: list[TimelinePoint]
    largest_tensors: list[LargeTensor]
    breakdown: dict[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> RecordedStep:
        """What the recording process wrote as JSON."""
        return cls(
            [TimelinePoint(**point) for point in fields["timeline"]],
            [LargeTensor(**tensor) for tensor in fields["largest_tensors"]],
            fields["breakdown"],
        )


@dataclass(frozen=True)
class TrialOrder:
    """One trial to be run.

    Attributes:
        workload: What is trained, or the factory of a person's own steps.
        batch_size: Samples per step.
        memory_limit_bytes: What the device may use; ``None`` for all of it.
        forward_only: Whether to run the forward pass alone, to compare with.
        allocator: Options of the caching allocator, as ``PYTORCH_ALLOC_CONF`` has them; empty for
            those of this process's environment.
        rank: The number of this GPU among those that share the work.
        meeting_file: Where their processes find each other.
    """

    workload: Workload | Factory
    batch_size: int
    memory_limit_bytes: int | None = None
    forward_only: bool = False
    allocator: str = ""
    rank: int = 0
    meeting_file: str = ""

    @property
    def world_size(self) -> int:
        """GPUs that share the work, each in a process of its own."""
        return 1 if isinstance(self.workload, Factory) else self.workload.world_size

    @property
    def samples_per_step(self) -> int:
        """Samples of one step, over the micro-batches that it accumulates and over all GPUs."""
        return self.batch_size * self.workload.gradient_accumulation * self.world_size

    def to_json(self) -> str:
        """The order as JSON; :meth:`from_json` takes it back."""
        if isinstance(self.workload, Factory):
            trained = {"own_code": True, "workload": asdict(self.workload)}
        else:
            trained = {"own_code": False, "workload": self.workload.to_dict()}
        return json.dumps(vars(self) | trained)

    @classmethod
    def from_json(cls, text: str) -> TrialOrder:
        """The order that :meth:`to_json` wrote."""
        fields = json.loads(text)
        trained = fields["workload"]
        own = fields.pop("own_code")
        return cls(
            **fields
            | {
                "workload": Factory(**trained | {"search_path": tuple(trained["search_path"])})
                if own
                else Workload.parse(trained)
            }
        )
