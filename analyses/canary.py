"""The canary: a task that shows that work still gets through to the workers of this node.

A worker killed while it waits takes the lock of django-q2's inner queue with it. The workers after
it look alive and never get anything; only a task that arrives proves otherwise. Any task does: the
canary is sent where there is no other, and all of them sing.
"""

from __future__ import annotations

import os
from contextlib import suppress

TASK = "analyses.canary.sing"
PIPE = "MEMORYMARK_CANARY_PIPE"
"""Names the pipe to the node process, by the number of its file descriptor."""


def sing() -> None:
    """Tell the node process, if there is one, that a worker got a task or that the desk goes on."""
    if PIPE not in os.environ:
        return
    with suppress(BlockingIOError):  # nobody has listened for so long that the pipe is full
        os.write(int(os.environ[PIPE]), b".")
