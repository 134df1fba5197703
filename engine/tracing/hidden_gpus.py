"""A process that predicts sees no GPU, so that its forks can trace too.

For each GPU that there is, autograd starts a thread at the first backward pass
(``Engine::start_device_threads`` in torch/csrc/autograd/engine.cpp). From then on PyTorch refuses
backward passes in forks of that process; and a thread that sets its device takes memory of the GPU
for a CUDA context, away from the trials that are predicted.
"""

from __future__ import annotations

import os
from unittest.mock import patch

import torch


def hide_gpus() -> None:
    """Let CUDA find no GPU in this process, unless it has looked for them before.

    It looks once in a process. Processes that are started from here see the GPUs.
    """
    count = getattr(torch._C, "_cuda_getDeviceCount", None)  # builds for the CPU have none
    if count is not None and not torch.cuda.is_initialized():
        with patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": ""}):
            count()


def backward_runs() -> bool:
    """Whether this process can run a backward pass; not so a fork of one with such threads."""
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
