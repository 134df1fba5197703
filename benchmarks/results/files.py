"""Result files, and the commands that produce them.

A file holds the numbers one command printed, with the command, day, machine and versions.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil

FOLDER = Path(__file__).parent

_PACKAGES = ("torch", "transformers", "lightning", "accelerate", "django", "psycopg")


@dataclass(frozen=True)
class Machine:
    """The machine behind a result, without identifying it.

    Attributes:
        system: Such as ``Linux x86_64``.
        load: The load average of the minute before: how busy other programs kept it.
    """

    system: str
    cores: int
    memory_bytes: int
    load: float

    @classmethod
    def here(cls) -> Machine:
        return cls(
            system=f"{platform.system()} {platform.machine()}",
            cores=os.cpu_count() or 1,
            memory_bytes=psutil.virtual_memory().total,
            load=round(os.getloadavg()[0], 1),
        )


@dataclass(frozen=True)
class Result:
    """The output of one command.

    Attributes:
        made_on: The UTC date, as ``2026-11-20``.
        seconds: Duration of the command.
        exit_status: Exit status of the command; each command defines its own other than 0.
        versions: Versions of Python and the packages it may have used.
        figures: The JSON it printed.
    """

    command: str
    made_on: str
    seconds: float
    exit_status: int
    machine: Machine
    versions: dict[str, str]
    figures: dict[str, Any]


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def write(name: str, result: Result, folder: Path = FOLDER) -> Path:
    file = folder / f"{name}.json"
    file.write_text(f"{as_text(asdict(result))}\n", encoding="utf-8")
    return file


def as_text(value: object, margin: str = "") -> str:
    """JSON with an item of a list on each line, so that a change of one row is a change of one."""
    inner = f"{margin} "
    if isinstance(value, dict) and value:
        items = [f"{json.dumps(name)}: {as_text(one, inner)}" for name, one in value.items()]
    elif isinstance(value, list) and any(isinstance(one, dict | list) for one in value):
        items = [json.dumps(one, ensure_ascii=False) for one in value]
    else:
        return json.dumps(value, ensure_ascii=False)
    first, last = "{}" if isinstance(value, dict) else "[]"
    lines = f",\n{inner}".join(items)
    return f"{first}\n{inner}{lines}\n{margin}{last}"


def read(name: str, folder: Path = FOLDER) -> Result:
    """Read a result from its file.

    Raises:
        OSError: If it does not exist; ``make results`` creates it.
        ValueError: If it is not a result.
    """
    text = (folder / f"{name}.json").read_text(encoding="utf-8")
    fields = json.loads(text)
    try:
        return Result(**fields | {"machine": Machine(**fields["machine"])})
    except (TypeError, KeyError) as error:
        raise ValueError(f"{name}.json is not a result file: {error}") from error


POSTGRES = "$TEST_POSTGRES_URL"
"""Stands for the address of a PostgreSQL server, which may contain a password."""

_PAGES, _SCALE, _SPEED, _CLIENTS = (
    f"drills.{name}" for name in ("pages", "scale", "speed", "clients")
)

COMMANDS = {
    "accuracy": "benchmarks.accuracy",
    "h100": "benchmarks.h100",
    "cpu": "engine validate prediction bert resnet --gpu local --memory-limit 2GiB",
    "cpu-gpt2": "engine validate prediction gpt2 --gpu local --memory-limit 5GiB",
    "search": "benchmarks.search",
    "curve": "benchmarks.curve",
    "compiled": "benchmarks.compiled",
    "largest": "benchmarks.largest",
    "recording": "benchmarks.recording",
    "step_time": "benchmarks.step_time",
    "regret": "benchmarks.regret",
    "real_code": "benchmarks.real_code",
    "answers": "e2e.answers",
    "pages-sqlite": _PAGES,
    "pages-postgresql": f"{_PAGES} --postgres {POSTGRES}",
    "scale-postgresql": f"{_SCALE} --postgres {POSTGRES}",
    "speed-sqlite": _SPEED,
    "speed-postgresql": f"{_SPEED} --postgres {POSTGRES}",
    "faults": f"drills --postgres {POSTGRES}",
    "clients-sqlite": _CLIENTS,
    "clients-postgresql": f"{_CLIENTS} --postgres {POSTGRES}",
}
"""The module to run and its arguments, by the name of the result file; ``--json`` is added."""


class NoResult(Exception):
    """A command gave no result; the message says why."""


def run(words: str) -> Result:
    """Run one command, written as in :data:`COMMANDS`, and return its output.

    Raises:
        NoResult: If it needs a PostgreSQL server and none is set, or it did not print JSON.
    """
    server_url = os.environ.get(POSTGRES.removeprefix("$"), "")
    if POSTGRES in words and not server_url:
        raise NoResult(f"set {POSTGRES.removeprefix('$')} to the address of a PostgreSQL server")
    arguments = [server_url if word == POSTGRES else word for word in shlex.split(words)]
    machine, begun = Machine.here(), perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", *arguments, "--json"], stdout=subprocess.PIPE, text=True, check=False
    )
    try:
        figures = json.loads(done.stdout)
    except ValueError as error:
        raise NoResult(f"it ended with status {done.returncode} and printed no JSON") from error
    return Result(
        command=f"python -m {words} --json",
        made_on=f"{datetime.now(UTC):%Y-%m-%d}",
        seconds=round(perf_counter() - begun, 1),
        exit_status=done.returncode,
        machine=machine,
        versions=versions(),
        figures=figures,
    )
