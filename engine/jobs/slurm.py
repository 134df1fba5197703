"""Jobs of Slurm's accounting: the output of ``sacct``, as JSON or parsable.

Memory is that of jobstats' summaries where a site stores them (:mod:`.jobstats`), else the
``gres/gpumem`` that Slurm collects from NVIDIA's and AMD's drivers (``AutoDetect`` in
``gres.conf``), whose sum over GPUs is all that it keeps.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain, groupby, islice
from typing import Any

from ..core.errors import EngineError, InvalidInput
from .jobstats import GpuMemory, gpu_memory
from .record import MAX_HOSTS, JobRecord, Reporter

COLUMNS = (
    "JobIDRaw", "Cluster", "User", "JobName", "Partition", "State", "Start", "End", "ElapsedRaw",
    "AllocTRES", "TRESUsageInTot", "AdminComment", "NodeList",
)  # fmt: skip
"""Columns of the parsable output, in any order."""

_NEEDED = set(COLUMNS) - {"AdminComment", "TRESUsageInTot", "Cluster", "NodeList"}
_DELIMITER = "|"
_OWN_DELIMITER = "\x1f"
"""A separator that no job has in its name."""

_OF_A_LIST = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_RANGES = re.compile(r"([^\[]*)\[(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)\](.*)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_GPU, _GPU_MEMORY = "gres/gpu", "gres/gpumem"
_LIVE = ("RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT")
_TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class _Row:
    """A job of either format.

    Attributes:
        tres: What it was allocated, by name as in ``AllocTRES``.
        gpu_memory_bytes: Summed over GPUs, the most of its steps; ``None`` if not collected.
        nodes: Its machines, as :func:`hosts_of` reads them.
    """

    id: str
    cluster: str
    user: str
    name: str
    partition: str
    state: str
    start: datetime | None
    elapsed_seconds: float
    tres: Mapping[str, float]
    gpu_memory_bytes: float | None
    nodes: str
    summary: GpuMemory = field(default_factory=GpuMemory)


def run_sacct(since: datetime, *, all_users: bool) -> str:
    """The parsable output of ``sacct`` here, of jobs that ran since then.

    Raises:
        EngineError: It is not installed, or failed.
    """
    command = [
        "sacct", "--parsable2", f"--delimiter={_OWN_DELIMITER}", "--noconvert",
        f"--format={','.join(COLUMNS)}",
        f"--starttime={since.astimezone():%Y-%m-%dT%H:%M:%S}", "--endtime=now",
        *(["--allusers"] if all_users else []),
    ]  # fmt: skip
    environment = os.environ | {"SLURM_TIME_FORMAT": "%s"}  # seconds since 1970: no time zones
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS
        )
    except FileNotFoundError as error:
        raise EngineError(
            "sacct is not installed here; run this on a machine of the cluster, or name a file "
            "with its output"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(
            f"sacct did not answer within {_TIMEOUT_SECONDS} s; ask for fewer days with --since"
        ) from error
    if done.returncode:
        raise EngineError(f"sacct failed: {done.stderr.strip()[:500]}")
    return done.stdout


def jobs_of(text: str) -> list[JobRecord]:
    """The jobs with GPUs in the output of ``sacct --json`` or ``sacct --parsable2``.

    Raises:
        InvalidInput: It is neither.
    """
    rows = _rows_of_json(text) if text.lstrip().startswith("{") else _rows_of_table(text)
    return [job for job in map(_job, rows) if job is not None]


def _job(row: _Row) -> JobRecord | None:
    """A job that has run with GPUs; ``None`` for any other."""
    gpus = _gpu_count(row.tres)
    if not gpus or row.start is None or row.elapsed_seconds <= 0:
        return None
    summed = row.gpu_memory_bytes
    used = row.summary.used_bytes or (int(summed / gpus) if summed else None)
    return JobRecord(
        reporter=Reporter.SLURM,
        id=f"{row.cluster}/{row.id}" if row.cluster else row.id,
        user=row.user,
        device_name=_gpu_type(row.tres) or row.partition,
        gpus=gpus,
        started_at=row.start,
        ended_at=row.start + timedelta(seconds=row.elapsed_seconds),
        is_running=row.state in _LIVE,
        device_total_bytes=row.summary.total_bytes,
        used_bytes=used,
        name=row.name,
        slurm_job_id=row.id,
        hosts=hosts_of(row.nodes),
    )


def hosts_of(nodes: str) -> tuple[str, ...]:
    """The machines of a list such as ``gpu[01-03,7],login``, up to :data:`~.record.MAX_HOSTS`."""
    return tuple(islice(chain.from_iterable(map(_expanded, _OF_A_LIST.findall(nodes))), MAX_HOSTS))


def _expanded(name: str) -> Iterator[str]:
    """The names that a pattern stands for; ranges keep their leading zeros."""
    found = _RANGES.fullmatch(name)
    if not found:
        yield name
        return
    before, ranges, after = found.groups()
    for one in ranges.split(","):
        first, _, last = one.partition("-")
        for number in range(int(first), int(last or first) + 1):
            for rest in _expanded(after):
                yield f"{before}{number:0{len(first)}}{rest}"


def _gpu_count(tres: Mapping[str, float]) -> int:
    typed = sum(count for name, count in tres.items() if name.startswith(f"{_GPU}:"))
    return int(tres.get(_GPU, typed))


def _gpu_type(tres: Mapping[str, float]) -> str:
    """Types of its GPUs; empty where the site has none."""
    return " + ".join(
        sorted(name.removeprefix(f"{_GPU}:") for name in tres if name.startswith(f"{_GPU}:"))
    )


def _rows_of_table(text: str) -> Iterator[_Row]:
    lines = text.splitlines()
    head = lines[0] if lines else ""
    delimiter = _OWN_DELIMITER if _OWN_DELIMITER in head else _DELIMITER
    names = head.split(delimiter)
    if missing := sorted(_NEEDED - set(names)):
        raise InvalidInput(
            {
                "source": f"it lacks the column {missing[0]}; write it with sacct --parsable2 "
                f"--format={','.join(COLUMNS)}, or with sacct --json"
            }
        )
    # A line of a file whose job has the delimiter in its name has another number of cells.
    cells = (line.split(delimiter) for line in lines[1:])
    rows = [dict(zip(names, row, strict=True)) for row in cells if len(row) == len(names)]
    for _, (job, *steps) in groupby(rows, lambda row: row["JobIDRaw"].partition(".")[0]):
        if "." not in job["JobIDRaw"]:
            yield _row_of_table(job, steps)


def _row_of_table(job: Mapping[str, str], steps: Iterable[Mapping[str, str]]) -> _Row:
    used = [_tres(step.get("TRESUsageInTot", "")).get(_GPU_MEMORY, 0) for step in steps]
    return _Row(
        id=job["JobIDRaw"],
        cluster=job.get("Cluster", ""),
        user=job["User"],
        name=job["JobName"],
        partition=job["Partition"],
        state=job["State"].partition(" ")[0],  # CANCELLED by 1000
        start=_moment(job["Start"]),
        elapsed_seconds=float(job["ElapsedRaw"] or 0),
        tres=_tres(job["AllocTRES"]),
        gpu_memory_bytes=max(used, default=None),
        nodes=job.get("NodeList", ""),
        summary=gpu_memory(job.get("AdminComment", "")),
    )


def _tres(text: str) -> dict[str, float]:
    """Trackable resources such as ``cpu=8,gres/gpu:a100=2,mem=64G``, by name."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {
        name: float(found[1]) * 1024 ** _POWERS[found[2]]
        for name, _, value in pairs
        if (found := _SIZE.fullmatch(value))
    }


