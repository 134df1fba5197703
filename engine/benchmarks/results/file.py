"""A file of results: figures, and the command, day, machine and versions behind them."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

FOLDER = Path(__file__).parent

_PACKAGES = ("torch", "transformers", "lightning", "accelerate", "django", "psycopg")


@dataclass(frozen=True)
class Machine:
    """What the figures were made on, in general words.

    Attributes:
        system: Such as ``Linux x86_64``.
        cores: Of its processor.
        memory_bytes: Its memory.
        load: Cores that were wanted in the minute before, on average: what else it was doing.
    """

    system: str
    cores: int
    memory_bytes: int
    load: float

    @classmethod
    def here(cls) -> Machine:
        """This machine, now."""
        return cls(
            system=f"{platform.system()} {platform.machine()}",
            cores=os.cpu_count() or 1,
            memory_bytes=psutil.virtual_memory().total,
            load=round(os.getloadavg()[0], 1),
        )


@dataclass(frozen=True)
class Result:
    """What one command found.

    Attributes:
        command: The one that was run.
        made_on: The day, by UTC, as ``2026-11-20``.
        seconds: How long it took.
        exit_status: Of the command; what else than 0 means is its own.
        machine: What it ran on.
        versions: Of Python and of the packages it may have used.
        figures: What it printed.
    """

    command: str
    made_on: str
    seconds: float
    exit_status: int
    machine: Machine
    versions: dict[str, str]
    figures: dict[str, Any]


def versions() -> dict[str, str]:
    """The versions of Python and of those packages that are installed."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def write(name: str, result: Result, folder: Path = FOLDER) -> Path:
    """Write a result into its file; returns the file."""
    file = folder / f"{name}.json"
    text = json.dumps(asdict(result), indent=1, ensure_ascii=False)
    file.write_text(f"{text}\n", encoding="utf-8")
    return file


def read(name: str, folder: Path = FOLDER) -> Result:
    """Read a result from its file.

    Raises:
        OSError: If it is not there; ``make results`` makes it.
        ValueError: If it is not one.
    """
    text = (folder / f"{name}.json").read_text(encoding="utf-8")
    fields = json.loads(text)
    try:
        return Result(**fields | {"machine": Machine(**fields["machine"])})
    except (TypeError, KeyError) as error:
        raise ValueError(f"{name}.json is no file of results: {error}") from error
