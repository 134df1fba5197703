"""Work in a forked process: what it does to Python, to files and to the terminal stays there.

Somebody's script may do anything: set flags of PyTorch, leave modules and threads behind, print,
exit. A fork has everything loaded already, so it starts in milliseconds.
"""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Generic, NoReturn, TypeVar

from ...core.errors import EngineError
from ...core.process import die_with_parent
from ...tracing.beside import OwnThread
from ..factory import ScriptFailed

_Answer = TypeVar("_Answer")
Done = Callable[[_Answer | EngineError], NoReturn]
"""Hands the answer over and ends the process at once: nothing of the script runs on."""

_TAIL_BYTES = 4096


class Fork(Generic[_Answer]):
    """Work that runs in a forked process from now on.

    Args:
        work: Function to run there. It is given a function to call with the answer, or with an
            error, which does not return. What it raises is raised by :meth:`answer`.

    Raises:
        EngineError: If this system cannot fork.
    """

    def __init__(self, work: Callable[[Done[_Answer]], object]) -> None:
        if not hasattr(os, "fork"):
            raise EngineError(
                "a script is traced in a forked process, which this system does not have; use "
                "Linux, macOS or the Windows Subsystem for Linux"
            )
        self._printed = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # see close
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        reading, writing = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            os.close(reading)
            _be_the_child(work, writing, self._printed)
        os.close(writing)
        self._answers = os.fdopen(reading, "rb")
        self._owner = os.getpid()

    def answer(self) -> _Answer:
        """Wait for the answer.

        Raises:
            ScriptFailed: If the process ended without one.
            Exception: What the work raised.
        """
        try:
            with self._answers:
                message = self._answers.read()
            _, status = os.waitpid(self._process, 0)
            _remove_left_by(self._process)
            self._process = 0
            if not message:
                raise ScriptFailed(_ended(os.waitstatus_to_exitcode(status)))
            failed, found = pickle.loads(message)  # noqa: S301  # nosec  # from our own fork
            if failed:
                raise found
        finally:
            self.close()
        answer: _Answer = found
        return answer

    def __del__(self) -> None:
        if getattr(self, "_owner", None) == os.getpid():  # other forks have copies of this one
            self.close()

    def close(self) -> None:
        """End the process, if it has not ended yet."""
        if self._process:
            with suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)
            _remove_left_by(self._process)
            self._process = 0
        self._answers.close()
        self._printed.close()


def folder_prefix(process: int) -> str:
    """The beginning of the names of temporary folders that a forked process makes for itself."""
    return f"memorymark-{process}-"


def _remove_left_by(process: int) -> None:
    """Remove the folders of a process that was ended before it could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{folder_prefix(process)}*"):
        shutil.rmtree(folder, ignore_errors=True)


def in_a_fork(work: Callable[[Done[_Answer]], object]) -> _Answer:
    """Do something in a forked process, and wait for its answer; see :class:`Fork`."""
    return Fork(work).answer()


def _be_the_child(
    work: Callable[[Done[_Answer]], object], writing: int, printed: IO[str]
) -> NoReturn:
    """Do the work in the forked process, and end it."""

    def end(found: object) -> NoReturn:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the script may have closed or replaced it
                stream.flush()
        message = pickle.dumps((isinstance(found, EngineError), found))
        with os.fdopen(writing, "wb") as answers:
            answers.write(message)
        os._exit(0)

    try:
        die_with_parent()
        gc.freeze()  # to look through all that was loaded before would copy its memory
        _redirect(printed)
        work(end)
        end(EngineError("the forked process ended without an answer"))
    except EngineError as error:
        end(error)
    except BaseException as error:  # a fork must not run on into its parent's code
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.filename}, line {frame.lineno}"
        end(EngineError(f"tracing failed at {where}: {type(error).__name__}: {error}"))
    finally:
        os._exit(1)


def _redirect(printed: IO[str]) -> None:
    """Let the script print into a file, and read nothing.

    The streams are new ones: a thread of the parent may have held the lock of the old ones while
    it forked.
    """
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (printed.fileno(), 1), (printed.fileno(), 2)):
        os.dup2(source, target)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False, errors="replace")
    sys.stderr = os.fdopen(2, "w", 1, closefd=False, errors="backslashreplace")
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)


def last_words() -> str:
    """The last line that was printed in this fork; empty if nothing was."""
    size = os.fstat(1).st_size
    printed = os.pread(1, _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode(errors="replace")
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _ended(status: int) -> str:
    if status == -signal.SIGKILL:
        return "the operating system killed the script; most likely host memory ran out"
    if status < 0:
        return f"the script was ended by signal {-status} ({signal.Signals(-status).name})"
    return f"the script ended its process with status {status}; take out os._exit or os.exec"


def watch(seconds: float, late: Callable[[traceback.StackSummary], object]) -> Callable[[], None]:
    """Call a function once a time has passed, with the stack of this thread; in a fork.

    Args:
        seconds: Time to wait.
        late: Called in a thread of its own.

    Returns:
        Call it to stop watching.
    """
    watched, stopped = threading.get_ident(), threading.Event()

    def wait() -> None:
        begin = time.monotonic()
        while not stopped.wait(max(0.0, begin + seconds - time.monotonic())):
            if time.monotonic() - begin >= seconds:
                late(traceback.extract_stack(sys._current_frames()[watched]))
                return

    OwnThread(target=wait, daemon=True).start()
    return stopped.set
