"""The identity of a script: a hash of one traced step, equal wherever the same step is traced.

Neither the file's path nor its text enters, nor what depends on the GPU: kernels of attention, the
copies around them, and workspaces. An edit that changes nothing in the step, such as another
learning rate, keeps the hash; another layer, width, activation or optimizer changes it. A GPU on
which the script takes another branch, or for which PyTorch has no kernel of attention (some before
Ampere), gives another hash: the step is another one there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..core.errors import EngineError
from ..interface.trial import Trial
from ..traces.source import TraceSource
from ..tracing.trace import Category, Operation, Trace
from .factory import Factory
from .program import Program
from .request import Script

_BATCH_SIZE = 8
"""Samples of the step that is hashed, where the script takes so many."""

_HELD = (Category.PARAMETERS, Category.OPTIMIZER_STATE)
_COPIES = ("clone", "_to_copy", "copy_", "_unsafe_view", "contiguous")
_ATTENTION = re.compile(r"scaled_dot_product\w*|flash_attention\w*|efficient_attention\w*")


def hash_of_traces(traces: TraceSource, known_batch_size: int) -> str:
    """The hash of a script by its traces.

    Args:
        traces: Its traces.
        known_batch_size: A batch size that was traced, for scripts that take no small ones.
    """
    multiple = traces.at(known_batch_size).batch_multiple
    size = multiple if _BATCH_SIZE % multiple else _BATCH_SIZE
    try:
        step = traces.at(size)
    except EngineError:  # it takes no such batch
        step = traces.at(known_batch_size)
    return hash_of_step(step)


def hash_of_step(step: Trace) -> str:
    """The hash of one traced step, by what it keeps and what it computes."""
    basis = {"held": list(_held(step)), "work": list(_work(step.operations))}
    return hashlib.sha256(json.dumps(basis).encode()).hexdigest()


def hash_of_source(script: Script, trials: Iterable[Trial]) -> str:
    """The hash of a script that cannot be traced: of its text; of its trials if it has none."""
    path = _file_of(script)
    if path is not None:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    known = [(trial.batch_size, trial.peak_allocated_bytes) for trial in trials if trial.fits]
    return hashlib.sha256(json.dumps(sorted(known)).encode()).hexdigest()


def _held(step: Trace) -> Iterator[tuple[str, str, int]]:
    """Parameters and optimizer state at the start of the last step, in the order they were made."""
    seen: set[int] = set()
    for _, tensor in step.events[: step.last_step]:
        category = step.categories[tensor]
        if category in _HELD and tensor not in seen:
            seen.add(tensor)
            module = step.modules[tensor] if step.modules else ""
            yield category.value, module, step.sizes[tensor]


def _work(operations: Iterable[Operation]) -> Iterator[tuple[str, str, str, int]]:
    """The operations of a step without what a GPU decides."""
    for one in operations:
        if one.name.rpartition(".")[2] in _COPIES:
            continue
        if not _ATTENTION.search(one.name):
            yield one.name, one.dtype, one.phase, one.flops
        elif one.phase == "forward":  # which kernels a GPU runs for it differs
            yield "attention", "", one.phase, 0


def _file_of(script: Script) -> Path | None:
    """The file of a script; ``None`` for training that lives in a process."""
    if isinstance(script, Program):
        return Path(script.path)
    return script.file if isinstance(script, Factory) else None
