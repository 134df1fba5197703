"""Published kernels are read as the tracer would record them, and compared by kind and GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.step_time import kernels
from benchmarks.step_time.kernels import Kernel, errors, gains, operation_of, rates, read
from benchmarks.step_time.rows import gpus
from engine.tracing.operations import cost
from engine.tracing.trace import Operation

X = torch.ones(6, 32)
LINEAR, NORM = torch.nn.Linear(4, 5), torch.nn.LayerNorm(32)
CONVOLUTION = torch.nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False)
IMAGES = torch.ones(2, 4, 9, 9)
CALLS: dict[tuple[str, tuple[int, ...]], Callable[[], torch.Tensor]] = {
    ("linear", (2, 3, 4, 5)): lambda: LINEAR(torch.ones(2, 3, 4)),
    ("bmm", (2, 3, 4, 5)): lambda: torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 5)),
    ("conv", (2, 4, 6, 3, 9, 2, 1)): lambda: CONVOLUTION(IMAGES),
    ("add", (6, 32)): lambda: X + X,
    ("powu", (6, 32)): lambda: X**0.3,
    ("gelu", (6, 32)): lambda: torch.nn.functional.gelu(X),
    ("softmax", (6, 32)): lambda: torch.softmax(X, 1),
    ("ln", (6, 32)): lambda: NORM(X),
}


class _Recorded(TorchDispatchMode):
    """Keeps the work of the last operator call that runs a kernel."""

    last: Operation | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        self.last = cost("forward", func, args, kwargs or {}, output) or self.last
        return output


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_a_row_is_what_the_tracer_records(call: tuple[str, tuple[int, ...]]) -> None:
    operator, shape = call
    with torch.no_grad(), _Recorded() as recorded:  # type: ignore[no-untyped-call]  # PyTorch has no types here
        CALLS[call]()
    # PyTorch reshapes before and after a product, with views that run no kernel.
    assert operation_of(operator, "float32", shape) == recorded.last


def test_every_file_names_known_gpus() -> None:
    rows = read()
    assert {row.gpu for row in rows} | {rate.gpu for rate in rates()} <= gpus().keys()
    assert all(row.seconds >= 2e-4 for row in rows if row.operation.dtype == "float32")
    assert all(one.rows in (9, 40) for one in errors(rows))


def test_errors_are_relative_to_the_measured_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "predicted_seconds", lambda *_: 3.0)
    softmax = operation_of("softmax", "float32", (6, 32))
    (found,) = errors([Kernel("l4", softmax, seconds) for seconds in (1.0, 2.0, 3.0)])
    assert (found.kind, found.rows, found.ratio, found.error) == ("softmax", 3, 1.5, 0.5)


def test_a_rate_is_in_tflops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rates.csv"
    file.write_text("source,gpu,rows,columns,inner,tflops\nx,b200,1000,500,1000,0.001\n")
    monkeypatch.setattr(kernels, "predicted_seconds", lambda *_: 0.5)
    (found,) = rates(file)
    assert found.shape == "1000x500x1000"
    assert found.predicted == pytest.approx(0.002)
    assert found.ratio == pytest.approx(0.5)


def test_convolutions_are_predicted_without_tf32() -> None:
    gpu = gpus()["a100-80gb-pcie"]
    convolution = operation_of("conv", "float32", (64, 256, 256, 3, 56, 1, 1))
    reached = convolution.flops / kernels.predicted_seconds(gpu, convolution)
    assert gpu.fp32_flops / 2 < reached < 2 * gpu.fp32_flops


def test_a_gain_is_the_time_before_over_that_after(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(gpu: Any, _: Operation) -> float:
        return {"h200": 3.0, "b200": 2.0}[gpu.name]

    monkeypatch.setattr(kernels, "predicted_seconds", seconds)
    assert [one.predicted for one in gains()] == [pytest.approx(1.5)] * 2
