"""Traces a workload's training step on fake tensors: no GPU, no weights, no memory needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import masking_utils

from engine.batches import make_batch
from engine.lowering import CudaBehaviour, cuda_lowering
from engine.presets import PRESETS
from engine.recorder import MemoryRecorder
from engine.temporaries import CudaTemporaries
from engine.trace import AffineTrace, Trace
from engine.training import build_model, prepare, step_of
from engine.workload import Workload

TraceAt = Callable[[int], Trace]
"""Gives the trace at a batch size."""

STEPS = 2
"""The peak comes in the second step, when the optimizer's state exists."""

_LOW, _HIGH = 2, 3
# The two batch sizes that give all others from 2 up. A batch of 1 is another matter: where one
# dimension is 1, tensors are contiguous or broadcast as they are at no other size.


def trace(
    workload: Workload,
    batch_size: int,
    behaviour: CudaBehaviour | None,
    *,
    forward_only: bool = False,
) -> Trace:
    """Trace two training steps at one batch size.

    Args:
        workload: What is trained.
        batch_size: Samples per step.
        behaviour: Of the GPU; ``None`` traces what the CPU does.
        forward_only: Whether to trace the forward pass alone, to compare with.
    """
    # Not on fake tensors: an image processor works on real pixels.
    make_batch(workload, 1)
    with ExitStack() as stack:
        stack.enter_context(FakeTensorMode())
        stack.enter_context(_single_sequences())
        if behaviour is not None:
            stack.enter_context(cuda_lowering(behaviour))
        training = prepare(workload, build_model(workload))
        temporaries = CudaTemporaries(behaviour) if behaviour is not None else None
        recorder = MemoryRecorder(training, batch_size, temporaries)
        batch = make_batch(workload, batch_size)
        step = step_of(forward_only)
        for _ in range(STEPS):
            recorder.record_step(lambda: step(training, batch))
        return recorder.trace


def trace_every_batch_size(workload: Workload, behaviour: CudaBehaviour | None) -> TraceAt:
    """Two traces that give every batch size from 2 up; batch 1 is traced when it is asked for.

    Raises:
        NotAffine: If the step does other things at other batch sizes.
    """
    affine = AffineTrace(trace(workload, _LOW, behaviour), trace(workload, _HIGH, behaviour))
    single = cache(lambda: trace(workload, 1, behaviour))
    return lambda batch_size: single() if batch_size == 1 else affine.at(batch_size)


def warm_up() -> None:
    """Trace something small: the first trace of a process loads half a second of modules."""
    trace(Workload(next(iter(PRESETS))), 1, None)


@contextmanager
def _single_sequences() -> Iterator[None]:
    """Say that no row of a batch holds several packed sequences.

    Transformers finds that out from the positions' values, which fake tensors do not have, and
    would take the worst case: a mask where training has none.
    """
    find = masking_utils.find_packed_sequence_indices

    def find_none(position_ids: torch.Tensor) -> Any:
        find(position_ids)

    with patch.object(masking_utils, "find_packed_sequence_indices", find_none):
        yield