def _moment(text: str) -> datetime | None:
    """A time of ``sacct``: seconds, or in the form of ISO 8601, then in this machine's zone."""
    if text.isascii() and text.isdigit():
        return datetime.fromtimestamp(int(text), UTC) if int(text) else None
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:  # Unknown, None
        return None


def _rows_of_json(text: str) -> Iterator[_Row]:
    try:
        jobs = json.loads(text)["jobs"]
        for job in jobs:
            yield _row_of_json(job)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput({"source": f"it is not what sacct --json writes: {error!r}"}) from error


def _row_of_json(job: Mapping[str, Any]) -> _Row:
    time, state = job["time"], job["state"]["current"]
    start = _number(time["start"])
    used = [
        _listed(step["tres"]["requested"].get("total") or []).get(_GPU_MEMORY, 0)
        for step in job.get("steps", [])
    ]
    return _Row(
        id=str(job["job_id"]),
        cluster=job.get("cluster") or "",
        user=job.get("user") or job["association"]["user"],
        name=job.get("name") or "",
        partition=job.get("partition") or "",
        state=state if isinstance(state, str) else state[0],  # a list since Slurm 23.11
        start=datetime.fromtimestamp(start, UTC) if start else None,
        elapsed_seconds=_number(time["elapsed"]),
        tres=_listed(job["tres"]["allocated"]),
        gpu_memory_bytes=max(used, default=None),
        nodes=job.get("nodes") or "",
        summary=gpu_memory(job["comment"].get("administrator") or ""),
    )


def _listed(tres: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Trackable resources of the JSON under the names of ``AllocTRES``."""
    return {
        "/".join(filter(None, (one["type"], one["name"]))): _number(one["count"]) for one in tres
    }


def _number(value: Any) -> float:
    """A number of the JSON, which newer releases wrap to say that it may be unset."""
    if isinstance(value, Mapping):
        return float(value["number"]) if value.get("set") and not value.get("infinite") else 0.0
    return float(value)
