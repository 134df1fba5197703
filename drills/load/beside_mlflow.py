"""The same runs and requests on MemoryMark and on MLflow: ``python -m drills.load.beside_mlflow``.

It fills a lab with analyses, copies their columns to MLflow's database, and lets the same users get
from both the same: a list of runs, a search, one run, six runs side by side. One after the other,
each on SQLite and served by gunicorn with as many processes and threads.

MLflow is in an environment of its own::

    python3 -m venv /tmp/mlflow && /tmp/mlflow/bin/pip install mlflow==3.17.2
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.request import urlopen

import psutil
from rich.console import Console

from drills.commands import add_json_option, answer, new_lab, print_json
from drills.lab import START_SECONDS, Lab, until
from drills.load.__main__ import table
from drills.load.locusts import HERE, MEMBERS, MLFLOW_USERS, add_options, latencies, swarm
from e2e.running import free_port

PROCESSES, THREADS, ROUNDS = 2, 4, 3
_MEMBER, _PASSWORD = "member-0", "a compiler of 1952"  # of this drill alone


@dataclass
class Side:
    """A server and its users.

    Attributes:
        name: Its name in the table.
        server: Its first process.
        url: Its address.
        file: Describes the users to locust.
        users: The class of its users.
        runs: Locust's results, round by round.
        cpu_seconds: Processor time that the server has used for them.
    """

    name: str
    server: subprocess.Popen[bytes]
    url: str
    file: Path
    users: str
    runs: list[list[dict[str, Any]]] = field(default_factory=list)
    cpu_seconds: float = 0.0

    def load(self, locust: Path, users: int, seconds: int) -> None:
        """Let the users send requests for a while."""
        begun = cpu_seconds(self.server.pid)
        self.runs.append(
            swarm(locust, self.file, [self.users], self.url, users=users, seconds=seconds)
        )
        self.cpu_seconds += cpu_seconds(self.server.pid) - begun

    def figures(self) -> dict[str, Any]:
        """The measurements; the processor time includes that of arriving users."""
        found = latencies(*self.runs)
        each = round(1e3 * self.cpu_seconds / found[-1].requests, 1)
        return {"name": self.name, "cpu_ms_per_request": each, "latencies": found}


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill, load, and print the tables or JSON; the errors are in them."""
    options = _parser().parse_args(arguments)
    with new_lab("", result=answer()) as lab:
        lab.call("years.fill", options.runs, f"{lab.folder}/result.json")
        runs = lab.folder / "runs.json"
        lab.call("load.inside.write_runs", f"{runs}")
        with _mlflow(options.mlflow, runs) as (url, server), _site(lab) as sides:
            sides.append(Side("MLflow: REST", server, url, MLFLOW_USERS, "MlflowScript"))
            for _ in range(ROUNDS):  # in turn, so that a slow moment of the machine affects all
                for side in sides:
                    side.load(options.locust, options.users, -(-options.seconds // ROUNDS))
            figures = [side.figures() for side in sides]
    if options.json:
        numbers = {"runs": options.runs, "users": options.users, "seconds": options.seconds}
        for one in figures:
            one["latencies"] = [*map(asdict, one["latencies"])]
        print_json(numbers | {"sides": figures})
        return 0
    console = Console()
    for one in figures:
        console.print(table(one["latencies"], f"{one['name']}, {options.runs:,} runs"))
        console.print(f"processor time of the server: {one['cpu_ms_per_request']:.0f} ms each")
    return 0


@contextmanager
def _site(lab: Lab) -> Iterator[list[Side]]:
    """The lab's site, as scripts and as members use it."""
    token = lab.call("load.inside.make_reader", _MEMBER, _PASSWORD)
    url = lab.start_site(
        MEMORYMARK_API_UNITS="0",  # MLflow does not count requests either
        MEMORYMARK_WEB_PROCESSES=f"{PROCESSES}",
        MEMORYMARK_WEB_THREADS=f"{THREADS}",
    )
    credentials = {"LOAD_MEMBER": _MEMBER, "LOAD_PASSWORD": _PASSWORD, "LOAD_TOKEN": token}
    with mock.patch.dict(os.environ, credentials):
        yield [
            Side(name, lab.sites[0], url, MEMBERS, users)
            for name, users in (("MemoryMark: API", "Script"), ("MemoryMark: pages", "Reader"))
        ]


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and all below it, so far."""
    parent = psutil.Process(pid)
    used = 0.0
    for process in [parent, *parent.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used += times.user + times.system
    return used


@contextmanager
def _mlflow(command: Path, runs: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """MLflow's server with these runs; yields its address and process."""
    folder = runs.parent
    database = f"sqlite:///{folder}/mlflow.db"
    python = command.parent / "python"
    subprocess.run([python, HERE / "fill_mlflow.py", runs, database], check=True, cwd=folder)
    port = free_port()
    order = [f"{command}", "server", "--backend-store-uri", database, "--host", "127.0.0.1"]
    order += ["--port", f"{port}", "--workers", f"{PROCESSES}"]
    order += ["--gunicorn-opts", f"--threads {THREADS}"]
    with (folder / "mlflow.log").open("wb") as log:
        server = subprocess.Popen(
            order,
            cwd=folder,
            stdout=log,
            stderr=log,
            env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        )
    try:
        url = f"http://127.0.0.1:{port}"
        if not until(lambda: _is_up(f"{url}/health"), START_SECONDS):
            raise RuntimeError((folder / "mlflow.log").read_text())
        yield url, server
    finally:
        for process in psutil.Process(server.pid).children(recursive=True):
            process.terminate()
        server.terminate()
        server.wait()


def _is_up(url: str) -> bool:
    try:
        with urlopen(url, timeout=START_SECONDS) as answered:  # noqa: S310  # on this machine
            return bool(answered.status == 200)
    except OSError:
        return False


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m drills.load.beside_mlflow", description=__doc__)
    parser.add_argument("--mlflow", type=Path, required=True, help="the command of MLflow")
    parser.add_argument("--runs", type=int, default=10_000, help="analyses (default 10,000)")
    add_options(parser)
    add_json_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
