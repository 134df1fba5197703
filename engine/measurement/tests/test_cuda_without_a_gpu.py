"""The CUDA backend with fake counters instead of a GPU's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.interface.workload import Workload
from engine.measurement import cuda
from engine.measurement.protocol import TrialOrder
from engine.measurement.steps import TIMED_STEPS, WARM_UP_STEPS

GIB = 2**30
TOTAL, CONTEXT = 140 * GIB, GIB // 2


class Steps:
    """Steps that fail with an error from a given one on, or never."""

    def __init__(self, error: Exception | None = None, fails_at: int = 0) -> None:
        self._error = error
        self._fails_at = fails_at
        self.run = 0

    def build(self, device: str) -> None:
        assert device == "cuda"

    def begin(self) -> None:
        pass

    def step(self) -> None:
        self.run += 1
        if self._error is not None and self.run > self._fails_at:
            raise self._error

    def out_of_memory(self, error: BaseException) -> str:
        return "out of memory in the backward pass"


class Event:
    """An event that completes as soon as it is waited for; a step takes 20 ms."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.waited = False

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        self.waited = True

    def elapsed_time(self, end: Event) -> float:
        assert end.waited
        return 20.0


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A GPU with a context on it; records the memory fractions set for a process."""
    left: list[float] = []
    gpu: dict[str, Any] = {
        "init": lambda: None,
        "current_device": lambda: 0,
        "get_device_properties": lambda _: SimpleNamespace(total_memory=TOTAL),
        "mem_get_info": lambda: (TOTAL - CONTEXT, TOTAL),
        "set_per_process_memory_fraction": left.append,
        "max_memory_allocated": lambda: 3 * GIB,
        "max_memory_reserved": lambda: 4 * GIB,
        "memory_stats": lambda: {"num_alloc_retries": 0},
        "Event": Event,
    }
    for name, stand_in in gpu.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return left


def run(monkeypatch: pytest.MonkeyPatch, steps: Steps, limit_bytes: int | None = None) -> Any:
    monkeypatch.setattr(cuda, "steps_of", lambda _: steps)
    return cuda.run_trial(TrialOrder(Workload("bert"), 8, limit_bytes))


def test_a_trial_that_fits_is_timed_and_counted(
    monkeypatch: pytest.MonkeyPatch, shares: list[float]
) -> None:
    steps = Steps()
    trial = run(monkeypatch, steps, 24 * GIB)
    assert shares == [pytest.approx((24 * GIB - CONTEXT) / TOTAL)]
    assert steps.run == WARM_UP_STEPS + TIMED_STEPS
    assert (trial.peak_allocated_bytes, trial.peak_reserved_bytes) == (3 * GIB, 4 * GIB)
    assert (trial.device_used_bytes, trial.alloc_retries) == (CONTEXT, 0)
    assert (trial.step_seconds, trial.samples_per_second) == (0.02, 400)


def test_a_capacity_below_the_context_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, shares: list[float]
) -> None:
    run(monkeypatch, Steps(), CONTEXT // 2)
    assert shares == [0.0]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has"),
            "Tried to allocate 20.00 MiB",
        ),
        (
            RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported"),
            "CUDA error: out of memory",
        ),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`",
        ),
        (
            RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
            "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        ),
    ],
)
@pytest.mark.parametrize("fails_at", [0, WARM_UP_STEPS + 1])
@pytest.mark.usefixtures("shares")
def test_out_of_memory_is_a_result_whichever_library_reports_it(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str, fails_at: int
) -> None:
    trial = run(monkeypatch, Steps(error, fails_at))
    assert not trial.fits
    assert trial.failure == f"out of memory in the backward pass: {reason}"


@pytest.mark.usefixtures("shares")
def test_other_errors_are_not_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="device-side assert"):
        run(monkeypatch, Steps(RuntimeError("CUDA error: device-side assert triggered")))


@pytest.mark.usefixtures("shares")
def test_a_convolution_without_an_algorithm_is_out_of_memory_only_after_a_failed_allocation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = RuntimeError("GET was unable to find an engine to execute this computation")
    with pytest.raises(RuntimeError, match="unable to find"):
        run(monkeypatch, Steps(error))
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: {"num_alloc_retries": 1, "num_ooms": 2})
    trial = run(monkeypatch, Steps(error))
    assert not trial.fits
    assert trial.alloc_retries == 1
