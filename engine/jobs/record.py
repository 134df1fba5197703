"""A training job that a scheduler or an experiment tracker has seen, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

MAX_TEXT = 200
"""Characters of a text that the lab takes."""

MAX_HOSTS = 1000
"""Machines of a job that the lab takes."""


class Reporter(StrEnum):
    """The system that reports a job."""

    SLURM = "slurm"
    WANDB = "wandb"
    MLFLOW = "mlflow"
    KUBERNETES = "kubernetes"
    DSTACK = "dstack"

    @property
    def label(self) -> str:
        return _LABELS[self]

    @property
    def is_scheduler(self) -> bool:
        """Whether it gives jobs their GPUs; others track what runs on them."""
        return self in (Reporter.SLURM, Reporter.KUBERNETES, Reporter.DSTACK)

    @property
    def forgets_samples(self) -> bool:
        """Whether it keeps the samples of a running job's memory for a while only."""
        return self is Reporter.DSTACK


_LABELS = {
    Reporter.SLURM: "Slurm",
    Reporter.WANDB: "W&B",
    Reporter.MLFLOW: "MLflow",
    Reporter.KUBERNETES: "Kubernetes",
    Reporter.DSTACK: "dstack",
}


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """One job with GPUs, as far as its reporter knows it.

    Attributes:
        reporter: The system that reports it.
        id: Its name there, the same each time: with it the lab stores a job once.
        user: User name there; empty if unknown.
        device_name: Name of its kind of GPU there; empty if unknown.
        gpus: Number of GPUs.
        started_at: Time of its start.
        ended_at: Time of its end; of a running one, the last time it was seen.
        is_running: Whether it ran on then.
        device_total_bytes: Memory of one of its GPUs; ``None`` if unknown.
        used_bytes: Most memory in use at once on the fullest of its GPUs, as samples saw it; where
            only the sum over GPUs is known, their mean. ``None`` if unknown.
        samples_per_second: Training speed over all GPUs, as it was logged; ``None`` if it was not.
        name: For people to read; may be empty.
        request: Fields of a request for an analysis, as far as the logged config gives them.
        slurm_job_id: The number of the Slurm job that it is, or that a tracker's run is part of;
            empty if unknown. With it the lab counts the hours of both once.
        hosts: Names of its machines, as far as known; a pod's own name.
    """

    reporter: Reporter
    id: str
    user: str
    device_name: str
    gpus: int
    started_at: datetime
    ended_at: datetime
    is_running: bool = False
    device_total_bytes: int | None = None
    used_bytes: int | None = None
    samples_per_second: float | None = None
    name: str = ""
    request: Mapping[str, Any] = field(default_factory=dict)
    slurm_job_id: str = ""
    hosts: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; texts are cut to what the lab takes."""
        texts = ("user", "device_name", "name", "slurm_job_id")
        return asdict(self) | {
            "started_at": self.started_at.astimezone(UTC).isoformat(),
            "ended_at": self.ended_at.astimezone(UTC).isoformat(),
            "hosts": [_printable(host) for host in self.hosts[:MAX_HOSTS]],
            **{name: _printable(getattr(self, name)) for name in texts},
        }


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text)[:MAX_TEXT]
