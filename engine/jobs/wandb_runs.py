"""Runs of W&B: folders of offline runs, and those of its service by W&B's API.

An offline run is a log of records, which W&B's package describes (``wandb_internal.proto``) and
in newer releases does not read any more. Its frames are those of LevelDB's log: blocks of 32 KiB,
with a header of seven bytes before each piece of a record.

Memory is W&B's system metric ``gpu.N.memoryAllocatedBytes``. ``gpu.process.N`` says which GPUs of
the machine the run used.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ..core.errors import EngineError, InvalidInput
from .logged_config import logged_speed, request_fields, slurm_job_id
from .record import JobRecord, Reporter

_MAGIC = b":W&B"
_FILE_HEADER = 7
_BLOCK = 32 * 1024
_FRAME = struct.Struct("<IHB")  # checksum, length, kind
_WHOLE, _FIRST, _LAST = 1, 2, 4
_MEMORY = re.compile(r"(?:system\.)?gpu\.(process\.)?(\d+)\.memoryAllocatedBytes")
_MISSING = "W&B's package is not installed here; run: pip install wandb"
_SLURM_JOB = "job_id"
"""W&B keeps Slurm's variables in small letters and without ``SLURM_``."""

_SAMPLES = 10_000
_PROJECT = re.compile(r"[\w.-]+/[\w. -]+")


@dataclass
class _Run:
    """A run while its records are read.

    Attributes:
        used_bytes: Most memory in use, by the number of the GPU.
        own: Numbers of the GPUs that the run's processes used.
        machine_gpus: Number of GPUs of the machine.
    """

    id: str = ""
    project: str = ""
    name: str = ""
    user: str = ""
    device_name: str = ""
    device_total_bytes: int | None = None
    machine_gpus: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    is_running: bool = True
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    used_bytes: dict[int, float] = field(default_factory=dict)
    own: set[int] = field(default_factory=set)
    slurm_job_id: str = ""
    host: str = ""

    def saw(self, metrics: Mapping[str, Any]) -> None:
        """Note the memory in a sample of system metrics."""
        for name, value in metrics.items():
            if (found := _MEMORY.fullmatch(name)) and isinstance(value, int | float):
                gpu = int(found[2])
                self.used_bytes[gpu] = max(value, self.used_bytes.get(gpu, 0))
                if found[1]:
                    self.own.add(gpu)

    def job(self) -> JobRecord | None:
        """The run as a job; ``None`` without a GPU or a time."""
        gpus = len(self.own) or self.machine_gpus or len(self.used_bytes)
        if not (gpus and self.id and self.started_at):
            return None
        used = [self.used_bytes[gpu] for gpu in self.own or self.used_bytes]
        return JobRecord(
            reporter=Reporter.WANDB,
            id=f"{self.project}/{self.id}",
            user=self.user,
            device_name=self.device_name,
            gpus=gpus,
            started_at=self.started_at,
            ended_at=max(self.started_at, self.ended_at or self.started_at),
            is_running=self.is_running,
            device_total_bytes=self.device_total_bytes,
            used_bytes=int(max(used)) if used else None,
            samples_per_second=logged_speed(self.summary),
            name=self.name,
            request=request_fields(self.config),
            slurm_job_id=self.slurm_job_id or slurm_job_id(self.config),
            hosts=(self.host,) if self.host else (),
        )


def offline_jobs(folder: Path) -> Iterator[JobRecord]:
    """The runs with GPUs below a folder, in files named ``run-….wandb``.

    Raises:
        EngineError: W&B's package is not installed.
        InvalidInput: There is no such file, or one cannot be read.
    """
    files = [folder] if folder.is_file() else sorted(folder.rglob("run-*.wandb"))
    if not files:
        raise InvalidInput({"source": f"no offline runs of W&B in {folder}"})
    for file in files:
        if job := _read(file).job():
            yield job


def _read(file: Path) -> _Run:
    try:
        from wandb.proto import wandb_internal_pb2
    except ImportError as error:
        raise EngineError(_MISSING) from error
    run = _Run()
    try:
        data = file.read_bytes()
        owner = file.owner()
    except (OSError, KeyError) as error:
        raise InvalidInput({"source": f"{file} cannot be read: {error}"}) from error
    if not data.startswith(_MAGIC):
        raise InvalidInput({"source": f"{file} is no offline run of W&B"})
    for frame in _frames(data):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(frame)
        _note(run, record)
    run.user = run.user or owner
    return run


