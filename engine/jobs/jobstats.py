"""Summaries that Princeton's jobstats stores in the ``AdminComment`` of a Slurm job.

They are ``JS1:`` and the base64 of gzipped JSON, such as::

    {"gpus": 1, "nodes": {"node-1": {"gpu_total_memory": {"0": 85899345920},
                                     "gpu_used_memory": {"0": 27917287424}}}, "total_time": 3600}

``JS1:Short`` and ``JS1:None`` stand for jobs without one.
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

PREFIX = "JS1:"
_MAX_BYTES = 2**20
"""Limit of a summary; the largest in use take some ten thousand."""


@dataclass(frozen=True)
class GpuMemory:
    """Memory of a job's fullest GPU, in bytes; ``None`` where the summary has none."""

    used_bytes: int | None = None
    total_bytes: int | None = None


def gpu_memory(comment: str) -> GpuMemory:
    """The memory in a stored summary; nothing for any other comment."""
    nodes = _summary(comment).get("nodes")
    if not isinstance(nodes, Mapping):
        return GpuMemory()
    return GpuMemory(
        max(_values(nodes, "gpu_used_memory"), default=None),
        max(_values(nodes, "gpu_total_memory"), default=None),
    )


def _summary(comment: str) -> Mapping[str, Any]:
    """The JSON of a summary; empty where there is none or it is damaged."""
    if not comment.startswith(PREFIX):
        return {}
    try:
        packed = base64.b64decode(comment.removeprefix(PREFIX), validate=True)
        with gzip.GzipFile(fileobj=BytesIO(packed)) as file:
            found = json.loads(file.read(_MAX_BYTES))
    except (ValueError, OSError, EOFError, zlib.error):
        return {}
    return found if isinstance(found, Mapping) else {}


def _values(nodes: Mapping[str, Any], name: str) -> Iterator[int]:
    for node in nodes.values():
        by_gpu = node.get(name) if isinstance(node, Mapping) else None
        if isinstance(by_gpu, Mapping):
            yield from (int(one) for one in by_gpu.values() if isinstance(one, int | float))
