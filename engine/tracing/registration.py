"""Kernels that stand in for PyTorch's own, in any order of registration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def register(
    library: torch.library.Library, name: str, function: Callable[..., Any], key: str
) -> None:
    """Let a function be the kernel of an operator, until its library is destroyed.

    At the dispatcher itself the last kernel counts, and the one before returns when it goes.
    ``Library.impl`` refuses where PyTorch has a kernel in Python, which differs by release
    (``_cudnn_rnn`` for Meta in 2.11), and would refuse PyTorch's after ours.

    Args:
        library: Owns the kernel; an ``IMPL`` library of the operator's namespace.
        name: Name of the operator, with its overload if it has one.
        function: Takes the operator's arguments.
        key: The dispatch key, such as ``AutogradCPU``.
    """
    dispatcher: Any = library.m
    dispatcher.impl(name, key, function, False)
