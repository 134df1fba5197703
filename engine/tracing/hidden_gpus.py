"""A process that predicts sees no GPU, so that its forks can trace too.

For each GPU that there is, autograd starts a thread at the first backward pass
(``Engine::start_device_threads`` in torch/csrc/autograd/engine.cpp). From then on PyTorch refuses
backward passes in forks of that process; and a thread that sets its device takes memory of the GPU
for a CUDA context, away from the trials that are predicted.

Where CUDA has been asked for its devices before, as by a Trainer that puts its model on the GPU,
nothing can be hidden any more. A fork of such a process still counts them, CUDA works there no
longer, and the thread that cannot set its device ends the process: no error reaches Python.
"""

from __future__ import annotations

import os
import resource
import time
from unittest.mock import patch

import torch

_THREADS_BEGIN_SECONDS = 0.3
"""Time that autograd's threads get to set their devices, or to fail at it."""


def hide_gpus() -> None:
    """Let CUDA find no GPU in this process, unless it has looked for them before.

    It looks once in a process. Processes that are started from here see the GPUs.
    """
    count = getattr(torch._C, "_cuda_getDeviceCount", None)  # builds for the CPU have none
    if count is not None and not torch.cuda.is_initialized():
        with patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": ""}):
            count()


def backward_runs() -> bool:
    """Whether this process can run a backward pass; not so a fork of one with such threads.

    Where that might end the process, another fork tries it.
    """
    if not _is_fork_that_counts_gpus():
        return _runs_here()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # nobody wants the memory of this one
        ran = _runs_here()
        time.sleep(_THREADS_BEGIN_SECONDS)
        os._exit(0 if ran else 1)
    return os.waitpid(child, 0)[1] == 0


def _is_fork_that_counts_gpus() -> bool:
    """Whether CUDA found GPUs in the process that this one was forked from."""
    count = getattr(torch._C, "_cuda_getDeviceCount", None)
    return count is not None and torch.cuda._is_in_bad_fork() and count() > 0


def _runs_here() -> bool:
    try:
        torch.zeros(1, requires_grad=True).sum().backward()
    except RuntimeError:
        return False
    return True


def forks_can_trace() -> bool:
    """Whether forks of this process can run a backward pass once it has run one itself."""
    hide_gpus()
    if not backward_runs():
        return False
    child = os.fork()
    if child == 0:
        os._exit(0 if backward_runs() else 1)
    return os.waitpid(child, 0)[1] == 0
