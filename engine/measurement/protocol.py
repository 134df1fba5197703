"""The messages between the process that orders a trial and the one that runs it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..interface.result import LargeTensor, TimelinePoint
from ..interface.workload import Workload
from ..script.factory import Factory
from ..script.program import Program

GAVE_UP = 3
"""Exit status of a process whose trial did not fit; its answer says why."""
LIBRARIES_LOADED = b"loaded"
"""Sent by a process once it can be forked for trials."""


def order_line(what: str, order: str) -> str:
    """The line that a trial's process reads: what to do, and with which order."""
    return f"{what} {order}"


@dataclass(frozen=True)
class DeviceFacts:
    """The local device.

    Attributes:
        kind: ``cuda``, ``mps`` or ``cpu``.
        name: The driver's name for it.
        total_bytes: Its memory; on the CPU, the machine's.
        context_bytes: Used before the first tensor; zero on the CPU.
        compute_capability: On CUDA, such as 9.0; else zero.
        count: Number of devices that can share the work; on the CPU, its cores.
    """

    kind: str
    name: str
    total_bytes: int
    context_bytes: int
    compute_capability: float
    count: int = 1


@dataclass(frozen=True)
class RecordedStep:
    """Memory over one step.

    Attributes:
        timeline: Live bytes from the start of the step to its end.
        largest_tensors: Tensors that are live at its peak, largest first.
        breakdown: Bytes of the tensors at the peak, by category.
    """

    timeline: list[TimelinePoint]
    largest_tensors: list[LargeTensor]
    breakdown: dict[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> RecordedStep:
        return cls(
            [TimelinePoint(**point) for point in fields["timeline"]],
            [LargeTensor(**tensor) for tensor in fields["largest_tensors"]],
            fields["breakdown"],
        )


@dataclass(frozen=True)
class TrialOrder:
    """An order to run one trial.

    Attributes:
        workload: The model, factory of a script, or program to train.
        batch_size: Samples per step.
        memory_limit_bytes: Memory the trial may use; ``None`` for all.
        forward_only: Whether to run only the forward pass, for comparison.
        allocator: Options of the caching allocator, as in ``PYTORCH_ALLOC_CONF``; empty for those
            of this process's environment.
        rank: The number of this GPU among those that share the work.
        meeting_file: The file through which their processes find each other.
        file: The file that takes the allocator's snapshot or the profiler's trace, where that is
            the order.
    """

    workload: Workload | Factory | Program
    batch_size: int
    memory_limit_bytes: int | None = None
    forward_only: bool = False
    allocator: str = ""
    rank: int = 0
    meeting_file: str = ""
    file: str = ""

    @property
    def world_size(self) -> int:
        return self.workload.world_size if isinstance(self.workload, Workload) else 1

    @property
    def samples_per_step(self) -> int:
        batches = self.workload.data_parallel if isinstance(self.workload, Workload) else 1
        return self.batch_size * self.workload.gradient_accumulation * batches

    def to_json(self) -> str:
        if isinstance(self.workload, Workload):
            trained = {"kind": "workload", "workload": self.workload.to_dict()}
        else:
            kind = "factory" if isinstance(self.workload, Factory) else "program"
            trained = {"kind": kind, "workload": asdict(self.workload)}
        return json.dumps(vars(self) | trained)

    @classmethod
    def from_json(cls, text: str) -> TrialOrder:
        fields = json.loads(text)
        read = _READ[fields.pop("kind")]
        return cls(**fields | {"workload": read(fields["workload"])})


_READ: Mapping[str, Callable[[Mapping[str, Any]], Workload | Factory | Program]] = {
    "workload": Workload.parse,
    "factory": Factory.from_fields,
    "program": Program.from_fields,
}
