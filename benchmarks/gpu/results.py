"""The results so far: data classes, and their file, which is always replaced as a whole."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.core.errors import EngineError
from engine.gpus.checked import FixedCost
from engine.interface.result import MeasuredOn
from engine.interface.trial import Source, Trial
from engine.measurement.protocol import DeviceFacts

SCHEMA = 1
"""Version of the file format; other versions are refused."""


@dataclass(frozen=True)
class Device:
    """The measured device, its driver and libraries, and their fixed costs.

    Attributes:
        facts: Facts as the engine reads them.
        ran_on: Versions, settings and clocks.
        fixed_costs: Costs in the order of the work; empty on a CPU.
        quick: Whether the run uses the small workloads.
    """

    facts: DeviceFacts
    ran_on: MeasuredOn
    fixed_costs: tuple[FixedCost, ...] = ()
    quick: bool = False

    def identity(self) -> dict[str, object]:
        """The properties that all trials of one file must share, by a name for people."""
        return {
            "device": self.facts.name,
            "memory in bytes": self.facts.total_bytes,
            # Machines of one kind may differ in the patch version.
            "branch of the driver": self.ran_on.driver.partition(".")[0],
            "CUDA": self.ran_on.cuda,
            "torch": self.ran_on.torch,
            "transformers": self.ran_on.transformers,
            "--quick": self.quick,
        }


@dataclass(frozen=True)
class Row:
    """One trial with its prediction.

    Attributes:
        limit_bytes: The emulated capacity; ``None`` for the whole device.
        wall_seconds: Time from order to answer, without the start of a process started ahead.
        predicted: ``None`` until it is predicted.
    """

    workload: str
    limit_bytes: int | None
    measured: Trial
    wall_seconds: float
    predicted: Trial | None = None


@dataclass(frozen=True)
class Predicted:
    """The largest batch predicted to fit."""

    workload: str
    limit_bytes: int | None
    largest_batch_size: int


@dataclass(frozen=True)
class Search:
    """One tool's search for the largest batch.

    Attributes:
        version: The package's version; empty if it needs none. ``None`` if it is not installed; the
            fields from ``answer`` on are then empty.
        answer: The largest batch according to this search.
        trials: Batch sizes it ran, including repeats.
        tried: The batch sizes, and whether they fitted.
    """

    tool: str
    version: str | None
    workload: str
    limit_bytes: int
    answer: int | None = None
    trials: int | None = None
    seconds: float | None = None
    tried: tuple[tuple[int, bool], ...] = ()


@dataclass
class Results:
    """All of it.

    Attributes:
        device: The device measured on.
        commits: The commits of this repository that measured.
        rows: Every trial, in order.
        predicted: The largest batches predicted.
        searches: The searches that were timed.
        failures: Reasons why items could not be measured, by item.
        left_out: The items for which the last run had no time.
        runs: Start of each run and its seconds.
    """

    device: Device
    commits: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    predicted: list[Predicted] = field(default_factory=list)
    searches: list[Search] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    runs: list[tuple[str, float]] = field(default_factory=list)

    def trials(self, workload: str, limit_bytes: int | None) -> list[Trial]:
        return [
            row.measured
            for row in self.rows
            if (row.workload, row.limit_bytes) == (workload, limit_bytes)
        ]

    def largest(self, workload: str, limit_bytes: int | None) -> int | None:
        """The certified largest batch that fits; ``None`` if it is not certified.

        Zero if a single sample does not fit.
        """
        trials = self.trials(workload, limit_bytes)
        failing = min((trial.batch_size for trial in trials if not trial.fits), default=None)
        if failing is None:
            return None
        fitting = [t.batch_size for t in trials if t.fits and t.batch_size < failing]
        largest = max(fitting, default=0)
        return largest if largest + 1 == failing else None

    def largest_predicted(self, workload: str, limit_bytes: int | None) -> int | None:
        """The largest batch predicted to fit; ``None`` if not predicted."""
        for one in self.predicted:
            if (one.workload, one.limit_bytes) == (workload, limit_bytes):
                return one.largest_batch_size
        return None

    def to_json(self) -> str:
        """The inverse of :meth:`from_json`."""
        written: dict[str, Any] = {"schema": SCHEMA, "source": str(Source.MEASURED)} | asdict(self)
        for row in written["rows"]:
            row["measured"] = _short(row["measured"])
            row["predicted"] = row["predicted"] and _short(row["predicted"])
        return json.dumps(written, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Results:
        """Read what :meth:`to_json` wrote.

        Raises:
            EngineError: If it has another schema, or is not a file of results.
        """
        try:
            read = json.loads(text)
            schema = read["schema"]
        except (ValueError, TypeError, KeyError) as error:
            raise EngineError("it contains no results of this benchmark") from error
        if schema != SCHEMA:
            raise EngineError(f"it has schema {schema}, and this engine reads {SCHEMA}")
        try:
            return cls(
                device=device_of(read["device"]),
                commits=read["commits"],
                rows=[_row(row) for row in read["rows"]],
                predicted=[Predicted(**one) for one in read["predicted"]],
                searches=[search_of(one) for one in read["searches"]],
                failures=read["failures"],
                left_out=read["left_out"],
                runs=[(when, seconds) for when, seconds in read["runs"]],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise EngineError(f"its results are damaged: {error!r}") from error


def _short(trial: dict[str, Any]) -> dict[str, Any]:
    """Without unknown values, and without the breakdown, which no report uses."""
    kept = trial.keys() - {"breakdown"}
    return {name: trial[name] for name in trial if name in kept and trial[name] not in (None, "")}


def trial_of(read: dict[str, Any]) -> Trial:
    return Trial(**read | {"source": Source(read["source"])})


def _row(read: dict[str, Any]) -> Row:
    trials = {"measured": trial_of(read["measured"])}
    if read["predicted"] is not None:
        trials["predicted"] = trial_of(read["predicted"])
    return Row(**read | trials)


def device_of(read: dict[str, Any]) -> Device:
    return Device(
        facts=DeviceFacts(**read["facts"]),
        ran_on=MeasuredOn(**read["ran_on"]),
        fixed_costs=tuple(FixedCost(**one) for one in read["fixed_costs"]),
        quick=read["quick"],
    )


def search_of(read: dict[str, Any]) -> Search:
    return Search(**read | {"tried": tuple((size, fits) for size, fits in read["tried"])})


def save(path: Path, results: Results) -> None:
    """Replace the file as a whole, so that a kill never leaves half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    with new.open("w", encoding="utf-8") as file:
        file.write(results.to_json())
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def load(path: Path) -> Results:
    """Read a file.

    Raises:
        EngineError: If it cannot be read; the message names it.
    """
    try:
        return Results.from_json(path.read_text(encoding="utf-8"))
    except (OSError, EngineError, UnicodeDecodeError) as error:
        raise EngineError(f"{path} cannot be used: {error}") from error


def resume(path: Path, device: Device) -> Results:
    """The results of earlier runs on this device; empty without a file.

    Raises:
        EngineError: If the file is of another device or other versions, which are never mixed.
    """
    if not path.exists():
        return Results(device)
    earlier = load(path)
    here, there = device.identity(), earlier.device.identity()
    if differing := [
        f"{name} {there[name]}, here {here[name]}" for name in here if here[name] != there[name]
    ]:
        raise EngineError(
            f"{path} was measured elsewhere ({'; '.join(differing)}): choose another file with "
            "--out, or overwrite it with --fresh"
        )
    return earlier


def format_capacity(limit_bytes: int | None) -> str:
    """Such as ``16 GiB``, or ``the whole device``."""
    if limit_bytes is None:
        return "the whole device"
    gib = limit_bytes / 2**30
    return f"{gib:g} GiB" if gib >= 1 else f"{limit_bytes / 2**20:g} MiB"
