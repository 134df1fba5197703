"""``python -m engine.measurement.loader SOCKET``: loads libraries once, and forks for each trial.

Loading torch and transformers takes longer than most trials. A forked process has them at once and
is as fresh as a new one, since nothing has run on the device before. A process that has touched
CUDA must not fork: if loading a library opens the GPU, this one ends, and trials start by
themselves. See :mod:`engine.measurement.loaded` for the other side.

For each request, the words after ``python -m``, it receives the standard input, output and error of
the new process and a pipe, which gets the process's number and later its exit status, in lines.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import socket
import sys
from pathlib import Path

from ..core.process import die_with_parent
from .protocol import LIBRARIES_LOADED

_MAX_BYTES = 65_536
_PIPES = 4
_DEVICES = ("/dev/nvidia", "/dev/kfd")


def serve(requests: socket.socket) -> list[str]:
    """Fork for each request; returns the words of one in the process that is to run them.

    Raises:
        SystemExit: In the process that serves, once nobody can ask any more.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that keep a trial
    while True:
        message, pipes, _, _ = socket.recv_fds(requests, _MAX_BYTES, _PIPES)
        if not message:
            sys.exit()
        if os.fork() == 0:
            requests.close()
            _keep(pipes)
            words: list[str] = json.loads(message)
            return words
        for pipe in pipes:
            os.close(pipe)


def _keep(pipes: list[int]) -> None:
    """Fork the process of the trial, which returns; this one reports its end, and ends with it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    die_with_parent()
    *standard, status = pipes
    trial = os.fork()
    if trial == 0:
        die_with_parent()
        for number, pipe in enumerate(standard):
            os.dup2(pipe, number)
        for pipe in pipes:
            os.close(pipe)
        return
    for pipe in standard:
        os.close(pipe)
    os.write(status, f"{trial}\n".encode())
    _, ended = os.waitpid(trial, 0)
    os.write(status, f"{os.waitstatus_to_exitcode(ended)}\n".encode())
    os._exit(0)


def _has_opened_a_gpu() -> bool:
    """Whether this process holds a GPU's device file, as CUDA and ROCm do from their first call."""
    return any(
        str(file.readlink()).startswith(_DEVICES)
        for file in Path("/proc/self/fd").iterdir()
        if file.is_symlink()
    )


def main() -> None:
    """Load what trials need, then serve."""
    die_with_parent()
    requests = socket.socket(fileno=int(sys.argv[1]))
    from . import child  # noqa: F401  # loads torch and transformers

    if _has_opened_a_gpu():
        sys.exit("a library opened the GPU while it was loaded")
    gc.freeze()  # so that looking for garbage copies no page
    requests.send(LIBRARIES_LOADED)
    module, *sys.argv[1:] = serve(requests)
    sys.argv[0] = module
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
