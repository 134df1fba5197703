"""A lab of real nodes: processes, a database and settings in their own folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import IO, Any, TypeVar, cast

import psutil

from drills.engine import Hold
from drills.node import ROOT, Node
from e2e.running import free_port

DRIVER = Path(__file__).parent / "driver"
CLOCK = Path(__file__).parent / "clock"
START_SECONDS = 60.0
WAIT_SECONDS = 120.0
"""Longer than anything a drill waits for, even on a slow, busy machine."""

T = TypeVar("T")

_SETTINGS = """
from memorymark_site.settings import *
ENGINE_COMMAND = {engine!r}
ENGINE_DEADLINE_SECONDS = 300
QUEUED_PER_MEMBER = 0
HEARTBEAT_SECONDS = {heartbeat!r}
STORAGES["staticfiles"]["BACKEND"] = "django.contrib.staticfiles.storage.StaticFilesStorage"
"""


class Lab:
    """Nodes on one database: by default, SQLite in the lab's folder."""

    def __init__(
        self,
        folder: Path,
        *,
        database_url: str = "",
        trials: int = 4,
        seconds: float = 0.4,
        heartbeat: float = 1.0,
        data_dir: Path | None = None,
        migrated: bool = True,
        result: dict[str, Any],
    ) -> None:
        self.folder, self.database_url = folder, database_url
        self.data_dir = data_dir or folder / "var"
        (folder / "result.json").write_text(json.dumps(result))
        self._heartbeat = heartbeat
        self.make_engine(trials=trials, seconds=seconds)
        inherited = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
        self._environment = inherited | {
            "DJANGO_SETTINGS_MODULE": "lab_settings",
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
            "MEMORYMARK_DATA_DIR": str(self.data_dir),
            "DATABASE_URL": database_url,
        }
        self.nodes: list[Node] = []
        self.sites: list[subprocess.Popen[bytes]] = []
        self._process: subprocess.Popen[str] | None = None
        self._call_lock = Lock()
        if migrated:
            self.manage("migrate", "-v0")

    def make_engine(self, *, trials: int, seconds: float) -> None:
        """Set the trials and the duration of analyses on nodes started from now on."""
        # libfaketime stops the clock of a process that does not have the variable with the shift,
        # and a node does not pass that variable on to its engines.
        engine = ["env", "-u", "LD_PRELOAD", sys.executable, "-m", "drills.engine"]
        engine += [str(self.folder / "result.json"), str(trials), str(seconds), str(self._held)]
        text = _SETTINGS.format(engine=engine, heartbeat=self._heartbeat)
        (self.folder / "lab_settings.py").write_text(text)

    @property
    def _held(self) -> Path:
        return self.folder / "hold"

    def hold(self, *, after: int = 0, gpu: str = "") -> None:
        """Make requests wait half done in the engines until :meth:`release`.

        Args:
            after: An analysis waits after this many trials.
            gpu: Only requests for this GPU wait; empty means any.
        """
        Hold(after, gpu).write(self._held)

    def release(self) -> None:
        """Let the waiting requests continue, if any do wait."""
        self._held.unlink(missing_ok=True)

    def start_node(
        self, name: str, *, gpu_uuid: str = "", clock: str = "", **environment: str
    ) -> Node:
        """Start a node, optionally with its own GPU or a shifted clock.

        Args:
            name: The node's name.
            gpu_uuid: UUID of its GPU.
            clock: The clock's offset in libfaketime's format: "+600s".
            environment: More environment variables.

        Raises:
            FileNotFoundError: With a clock offset, if libfaketime is not installed.
        """
        own = self._environment | {"MEMORYMARK_NODE": name} | environment
        folders = []
        if gpu_uuid:
            own |= {"DRILL_GPU_UUID": gpu_uuid}
            folders.append(str(DRIVER))
        if clock:
            own |= {"LD_PRELOAD": clock_library(), "FAKETIME": clock}
            own |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1"}
            folders.append(str(CLOCK))
        own["PYTHONPATH"] = os.pathsep.join([*folders, own["PYTHONPATH"]])
        self.nodes.append(Node(name, own, self.folder / f"{name}.log"))
        return self.nodes[-1]

    def start_site(self, **environment: str) -> str:
        """Start the site as ``make run`` does; returns its address once it responds.

        Args:
            environment: More environment variables.
        """
        port = str(free_port())
        output = self.folder / f"site-{port}.log"
        own = self._environment | {"HOST": "127.0.0.1", "PORT": port} | environment
        with output.open("wb") as log:
            site = subprocess.Popen(
                [sys.executable, "-m", "memorymark_site", "serve"],
                cwd=ROOT,
                env=own,
                stdout=log,
                stderr=log,
            )
        self.sites.append(site)
        if not until(lambda: _answers(int(port)), START_SECONDS):
            raise RuntimeError(output.read_text())
        return f"http://127.0.0.1:{port}"

    def manage(self, *arguments: str) -> str:
        """Run a management command in the lab; returns its output."""
        return self._run("manage.py", *arguments)

    def call(self, function: str, *arguments: object) -> Any:
        """Call a function of :mod:`drills.inside` in a process of the lab.

        Args:
            function: Its name; with its module if in another one of the drills: ``years.fill``.
            arguments: Values that JSON can hold.

        Raises:
            RuntimeError: The function raised; the message is its traceback.
        """
        module, _, name = function.rpartition(".")
        call = {"module": module or "inside", "name": name, "arguments": arguments}
        with self._call_lock:
            process = self._process or self._start_process()
            calls, replies = cast("tuple[IO[str], IO[str]]", (process.stdin, process.stdout))
            calls.write(f"{json.dumps(call)}\n")
            calls.flush()
            reply = replies.readline()
        if not reply:
            raise RuntimeError((self.folder / "lab_process.log").read_text())
        if "failed" in (answer := json.loads(reply)):
            raise RuntimeError(answer["failed"])
        return answer["answer"]

    def _start_process(self) -> subprocess.Popen[str]:
        with (self.folder / "lab_process.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "drills.lab_process"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return self._process

    def wait_for(self, function: str, *arguments: object, seconds: float = WAIT_SECONDS) -> Any:
        """Call a function until it returns something true; returns the last value."""
        return until(lambda: self.call(function, *arguments), seconds)

    def end(self) -> None:
        """End all processes, whatever state they are in."""
        left = [process for node in self.nodes for process in _all(node.processes())]
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for node in self.nodes:
            node.process.wait()
        for site in self.sites:
            site.terminate()
            site.wait()
        self.nodes, self.sites = [], []
        if self._process is not None:
            self._process.communicate()  # it ends when its input does
            self._process = None
        for process in self._strays():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _strays(self) -> list[psutil.Process]:
        """Processes whose parent has died, such as a pool that a drill has stopped for good."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                folders = process.environ().get("PYTHONPATH", "").split(os.pathsep)
                if str(self.folder) in folders:
                    found.append(process)
        return found

    def _run(self, *arguments: str) -> str:
        return run_python(self._environment, *arguments).strip()


def run_python(environment: Mapping[str, str], *arguments: str, folder: Path = ROOT) -> str:
    """Run Python in the project's folder, or another; returns its standard output.

    Raises:
        RuntimeError: It failed; the message is its standard error.
    """
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def until(check: Callable[[], T], seconds: float = WAIT_SECONDS) -> T:
    """Call a function until it returns something true or time is up; returns the last value."""
    end = monotonic() + seconds
    while not (answer := check()) and monotonic() < end:
        sleep(0.1)
    return answer


def _answers(port: int) -> bool:
    """Whether the site responds, healthy or not; it accepts connections long before that."""
    connection = HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status in (200, 503)
    except OSError:
        return False
    finally:
        connection.close()


def clock_library() -> str:
    """The path of libfaketime, which shifts the clock of a process.

    Raises:
        FileNotFoundError: If it is not installed.
    """
    for library in Path("/usr/lib").rglob("libfaketime.so.1"):
        return str(library)
    raise FileNotFoundError("libfaketime is not installed (Debian: apt install libfaketime)")


def _all(by_role: dict[str, list[psutil.Process]]) -> list[psutil.Process]:
    return [process for processes in by_role.values() for process in processes]
