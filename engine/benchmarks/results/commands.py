"""The commands behind the figures of README and docs: names, and how each is run."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from time import perf_counter

from engine.benchmarks.results.file import Machine, Result, versions

POSTGRES = "$TEST_POSTGRES_URL"
"""Stands for the address of a PostgreSQL server, which may have a password in it."""

_PAGES, _SPEED, _CLIENTS = (f"analyses.drills.{name}" for name in ("pages", "speed", "clients"))

COMMANDS = {
    "accuracy": "engine.benchmarks.accuracy",
    "cpu": "engine validate prediction bert resnet --gpu local --memory-limit 2GiB",
    "cpu-gpt2": "engine validate prediction gpt2 --gpu local --memory-limit 5GiB",
    "search": "engine.benchmarks.search",
    "curve": "engine.benchmarks.curve",
    "recording": "engine.benchmarks.recording",
    "answers": "memorymark_site.e2e.answers",
    "pages-sqlite": _PAGES,
    "pages-postgresql": f"{_PAGES} --postgres {POSTGRES}",
    "speed-sqlite": _SPEED,
    "speed-postgresql": f"{_SPEED} --postgres {POSTGRES}",
    "clients-sqlite": _CLIENTS,
    "clients-postgresql": f"{_CLIENTS} --postgres {POSTGRES}",
}
"""By the name of its file: the module to run and its arguments, to which ``--json`` is added."""


class NoResult(Exception):
    """A command gave nothing to write down; the message says why."""


def run(words: str) -> Result:
    """Run one command and keep what it says.

    Args:
        words: As in :data:`COMMANDS`.

    Raises:
        NoResult: If it needs a PostgreSQL server and none is named, or did not print JSON.
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
