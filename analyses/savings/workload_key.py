"""Which analyses are of one workload on one GPU, so that its savings count once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from analyses.question import usual_values
from engine.errors import InvalidInput
from engine.gpus import canonical_name
from engine.workload import Workload

_TRAINED = {field.name for field in fields(Workload)} - {"gradient_accumulation"}
"""How much is accumulated follows from the batch size, which is what a recommendation changes."""


def workload_key(request: Mapping[str, Any], measured_gpu: str = "") -> str:
    """A word that is equal for analyses of the same workload on the same GPU.

    Batch sizes and assumptions do not matter. Only what is not at its default is read, so a key
    holds when a later version adds a setting.

    Args:
        request: The stored fields of a request.
        measured_gpu: The kind of GPU to measure on; empty for a prediction. It counts as the GPU of
            the catalogue that has its name.
    """
    usual = usual_values(request)
    asked = {
        name: value
        for name, value in request.items()
        if name in _TRAINED and value is not None and value != usual.get(name)
    }
    asked |= {
        "model": request["model"],
        "gpu": _kind(measured_gpu or request["gpu"]),
        "memory_limit_bytes": request.get("memory_limit_bytes"),  # it makes it a smaller GPU
    }
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def _kind(gpu: str) -> str:
    try:
        return canonical_name(gpu)
    except InvalidInput:  # a GPU that a node has and the catalogue does not
        return gpu
