"""A training on a GPU that other tools search: their trials share a process, as people run them."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable

import torch

from engine.benchmarks.limited_training import Session
from engine.measurement.cuda import emulate_a_smaller_gpu
from engine.step.batches import make_batch
from engine.step.training import build_model, prepare, training_step
from engine.workload import Workload


def cuda_sessions(limit_bytes: int) -> Callable[[Workload, int, int], Session]:
    """Makes sessions on the GPU, as :class:`~engine.benchmarks.limited_training.Session` on a CPU.

    The model is built once, and a copy of it moved for each session.

    Args:
        limit_bytes: The capacity that is emulated, for all of this process.
    """
    emulate_a_smaller_gpu(limit_bytes)
    built: dict[Workload, torch.nn.Module] = {}

    def make(workload: Workload, batch_size: int, _: int) -> CudaSession:
        if workload not in built:
            built[workload] = build_model(workload)
        return CudaSession(workload, built[workload], batch_size)

    return make


class CudaSession:
    """A fresh copy of a model with its optimizer, stepping at one batch size."""

    def __init__(self, workload: Workload, model: torch.nn.Module, batch_size: int) -> None:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self._training = prepare(workload, copy.deepcopy(model).to("cuda"))
        self._batch = make_batch(workload, batch_size)

    @property
    def peak_bytes(self) -> int:
        """The most bytes of tensors that were allocated at once."""
        return torch.cuda.max_memory_allocated()

    def step(self) -> None:
        """Run one whole training step."""
        training_step(self._training, self._batch)
        torch.cuda.synchronize()
