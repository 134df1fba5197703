"""The engine process: kept warm, driven by JSON lines, ended with all its children."""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil
from django.conf import settings

from analyses.jobs import engine_bounds
from analyses.jobs.environments import OWN
from engine.versions.environments import Environment

logger = logging.getLogger(__name__)

MAX_LINE_BYTES = 4 * 2**20
"""A result with its curve takes some 100 kB; what is longer than this is cut."""

STDERR_LINES_KEPT = 20
STDERR_LINE_CHARACTERS = 1000
TERM_GRACE_SECONDS = 1.0
NICENESS = 5
"""An engine that lets others go first gets a quarter of a processor that one of them wants too (335
of 1,024 + 335 in the kernel's ``sched_prio_to_weight``), so it ends all the same."""

MAX_ANSWERS = 200
MAX_BYTES = 4 * 2**30
"""An engine that has traced many models takes about 1 GiB; one beyond this is leaking."""

_READ_BYTES = 2**16


@dataclass(frozen=True)
class Line:
    """One line of output; ``stream`` is ``stdout`` or ``stderr``."""

    stream: str
    text: str


class LineSplitter:
    """Joins chunks of bytes into lines, and buffers at most one line of the maximum length."""

    def __init__(self) -> None:
        self._rest = b""
        self._overlong = False

    def feed(self, chunk: bytes) -> list[str]:
        """The lines this chunk completes."""
        *complete, self._rest = (self._rest + chunk).split(b"\n")
        lines = []
        for line in complete:
            if not self._overlong:
                lines.append(_text(line[:MAX_LINE_BYTES]))
            self._overlong = False
        if len(self._rest) > MAX_LINE_BYTES:
            if not self._overlong:
                lines.append(_text(self._rest[:MAX_LINE_BYTES]))
            self._rest, self._overlong = b"", True
        return lines

    def end(self) -> list[str]:
        """The last line, if it had no line ending."""
        line, self._rest = self._rest, b""
        return [_text(line)] if line and not self._overlong else []


