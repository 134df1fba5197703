"""A lab of real nodes: processes, a database and settings in a folder of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

import psutil

ROOT = Path(__file__).resolve().parents[2]
DRIVER = Path(__file__).parent / "driver"
CLOCK = Path(__file__).parent / "clock"
STOP_SECONDS = 15.0
START_SECONDS = 60.0

T = TypeVar("T")

_SETTINGS = """
from memorymark_site.settings import *
ENGINE_COMMAND = {engine!r}
ENGINE_DEADLINE_SECONDS = 60
HEARTBEAT_SECONDS = {heartbeat!r}
STORAGES["staticfiles"]["BACKEND"] = "django.contrib.staticfiles.storage.StaticFilesStorage"
"""
_CALL = """
import importlib, json, sys, django
django.setup()
module = importlib.import_module(f"analyses.drills.{sys.argv[1]}")
print(json.dumps(getattr(module, sys.argv[2])(*json.loads(sys.argv[3]))))
"""


class Node:
    """A node process, which a process manager would start again when it ends."""

    def __init__(self, name: str, environment: dict[str, str], log: Path) -> None:
        self.name, self._environment, self._log = name, environment, log
        self.start()

    def start(self) -> None:
        """Start the node process, as the process manager does."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "cluster"],
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def keep(self) -> None:
        """Start it again if it has ended."""
        if self.process.poll() is not None:
            self.start()

    def stop(self) -> int:
        """End it in good order; returns its exit status."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        return self.process.wait(STOP_SECONDS)

    def said(self) -> str:
        """Everything it has written."""
        return self._log.read_text(errors="replace")

    def processes(self) -> dict[str, list[psutil.Process]]:
        """Its living processes by role.

        Those are node, pool, guard, staff (workers and helpers) and engine; desk and desk engine.
        """
        found: dict[str, list[psutil.Process]] = {
            role: [] for role in ("node", "pool", "guard", "staff", "engine", "desk", "desk engine")
        }
        if self.process.poll() is not None:
            return found
        with suppress(psutil.NoSuchProcess):
            node = psutil.Process(self.process.pid)
            found["node"] = [node]
            for child in node.children():
                found["desk" if "desk" in child.cmdline() else "pool"].append(child)
            found["desk engine"] = _children(found["desk"])
            found["guard"] = _children(found["pool"])
            found["staff"] = _children(found["guard"])
            found["engine"] = _children(found["staff"])
        return found


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
        if migrated:
            self.manage("migrate", "-v0")

    def make_engine(self, *, trials: int, seconds: float) -> None:
        """Say how each analysis goes on the nodes that are started from now on."""
        # A node whose clock is shifted does that by a library, which stops the clock of a process
        # that is not told the shift; and what it is told by is not in an engine's environment.
        engine = ["env", "-u", "LD_PRELOAD", sys.executable, "-m", "analyses.drills.engine"]
        engine += [str(self.folder / "result.json"), str(trials), str(seconds)]
        text = _SETTINGS.format(engine=engine, heartbeat=self._heartbeat)
        (self.folder / "lab_settings.py").write_text(text)

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
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
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
        """Call a function of :mod:`analyses.drills.inside` in a process of the lab.

        Args:
            function: Its name; one of another module of the drills as ``years.fill``.
            arguments: What JSON can hold.
        """
        module, _, name = function.rpartition(".")
        return json.loads(self._run("-c", _CALL, module or "inside", name, json.dumps(arguments)))

    def wait_for(self, function: str, *arguments: object, seconds: float = 30.0) -> Any:
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


def until(ask: Callable[[], T], seconds: float) -> T:
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


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that run; one that is dead and only not collected yet does not."""
    return [process for process in processes if _is_alive(process)]


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _children(parents: Iterable[psutil.Process]) -> list[psutil.Process]:
    return [child for parent in parents for child in parent.children()]


def _all(by_role: dict[str, list[psutil.Process]]) -> list[psutil.Process]:
    return [process for processes in by_role.values() for process in processes]
