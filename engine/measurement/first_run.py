"""What a compiler costs and gives: the first step by itself, then the steps that follow it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.measurement.environment import device_kind
from engine.measurement.protocol import TrialOrder
from engine.measurement.runs import Steps, steps_of
from engine.measurement.steps import time_steps


@dataclass(frozen=True)
class FirstRun:
    """Times of one process, from its first step on.

    Attributes:
        first_step_seconds: The first step, in which a compiler works.
        step_seconds: Median of the steps after it.
        peak_bytes: Peak allocated of one of those; ``None`` where it is not known (MPS).
    """

    first_step_seconds: float
    step_seconds: float
    peak_bytes: int | None


def first_run(order: TrialOrder) -> FirstRun:
    """Time a first step and those after it."""
    device = device_kind()
    steps = steps_of(order)
    steps.build(device)
    steps.begin()

    def timed_step() -> float:
        begin = time.perf_counter()
        steps.step()
        _wait(device)
        return time.perf_counter() - begin

    first = timed_step()
    timed_step()  # the optimizer's state exists, and the compiler has seen it
    return FirstRun(first, time_steps(timed_step).median, _PEAKS[device](steps))


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
    elif device == "mps":
        torch.mps.synchronize()


def _cuda_peak(steps: Steps) -> int:
    torch.cuda.reset_peak_memory_stats()
    steps.step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def _cpu_peak(steps: Steps) -> int:
    """Most bytes alive in one step, by the events of PyTorch's CPU allocator.

    Compiled code makes its tensors past the dispatcher, where a recorder of operators sees nothing;
    the allocator sees both kinds.
    """
    training = steps.recorded
    states = training.optimizer.state.values() if training.optimizer is not None else ()
    kept = [*training.model.parameters(), *training.model.buffers()]
    kept += [t for state in states for t in state.values() if isinstance(t, torch.Tensor)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in kept}
    peak = live = sum(storage.nbytes() for storage in storages.values())
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        steps.step()
    for _, size in sorted(_allocations(profile)):
        live += size
        peak = max(peak, live)
    return peak


def _allocations(profile: torch.profiler.profile) -> list[tuple[int, int]]:
    """When the allocator gave (above zero) or took back (below) how many bytes."""
    if profile.profiler is None or profile.profiler.kineto_results is None:
        raise ValueError("the profiler has no events")
    pending = list(profile.profiler.kineto_results.experimental_event_tree())
    found: list[tuple[int, int]] = []
    while pending:
        event = pending.pop()
        pending.extend(event.children)
        if event.tag.name == "Allocation":
            # The attribute belongs to one member of a union that has no common type.
            size: int = getattr(event.extra_fields, "alloc_size")  # noqa: B009  # see above
            found.append((event.start_time_ns, size))
    return found


def _no_peak(steps: Steps) -> None:
    """Metal keeps no peak counter, and sampling it needs an operator's end."""


_PEAKS: dict[str, Callable[[Steps], int | None]] = {
    "cuda": _cuda_peak,
    "mps": _no_peak,
    "cpu": _cpu_peak,
}