def _frames(data: bytes) -> Iterator[bytes]:
    """The records of a log; the last one of a run that still writes may be cut off."""
    at, parts = _FILE_HEADER, b""
    while at + _FRAME.size <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < _FRAME.size:
            at += left
            continue
        _, length, kind = _FRAME.unpack_from(data, at)
        at += _FRAME.size
        piece = data[at : at + length]
        if not kind or len(piece) < length:
            return
        at += length
        parts = piece if kind in (_WHOLE, _FIRST) else parts + piece
        if kind in (_WHOLE, _LAST):
            yield parts


def _note(run: _Run, record: Any) -> None:
    """Note what a record says of its run."""
    match record.WhichOneof("record_type"):
        case "run":
            run.id, run.project = record.run.run_id, record.run.project
            run.name = record.run.display_name or run.name
            run.started_at = record.run.start_time.ToDatetime(UTC)
            run.ended_at = run.ended_at or run.started_at
            run.config |= _values(record.run.config.update)
        case "config":
            run.config |= _values(record.config.update)
        case "summary":
            run.summary |= _values(record.summary.update)
        case "stats":
            run.ended_at = record.stats.timestamp.ToDatetime(UTC)
            run.saw(_values(record.stats.item))
        case "environment":
            _note_machine(run, record.environment)
        case "exit":
            run.is_running = False
            if run.started_at:
                # In whole seconds; the last sample may be a little later.
                end = run.started_at + timedelta(seconds=record.exit.runtime)
                run.ended_at = max(end, run.ended_at or end)


def _note_machine(run: _Run, machine: Any) -> None:
    run.user = machine.username or machine.email or run.user
    run.device_name = machine.gpu_type or run.device_name
    run.machine_gpus = machine.gpu_count or run.machine_gpus
    run.host = machine.host or run.host
    run.slurm_job_id = machine.slurm.get(_SLURM_JOB, "") or run.slurm_job_id
    if machine.gpu_nvidia:
        run.device_name = machine.gpu_nvidia[0].name or run.device_name
        run.device_total_bytes = machine.gpu_nvidia[0].memory_total or None


def _values(items: Iterable[Any]) -> dict[str, Any]:
    """Values of a record by name; what is nested or no JSON stays out."""
    found = {}
    for item in items:
        name = item.key or ".".join(getattr(item, "nested_key", ()))
        try:
            found[name] = json.loads(item.value_json)
        except ValueError:
            continue
    return found


def online_jobs(path: str, since: datetime | None) -> Iterator[JobRecord]:
    """The runs with GPUs of a project, by W&B's API.

    Args:
        path: ``ENTITY/PROJECT``.
        since: Only runs that were created since then; ``None`` for all.

    Raises:
        EngineError: W&B's package is not installed, or its service does not answer.
        InvalidInput: The path is none.
    """
    if not _PROJECT.fullmatch(path):
        raise InvalidInput({"source": f"{path} is no folder, nor ENTITY/PROJECT of W&B's service"})
    try:
        import wandb
    except ImportError as error:
        raise EngineError(_MISSING) from error
    try:
        filters = {"createdAt": {"$gte": since.isoformat()}} if since else None
        for found in wandb.Api().runs(path, filters=filters):
            if job := run_of(found).job():
                yield job
    except (wandb.errors.Error, ValueError) as error:
        raise EngineError(f"W&B cannot be read: {' '.join(str(error).split())[:500]}") from error


def run_of(found: Any) -> _Run:
    """A run of W&B's API (``wandb.apis.public.Run``)."""
    machine = found.metadata or {}
    nvidia: Mapping[str, Any] = next(iter(machine.get("gpu_nvidia") or []), {})
    total = nvidia.get("memoryTotal")
    run = _Run(
        id=found.id,
        project=found.project,
        name=found.name or "",
        user=machine.get("username") or machine.get("email") or found.user.username,
        device_name=nvidia.get("name") or machine.get("gpu") or "",
        device_total_bytes=int(total) if total else None,
        machine_gpus=int(machine.get("gpu_count") or 0),
        started_at=_moment(machine.get("startedAt") or found.created_at),
        ended_at=_moment(found.heartbeat_at),
        is_running=found.state == "running",
        config=dict(found.config),
        summary=dict(found.summary),
        slurm_job_id=(machine.get("slurm") or {}).get(_SLURM_JOB, ""),
        host=machine.get("host") or "",
    )
    for sample in found.history(samples=_SAMPLES, stream="system", pandas=False):
        run.saw(sample)
    return run


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