class EngineProcess:
    """One engine, which handles one request after another.

    It runs in its own session, so that ending it ends its children too. It exits when this process
    is gone, since its standard input then ends.
    """

    def __init__(self, command: Sequence[str], software: str = OWN) -> None:
        self.software = software
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=settings.BASE_DIR,
            env=engine_bounds.environment(os.environ),
            start_new_session=True,
            preexec_fn=engine_bounds.limit_resources,  # it takes no lock
            **engine_bounds.account(),
        )
        engine_bounds.offer_to_kernel(self.pid)
        self._selector = selectors.DefaultSelector()
        self._splitters = {"stdout": LineSplitter(), "stderr": LineSplitter()}
        self._open = set(self._splitters)
        self._unsent = b""
        self._had_to_be_killed = False
        os.set_blocking(self._pipe("stdin").fileno(), False)
        for name in self._splitters:
            pipe = self._pipe(name)
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, name)
        self._stderr_tail: deque[str] = deque(maxlen=STDERR_LINES_KEPT)
        self.answers = 0

    @property
    def pid(self) -> int:
        """The process id of the engine, and of its process group."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit status, negative for a signal; ``None`` while it runs."""
        return self._process.poll()

    @property
    def was_killed(self) -> bool:
        """Whether something else ended it with KILL, such as a kernel that is out of memory."""
        return self.returncode == -signal.SIGKILL and not self._had_to_be_killed

    @property
    def stderr_tail(self) -> str:
        """The last lines it wrote to standard error."""
        return "\n".join(self._stderr_tail)

    def let_others_first(self) -> None:
        """Give it what processor time others leave, from now on; it cannot have more again.

        An engine is a session of its own. Where the kernel shares out processors by sessions, the
        priority of that counts, and the one of the process only within it (``sched(7)``).
        """
        with suppress(OSError):  # it has ended, or the system does not allow it; then it competes
            os.setpriority(os.PRIO_PROCESS, self.pid, NICENESS)
            Path(f"/proc/{self.pid}/autogroup").write_text(str(NICENESS))

    def is_large(self) -> bool:
        """Whether it holds more memory than an engine should."""
        try:
            return bool(psutil.Process(self.pid).memory_info().rss > MAX_BYTES)
        except psutil.NoSuchProcess:
            return False

    def send(self, request: Mapping[str, object]) -> None:
        """Send a request in the format of :mod:`engine.run` without waiting for the engine.

        :meth:`read` writes whatever does not fit into the pipe now, so a frozen engine does not
        block its worker. Standard input stays open; closing it would end the engine.
        """
        self._unsent += json.dumps(request).encode() + b"\n"
        self._selector.register(self._pipe("stdin"), selectors.EVENT_WRITE, "stdin")
        self._write()

    def read(self, timeout_seconds: float) -> list[Line]:
        """Its output since the last call; waits up to the timeout for some."""
        lines: list[Line] = []
        if self.silent:
            return lines
        for key, _ in self._selector.select(timeout_seconds):
            if key.data == "stdin":
                self._write()
            else:
                lines += self._read_pipe(key.data)
        self._stderr_tail.extend(
            line.text[:STDERR_LINE_CHARACTERS] for line in lines if line.stream == "stderr"
        )
        return lines

    @property
    def silent(self) -> bool:
        """Whether there can be no more output."""
        return not self._open

    def end(self) -> None:
        """End it and its children: TERM, then KILL for those still running."""
        if self.returncode is None:
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(TERM_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._had_to_be_killed = True
                self._signal(signal.SIGKILL)
        self._signal(signal.SIGKILL)  # children it left behind
        self._process.wait()
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _write(self) -> None:
        """Write as much of the request as the pipe takes."""
        pipe = self._pipe("stdin")
        try:
            written: int | None = pipe.write(self._unsent)  # None: the pipe is full
        except BrokenPipeError:
            logger.warning("the engine exited before it received its request")
            written = len(self._unsent)
        self._unsent = self._unsent[written or 0 :]
        if not self._unsent:
            self._selector.unregister(pipe)

    def _read_pipe(self, name: str) -> list[Line]:
        splitter, pipe = self._splitters[name], self._pipe(name)
        chunk: bytes | None = pipe.read(_READ_BYTES)
        if chunk is None:
            return []  # spurious wake-up
        if not chunk:
            self._selector.unregister(pipe)
            self._open.discard(name)
        texts = splitter.feed(chunk) if chunk else splitter.end()
        return [Line(name, text) for text in texts]

    def _pipe(self, name: str) -> IO[bytes]:
        pipe: IO[bytes] = getattr(self._process, name)
        return pipe

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return  # no process is left (macOS gives EPERM for a group of zombies)


class Engines:
    """Keeps engines warm, so that an analysis need not wait for torch to load.

    One waits with the node's own software, and one with the other software that was last needed.
    A prediction's engine is reused for the next one, unless it has served many requests or grown
    large, so that memory leaks in its libraries end with it.

    Attributes:
        keep_traces: Whether the engines keep the traces of the last workloads.
    """

    def __init__(self, *, keep_traces: bool = False) -> None:
        self.keep_traces = keep_traces
        self._warm: dict[str, EngineProcess] = {}  # by the name of the environment

    def prepare(self, environment: Environment | None = None) -> None:
        """Make sure that an engine is waiting; replace a dead one.

        Args:
            environment: Its software; the node's own by default.
        """
        name = environment.name if environment else OWN
        if name in self._warm and self._warm[name].returncode is not None:
            self._end(name)
        if name not in self._warm:
            command = list(settings.ENGINE_COMMAND)
            if environment is not None and name != OWN:
                command[0] = str(environment.python)
            options = ["--keep-traces"] if self.keep_traces else []
            self._warm[name] = EngineProcess([*command, *options], software=name)

    def take(self, environment: Environment | None = None) -> EngineProcess:
        """The waiting engine, now the caller's; a new one if none is alive."""
        self.prepare(environment)
        return self._warm.pop(environment.name if environment else OWN)

    def give_back(self, engine: EngineProcess) -> None:
        """Keep an engine that is done and waits for the next request."""
        engine.answers += 1
        if engine.software in self._warm or engine.answers >= MAX_ANSWERS or engine.is_large():
            engine.end()
            return
        if engine.software != OWN:
            for other in self._warm.keys() - {OWN}:
                self._end(other)
        self._warm[engine.software] = engine

    def close(self) -> None:
        """End the waiting engines."""
        for name in list(self._warm):
            self._end(name)

    def _end(self, name: str) -> None:
        self._warm.pop(name).end()


def _text(line: bytes) -> str:
    # PostgreSQL cannot store NUL in text.
    return line.decode(errors="replace").rstrip("\r").replace("\0", "\ufffd")
