"""Advice on something that does not run on a machine."""

from __future__ import annotations

import re

OUT_OF_MEMORY = "out of memory"

_RULES = (
    (
        "PyTorch sees no GPU",
        "Install a build of PyTorch for a CUDA version that the driver knows, which nvidia-smi "
        "shows, and restart the worker.",
    ),
    (
        "out of memory|memory ran out|signal 9",
        "Something else uses the memory of this machine or of its GPU. End it (nvidia-smi lists "
        "GPU processes), then check again.",
    ),
    (
        "not measured",
        "Predictions use the catalogue's values instead. Check again while nothing else runs on "
        "the machine.",
    ),
    (
        "no kernel image|not compatible with the current PyTorch",
        "This build of PyTorch has no kernels for this GPU. Install one that has, and restart the "
        "worker.",
    ),
    (
        "driver version is insufficient|CUDA initialization",
        "The driver is too old for this build of PyTorch, or does not run. Update it, or install a "
        "build for an older CUDA, and restart the worker.",
    ),
    (
        "is not installed|No module named",
        "Install what is missing into the worker's environment, and restart the worker.",
    ),
)

_OTHERWISE = (
    "Install versions of PyTorch and transformers that MemoryMark supports (docs/nodes.md), and "
    "restart the worker. If these are installed, report it with this line."
)


def advice_on(reason: str) -> str:
    """Advice on a reason, in one or two sentences; the first rule that knows it counts."""
    return next((text for sign, text in _RULES if re.search(sign, reason)), _OTHERWISE)
