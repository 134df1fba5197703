"""Work side by side in forked processes, as many at a time as there are cores.

A fork has everything loaded already, traces included, so it starts in milliseconds.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import traceback
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Generic, Self, TypeVar

from ...core.errors import EngineError
from ...core.process import die_with_parent, processors
from ...versions.patches import patched

_Key = TypeVar("_Key", bound=Hashable)
_Found = TypeVar("_Found")

MAX_PROCESSES = 4
"""Each takes some 500 MB of memory for a model of 8 billion parameters."""


def processes_here() -> int:
    """Number of processes that can work at a time: one where forks cannot be made, or not trace."""
    if not hasattr(os, "fork"):
        return 1
    from ...tracing.hidden_gpus import forks_can_trace  # loads torch

    if not forks_can_trace():
        return 1
    return min(processors(), MAX_PROCESSES)


class SideBySide(Generic[_Key, _Found]):
    """Tasks that are done in forked processes; with one process, in this one.

    A context: at its end, tasks whose results are no longer wanted are ended.

    Args:
        processes: Number of processes that work at a time.
        niceness: What is added to that of this process.
    """

    def __init__(self, processes: int, niceness: int = 0) -> None:
        self._most = processes
        self._niceness = niceness
        self._waiting: deque[tuple[_Key, Callable[[], _Found]]] = deque()
        self._running: dict[Connection, tuple[_Key, BaseProcess]] = {}

    def add(self, key: _Key, task: Callable[[], _Found], *, first: bool = False) -> None:
        """Add a task.

        Args:
            key: Given back with what it finds.
            task: The task, whose result is pickled.
            first: Whether it comes before those that wait already.
        """
        (self._waiting.appendleft if first else self._waiting.append)((key, task))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for receiving, (_, process) in self._running.items():
            process.kill()
            process.join()
            receiving.close()
        self._running.clear()

    def begin(self) -> None:
        """Start tasks beside this process, which goes on with work of its own."""
        self._start_up_to(self._most - 1)

    def results(self) -> Iterator[tuple[_Key, _Found | EngineError]]:
        """Results of the tasks, as they end. More may be added meanwhile.

        A task that fails gives the error that it raised; one whose process was killed, or that
        raised something else there, an error that says so.
        """
        while self._waiting or self._running:
            if self._most == 1:
                key, task = self._waiting.popleft()
                yield key, _done(task)
                continue
            self._start_up_to(self._most)
            ended = wait(list(self._running))
            for receiving in [one for one in self._running if one in ended]:
                yield self._finish(receiving)

    def _start_up_to(self, most: int) -> None:
        while self._waiting and len(self._running) < most:
            self._start(*self._waiting.popleft())

    def _start(self, key: _Key, task: Callable[[], _Found]) -> None:
        forking = multiprocessing.get_context("fork")
        receiving, sending = forking.Pipe(duplex=False)
        process = forking.Process(
            target=_be_the_child, args=(task, sending, self._niceness), daemon=True
        )
        # The child would close sys.stdin, and wait for ever where a thread of ours reads it.
        with patched(
            sys,
            "stdin",
            None,
            why="a child would close it, and wait for ever where a thread of ours reads it",
        ):
            process.start()
        sending.close()
        self._running[receiving] = (key, process)

    def _finish(self, receiving: Connection) -> tuple[_Key, _Found | EngineError]:
        key, process = self._running.pop(receiving)
        try:
            found = receiving.recv()
        except EOFError:
            found = EngineError("a forked process was killed; most likely host memory ran out")
        finally:
            receiving.close()
            process.kill()  # what libraries do at the end of a process may take for ever
            process.join()
        return key, found


def _be_the_child(task: Callable[[], _Found], sending: Connection, niceness: int) -> None:
    import torch  # is loaded already

    die_with_parent()
    os.nice(niceness)
    torch.set_num_threads(1)  # threads of its own do not survive a fork
    gc.disable()  # looking through all that was loaded before would copy its memory
    try:
        sending.send(_done(task))
    except BaseException as error:
        traceback.print_exc()
        sending.send(EngineError(f"{type(error).__name__}: {error}"))


def _done(task: Callable[[], _Found]) -> _Found | EngineError:
    try:
        return task()
    except EngineError as error:
        return error
