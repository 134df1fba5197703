"""Processes that a script starts itself to train in, one for each GPU.

Real ones would get copies of tensors without values, and nothing of what they train would be seen.
So a process that trains runs in this one, once the script waits for it. Of several with the same
function the first stands for all. A process that gets a pipe or a queue works beside the training
(environments, loaders), and is started as usual.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, ForkServerContext, SpawnContext
from multiprocessing.managers import BaseProxy
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue, SimpleQueue
from typing import Any

import torch
import torch.multiprocessing
from torch.utils._pytree import tree_leaves

from ...core.errors import NotPredictable
from ...versions.patches import patched

_CHANNELS = (Connection, Queue, SimpleQueue, BaseProxy)
_OWNERS: tuple[Any, ...] = (
    multiprocessing,
    torch.multiprocessing,
    ForkContext,
    ForkServerContext,
    SpawnContext,
)


@contextmanager
def processes_in_this_one() -> Iterator[None]:
    """Let processes that train run here when they are waited for, while the context lasts."""
    started: list[Any] = []
    with ExitStack() as stack:
        for owner in _OWNERS:
            stack.enter_context(
                patched(
                    owner,
                    "Process",
                    _run_here(owner.Process, started),
                    why="a process of its own would train where nothing is seen of it",
                )
            )
        yield


class _RunsHere:
    """A process whose function runs where it is waited for; a script's own class is left alone."""

    _started: list[Any]
    ended = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if _is_own(cls) or not _works_beside((args, kwargs)):
            return super().__new__(cls)
        return cls.__bases__[1](*args, **kwargs)

    def start(self: Any) -> None:
        if _is_own(type(self)):
            super().start()  # type: ignore[misc]  # mixed into a process
        else:
            self._started.append(self)

    def join(self: Any, timeout: float | None = None) -> None:
        if _is_own(type(self)):
            super().join(timeout)  # type: ignore[misc]  # as above
        elif self in self._started:
            for one in (_standing_for_all(self._started), self):
                _run(one)

    def is_alive(self: Any) -> bool:
        if _is_own(type(self)):
            return bool(super().is_alive())  # type: ignore[misc]  # as above
        self.join()
        return False

    def terminate(self: Any) -> None:
        if _is_own(type(self)):
            super().terminate()  # type: ignore[misc]  # as above

    @property
    def exitcode(self: Any) -> int | None:
        if _is_own(type(self)):
            return super().exitcode  # type: ignore[misc,no-any-return]  # as above
        return 0 if self.ended else None


def _run_here(real: Any, started: list[Any]) -> Any:
    """A class of processes that run here when they are waited for.

    Args:
        real: The class whose place it takes; those that work beside the training are of it.
        started: Gets the processes that were started, in this order.
    """
    return type("Process", (_RunsHere, real), {"_started": started})


def _is_own(kind: type) -> bool:
    """Whether a class of processes is one that the script derives."""
    return kind.__bases__[0] is not _RunsHere


def _works_beside(given: Any) -> bool:
    return any(isinstance(one, _CHANNELS) for one in tree_leaves(given))


def _standing_for_all(started: list[Any]) -> Any:
    """The first process with the function that most of them have."""
    (function, _), *_ = Counter(one._target for one in started).most_common(1)
    return next(one for one in started if one._target is function)


def _run(process: Any) -> None:
    if process.ended:
        return
    process.ended = True
    alike = sum(one._target is process._target for one in process._started)
    if alike > 1 and _has_weights(process):
        raise NotPredictable(
            f"{alike} processes train the same weights, and each needs memory of its own beside "
            "them; let the script start one process to predict what one takes"
        )
    BaseProcess.run(process)


def _has_weights(process: Any) -> bool:
    leaves = tree_leaves((process._args, process._kwargs))
    return any(isinstance(one, torch.Tensor | torch.nn.Module) for one in leaves)
