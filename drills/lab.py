"""A lab of real nodes: processes, a database and settings in a folder of their own."""

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
"""Longer than anything takes that a drill waits for, also on a slow machine that does much else."""

T = TypeVar("T")

_SETTINGS = """
from memorymark_site.settings import *
ENGINE_COMMAND = {engine!r}
ENGINE_DEADLINE_SECONDS = 300
HEARTBEAT_SECONDS = {heartbeat!r}
STORAGES["staticfiles"]["BACKEND"] = "django.contrib.staticfiles.storage.StaticFilesStorage"
"""


class Lab:
    """Nodes on one database, which is SQLite in the lab's folder where no other is named."""

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
        self.folder = folder
        (folder / "result.json").write_text(json.dumps(result))
        self._heartbeat = heartbeat
        self.make_engine(trials=trials, seconds=seconds)
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
        self._environment = kept | {
            "DJANGO_SETTINGS_MODULE": "lab_settings",
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
            "MEMORYMARK_DATA_DIR": str(data_dir or folder / "var"),
            "DATABASE_URL": database_url,
        }
        self.nodes: list[Node] = []
        self._site: subprocess.Popen[bytes] | None = None
        self._answering: subprocess.Popen[str] | None = None
        self._asking = Lock()
        if migrated:
            self.manage("migrate", "-v0")

    def make_engine(self, *, trials: int, seconds: float) -> None:
        """Say how each analysis goes on the nodes that are started from now on."""
        # A node whose clock is shifted does that by a library, which stops the clock of a process
        # that is not told the shift; and what it is told by is not in an engine's environment.
        engine = ["env", "-u", "LD_PRELOAD", sys.executable, "-m", "drills.engine"]
        engine += [str(self.folder / "result.json"), str(trials), str(seconds), str(self._held)]
        text = _SETTINGS.format(engine=engine, heartbeat=self._heartbeat)
        (self.folder / "lab_settings.py").write_text(text)

    @property
    def _held(self) -> Path:
        return self.folder / "hold"

    def hold(self, *, after: int = 0, gpu: str = "") -> None:
        """Let questions wait in the engines, so that their middle lasts until :meth:`let_go`.

        Args:
            after: An analysis waits once it has so many trials.
            gpu: Only those about this GPU wait; empty is any.
        """
        Hold(after, gpu).write(self._held)

    def let_go(self) -> None:
        """Let what waits go on."""
        self._held.unlink()

    def start_node(
        self, name: str, *, gpu_uuid: str = "", clock: str = "", **environment: str
    ) -> Node:
        """Start a node, with a GPU of its own or a shifted clock where one is named.

        Args:
            name: Its name.
            gpu_uuid: Of its GPU.
            clock: By how much its clock is off, as libfaketime reads it: "+600s".
            environment: Further variables.

        Raises:
            FileNotFoundError: If the clock is to be shifted and libfaketime is not installed.
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

    def start_site(self) -> str:
        """Start the site as ``make run`` does; returns its address once it answers."""
        port = str(free_port())
        words = ["-m", "gunicorn", "--config", "memorymark_site/gunicorn_conf.py"]
        with (self.folder / "site.log").open("wb") as log:
            self._site = subprocess.Popen(
                [sys.executable, *words, "memorymark_site.wsgi"],
                cwd=ROOT,
                env=self._environment | {"HOST": "127.0.0.1", "PORT": port},
                stdout=log,
                stderr=log,
            )
        if not until(lambda: _answers(int(port)), START_SECONDS):
            raise RuntimeError((self.folder / "site.log").read_text())
        return f"http://127.0.0.1:{port}"

    def manage(self, *arguments: str) -> str:
        """Run a management command of the lab."""
        return self._run("manage.py", *arguments)

    def call(self, function: str, *arguments: object) -> Any:
        """Call a function of :mod:`drills.inside` in a process of the lab.

        Args:
            function: Its name; one of another module of the drills as ``years.fill``.
            arguments: What JSON can hold.

        Raises:
            RuntimeError: It failed; with its traceback.
        """
        module, _, name = function.rpartition(".")
        asked = {"module": module or "inside", "name": name, "arguments": arguments}
        with self._asking:
            process = self._answering or self._start_answering()
            questions, answers = cast("tuple[IO[str], IO[str]]", (process.stdin, process.stdout))
            questions.write(f"{json.dumps(asked)}\n")
            questions.flush()
            told = answers.readline()
        if not told:
            raise RuntimeError((self.folder / "answering.log").read_text())
        if "failed" in (answer := json.loads(told)):
            raise RuntimeError(answer["failed"])
        return answer["answer"]

    def _start_answering(self) -> subprocess.Popen[str]:
        with (self.folder / "answering.log").open("wb") as log:
            self._answering = subprocess.Popen(
                [sys.executable, "-m", "drills.answering"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return self._answering

    def wait_for(self, function: str, *arguments: object, seconds: float = WAIT_SECONDS) -> Any:
        """Call it until its answer is true; returns the last answer."""
        return until(lambda: self.call(function, *arguments), seconds)

    def end(self) -> None:
        """Leave no process behind, whatever state they are in."""
        left = [process for node in self.nodes for process in _all(node.processes())]
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for node in self.nodes:
            node.process.wait()
        if self._site is not None:
            self._site.terminate()
            self._site.wait()
        if self._answering is not None:
            self._answering.communicate()  # it ends when nobody asks any more
            self._answering = None
        for process in self._strays():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _strays(self) -> list[psutil.Process]:
        """Those whose parent has died, such as a pool that a drill has stopped for good."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                folders = process.environ().get("PYTHONPATH", "").split(os.pathsep)
                if str(self.folder) in folders:
                    found.append(process)
        return found

    def _run(self, *arguments: str) -> str:
        return run_python(self._environment, *arguments).strip()


def run_python(environment: Mapping[str, str], *arguments: str) -> str:
    """What a Python of the project writes to its standard output.

    Raises:
        RuntimeError: It failed; with what it has written to standard error.
    """
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def until(ask: Callable[[], T], seconds: float = WAIT_SECONDS) -> T:
    """Ask until the answer is true or the time is over; returns the last answer."""
    end = monotonic() + seconds
    while not (answer := ask()) and monotonic() < end:
        sleep(0.1)
    return answer


def _answers(port: int) -> bool:
    """Whether the site does, healthy or not; it accepts connections long before that."""
    connection = HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status in (200, 503)
    except OSError:
        return False
    finally:
        connection.close()


def clock_library() -> str:
    """Where libfaketime is, which shifts the clock of a process.

    Raises:
        FileNotFoundError: If it is not installed.
    """
    for library in Path("/usr/lib").rglob("libfaketime.so.1"):
        return str(library)
    raise FileNotFoundError("libfaketime is not installed (Debian: apt install libfaketime)")


def _all(by_role: dict[str, list[psutil.Process]]) -> list[psutil.Process]:
    return [process for processes in by_role.values() for process in processes]
