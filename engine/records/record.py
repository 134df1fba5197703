"""The record of one real training run, as plain data that can be written, sent and read back.

This is the one description of its fields: the site reads records by this class too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5

from ..core.errors import InvalidInput
from ..core.parsing import choice, plain_text, positive_number, shown, unknown_fields, whole_number

SCHEMA_VERSION = 1

_OF_A_PROGRAM = ("program", "program_hash")
_COUNT = 2**40
_BYTES = 2**50
_SECONDS = 1e9
_PER_SECOND = 1e12
_MAX_VERSIONS = 32
_RUNS = UUID("4f0c1b4e-6a53-4c1e-9d55-0f4d7d1f1e0a")
"""The namespace of the ids of training runs."""


class Loop(StrEnum):
    """Kind of training loop."""

    PLAIN = "plain"
    TRAINER = "trainer"
    LIGHTNING = "lightning"


@dataclass(frozen=True)
class TrainingRecord:
    """Measurements and settings of one training run. Every number is measured.

    Memory is that of the first process (rank 0), the only one that records.

    Attributes:
        batch_size: Samples per micro-batch, on each device.
        gradient_accumulation: Micro-batches per optimizer step.
        world_size: Devices that share a step.
        steps: Optimizer steps recorded.
        samples: Samples in all those steps, over micro-batches and devices. The smaller last batch
            of an epoch counts as a full one, unless the loop passed its number of samples.
        warm_up_steps: First steps, which are counted but not timed.
        timed_steps: Steps after the warm-up, except those that included an evaluation or a
            checkpoint.
        step_seconds: Median time from the end of one optimizer step to the end of the next,
            including the wait for data. ``None`` if no step was timed.
        step_seconds_low, step_seconds_high: The quartiles. ``None`` if fewer than two steps were
            timed.
        samples_per_second: Median over the timed steps, for all devices together.
        peak_allocated_bytes: Most bytes held by tensors at once; ``None`` without CUDA.
        peak_reserved_bytes: Most bytes held by the caching allocator; ``None`` without CUDA.
        process_peak_bytes: Peak resident host memory of the process since it started, including
            Python and all libraries. ``None`` if unknown.
        device: ``cuda``, ``cpu`` or ``mps``.
        device_name: The driver's name for it.
        device_uuid: UUID from CUDA; empty without it.
        device_total_bytes: Its memory; on the CPU, the machine's.
        versions: Versions of Python, CUDA and the installed frameworks, by name.
        precision: Named as in :class:`~engine.interface.workload.Precision`, or by the framework;
        empty if
            unknown.
        parameter_bytes: Bytes of the model's parameters in this process; ``None`` if unknown. By it
            a run of another model is told from one of the predicted model.
        model_name: For people to read; may be empty.
        started_at, ended_at: UTC, in ISO 8601. The end is that of the last step.
        loop: Kind of training loop.
        interrupted: Whether an exception ended it.
        analysis_id: The analysis that it belongs to, on the lab's site.
        program, program_hash: Name and hash of the script, as its analysis gave them; empty if
            unknown. By both, a lab finds the analysis of a run that names none.
        schema_version: Version of this format.

    Raises:
        InvalidInput: On construction, with a message for each wrong field.
    """

    batch_size: int
    steps: int
    samples: int
    warm_up_steps: int
    timed_steps: int
    device: str
    device_name: str
    device_total_bytes: int
    started_at: str
    ended_at: str
    loop: Loop
    gradient_accumulation: int = 1
    world_size: int = 1
    step_seconds: float | None = None
    step_seconds_low: float | None = None
    step_seconds_high: float | None = None
    samples_per_second: float | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    process_peak_bytes: int | None = None
    device_uuid: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    precision: str = ""
    model_name: str = ""
    interrupted: bool = False
    analysis_id: int | None = None
    parameter_bytes: int | None = None
    program: str = ""
    program_hash: str = ""
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        wrong: dict[str, str] = {}
        self._settle_numbers(wrong)
        self._settle_words(wrong)
        for name in ("started_at", "ended_at"):
            object.__setattr__(self, name, _moment(name, getattr(self, name), wrong))
        if not wrong:
            wrong |= self._contradictions()
        if wrong:
            raise InvalidInput(wrong)

    def _settle_numbers(self, wrong: dict[str, str]) -> None:
        for name, smallest, largest in _WHOLE:
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                number = whole_number(name, value, smallest, largest, wrong)
                object.__setattr__(self, name, number)
        for name, most in _REAL:
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, positive_number(name, value, most, wrong))
        if self.schema_version != SCHEMA_VERSION:
            wrong["schema_version"] = (
                f"{shown(self.schema_version)} is not known here, only {SCHEMA_VERSION}"
            )

    def _settle_words(self, wrong: dict[str, str]) -> None:
        if choice("device", self.device, _DEVICES, wrong):
            plain_text("device_name", self.device_name, wrong)
        for name in ("device_uuid", "precision", "model_name", *_OF_A_PROGRAM):
            if (value := getattr(self, name)) != "":
                plain_text(name, value, wrong)
        if choice("loop", self.loop, Loop, wrong):
            object.__setattr__(self, "loop", Loop(self.loop))
        if not _is_yes_or_no(self.interrupted):
            wrong["interrupted"] = f"{shown(self.interrupted)} is neither true nor false"
        if not _are_versions(self.versions):
            wrong["versions"] = f"enter at most {_MAX_VERSIONS} names and versions, as text"

    def _contradictions(self) -> dict[str, str]:
        """Values that contradict each other, by the field to look at."""
        wrong = {}
        if self.timed_steps > max(0, self.steps - self.warm_up_steps):
            wrong["timed_steps"] = "more than the steps after the warm-up"
        times = (self.step_seconds, self.samples_per_second)
        if any((value is None) != (self.timed_steps == 0) for value in times):
            wrong["step_seconds"] = "must be set if, and only if, steps were timed"
        quartiles = (self.step_seconds_low, self.step_seconds_high)
        if any((value is None) != (self.timed_steps < 2) for value in quartiles):
            wrong["step_seconds_low"] = "quartiles need at least two timed steps"
        spread = [self.step_seconds_low, self.step_seconds, self.step_seconds_high]
        known = [seconds for seconds in spread if seconds is not None]
        if known != sorted(known):
            wrong["step_seconds"] = "the median must lie between the quartiles"
        allocated, reserved = self.peak_allocated_bytes, self.peak_reserved_bytes
        if allocated is not None and reserved is not None and allocated > reserved:
            wrong["peak_reserved_bytes"] = "less than the allocated peak"
        if self.ended_at < self.started_at:
            wrong["ended_at"] = "before the start"
        return wrong

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> TrainingRecord:
        """Read a record from untrusted fields, as :meth:`to_dict` writes them.

        Raises:
            InvalidInput: With a message for each wrong, unknown or missing field.
        """
        known = {known.name for known in fields(cls)}
        needed = {
            known.name
            for known in fields(cls)
            if known.default is MISSING and known.default_factory is MISSING
        } | {"schema_version"}
        wrong = unknown_fields(given, known)
        wrong |= dict.fromkeys(needed - given.keys(), "is missing")
        if wrong:
            raise InvalidInput(wrong)
        values: dict[str, Any] = dict(given)
        return cls(**values)

    @property
    def id(self) -> str:
        """A UUID of the run: the same, whichever way its record goes and however often."""
        run = self.to_dict() | {"analysis_id": None}  # which may be named later
        return str(uuid5(_RUNS, json.dumps(run, sort_keys=True)))

    def to_dict(self) -> dict[str, object]:
        """The fields as plain JSON values; the inverse of :meth:`parse`.

        Those of a program are left out where it has none, so that the ids of older records stay.
        """
        plain = asdict(self)
        return {name: plain[name] for name in plain if plain[name] or name not in _OF_A_PROGRAM}


def _moment(name: str, value: object, wrong: dict[str, str]) -> str:
    """A time in one format, so that two can be compared as text."""
    try:
        moment = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        moment = None
    if moment is None or moment.utcoffset() != timedelta(0):
        wrong[name] = f"{shown(value)} is not a UTC time; write 2026-01-31T12:00:00+00:00"
        return ""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _is_yes_or_no(value: object) -> bool:
    return isinstance(value, bool)


def _are_versions(value: object) -> bool:
    if not (isinstance(value, dict) and len(value) <= _MAX_VERSIONS):
        return False
    wrong: dict[str, str] = {}
    for text in (*value.keys(), *value.values()):
        plain_text("versions", text, wrong)
    return not wrong


_WHOLE = [
    ("batch_size", 1, _COUNT),
    ("gradient_accumulation", 1, _COUNT),
    ("world_size", 1, _COUNT),
    ("steps", 0, _COUNT),
    ("samples", 0, 2**60),
    ("warm_up_steps", 0, _COUNT),
    ("timed_steps", 0, _COUNT),
    ("device_total_bytes", 0, _BYTES),
    ("peak_allocated_bytes", 0, _BYTES),
    ("peak_reserved_bytes", 0, _BYTES),
    ("process_peak_bytes", 0, _BYTES),
    ("analysis_id", 1, 2**63 - 1),
    ("parameter_bytes", 0, _BYTES),
]
_OPTIONAL = {
    "peak_allocated_bytes", "peak_reserved_bytes", "process_peak_bytes", "analysis_id",
    "parameter_bytes",
}  # fmt: skip
_REAL = [
    ("step_seconds", _SECONDS),
    ("step_seconds_low", _SECONDS),
    ("step_seconds_high", _SECONDS),
    ("samples_per_second", _PER_SECOND),
]
_DEVICES = ("cuda", "cpu", "mps")
