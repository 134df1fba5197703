"""Threads that code starts beside training: plots, loggers, prefetchers.

They see the same machine as training does, but when they get to run is up to the system, and a
trace must not depend on it. So nothing that they compute is recorded, and what they make and let go
is recorded where training waits for them: at the end of each step.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import (
    _get_current_dispatch_mode_stack,
    _push_mode,
)

from ..versions.patches import patched
from .operations import tensors_in
from .operator_mode import OperatorMode
from .whole_operators import arrives_whole, in_parts

_MAX_WAIT_SECONDS = 5.0
"""Time that a step waits for threads that never rest, all in all."""
_LOOK_SECONDS = 0.002
_ASKING_FOR_THE_DEVICE = torch.ops.prim.device.default


class OwnThread(threading.Thread):
    """A thread of the engine, which is not one of the code that it traces."""


class _Here(threading.local):
    beside = False


_here = _Here()


def runs_beside() -> bool:
    """Whether this runs in a thread that was started beside training."""
    return _here.beside


class Shared(Protocol):
    """A recorder, as far as threads beside training are concerned."""

    def share(self, tensors: Sequence[torch.Tensor]) -> None:
        """A thread beside training has read or written these."""

    def made_beside(self, tensors: Sequence[torch.Tensor]) -> None:
        """A thread beside training has made these."""


class _Unrecorded(OperatorMode):
    """Stands in the place of the recorder, in a thread beside training."""

    def __init__(self, recorder: Shared) -> None:
        super().__init__()
        self._recorder = recorder

    def handle(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the operator, and say which tensors are in both threads."""
        if func is _ASKING_FOR_THE_DEVICE and isinstance(args[0], FakeTensor):
            return args[0].fake_device
        if arrives_whole(func):
            return in_parts(self, func, args, kwargs)
        self._recorder.share(tensors_in((args, kwargs)))
        output = func(*args, **kwargs)
        self._recorder.made_beside(tensors_in(output))
        return output


class ThreadsBeside:
    """The threads that were started while they were followed."""

    def __init__(self) -> None:
        self._started: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

    @contextmanager
    def followed(self, recorder: Any) -> Iterator[None]:
        """Let threads that start run on the machine of this one, for as long as the context lasts.

        Args:
            recorder: One of the active modes, and :class:`Shared`; these threads get the others.
        """
        unrecorded = _Unrecorded(recorder)
        modes: list[Any] = [
            unrecorded if mode is recorder else mode for mode in _get_current_dispatch_mode_stack()
        ]
        start = threading.Thread.start

        def started(thread: threading.Thread) -> None:
            if not isinstance(thread, OwnThread):
                vars(thread)["run"] = _on_machine(modes, thread)
                self._started.add(thread)
            start(thread)

        with patched(
            threading.Thread,
            "start",
            started,
            why="threads of the program have to run on the same fake machine",
        ):
            yield

    def wait(self) -> None:
        """Wait until each of them has ended, or waits for something itself."""
        alive = [thread for thread in self._started if thread.is_alive()]
        begin, before = time.monotonic(), None
        while alive and time.monotonic() - begin < _MAX_WAIT_SECONDS:
            now = _resting(alive)
            if now is not None and now == before:
                return
            before = now
            time.sleep(_LOOK_SECONDS)
            alive = [thread for thread in alive if thread.is_alive()]
        for thread in alive:  # it never rests, so nobody waits for it again
            self._started.discard(thread)


def _on_machine(modes: Sequence[Any], thread: threading.Thread) -> Callable[[], None]:
    """Run a thread with these modes active."""

    def run_on_machine() -> None:
        del vars(thread)["run"]
        _here.beside = True
        torch._C._set_only_lift_cpu_tensors(True)  # as the mode of fake tensors does on entering
        for mode in modes:
            _push_mode(mode)
        thread.run()

    return run_on_machine


def _resting(threads: Sequence[threading.Thread]) -> list[tuple[int, int]] | None:
    """Where each of them waits; ``None`` if one does not.

    One that waits for Python's lock goes on as soon as the caller sleeps, so it is elsewhere then.
    """
    places = _places([thread.ident for thread in threads])
    return places if len(places) == len(threads) and all(map(_sleeps, threads)) else None


def _places(idents: Sequence[int | None]) -> list[tuple[int, int]]:
    """The frame and the instruction of each thread that there is."""
    frames = sys._current_frames()
    places = [(id(frames[one]), frames[one].f_lasti) for one in idents if one in frames]
    frames.clear()  # among them is our own, which would keep them all, and their tensors
    return places


def _sleeps(thread: threading.Thread) -> bool:
    """Whether the system has nothing to run for it; true where the system does not say."""
    try:
        status = Path(f"/proc/self/task/{thread.native_id}/stat").read_text(encoding="utf-8")
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] == "S"
