"""Speeds at which a machine launches operations, moves bytes and multiplies matrices.

Only functions of ``torch`` and ``torch.cuda`` are used, so that the code also runs on a CPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import torch

from ..gpus.checked import Rates

LAUNCHES, ROUNDS = 800, 9
"""Launches of a round stay below the 1,024 that CUDA queues before a launch waits for the GPU."""

COPIED_BYTES = 512 * 2**20
"""Size of the tensor whose copy gives the bandwidth: more than any cache holds."""

SIZE = 4096
"""Rows and columns of the matrices: 137 GFLOP a product, which fills every GPU."""

REPEATED = 10
"""Products and copies of a round, timed together by events."""

TF32, FP32, BF16, FP16 = "tf32", "fp32", "bf16", "fp16"
_DTYPES = {
    FP32: torch.float32,
    TF32: torch.float32,
    BF16: torch.bfloat16,
    FP16: torch.float16,
}


def launch_seconds(device: str) -> float:
    """Host time to launch one operation that does next to nothing.

    It is Python's, PyTorch's and the driver's time, while the GPU waits for more; on a CPU, the
    time of such an operation.
    """
    number = torch.zeros(1, device=device)
    found = []
    for _ in range(ROUNDS):
        _wait(device)
        begin = time.perf_counter()
        for _ in range(LAUNCHES):
            number.add_(1.0)
        found.append((time.perf_counter() - begin) / LAUNCHES)
    _wait(device)
    return median(found)


def rates(device: str = "cuda", copied_bytes: int = COPIED_BYTES, size: int = SIZE) -> Rates:
    """The bandwidth of a large copy, and the FLOP rate of large products by number format.

    Args:
        device: ``cuda``; the work also runs on ``cpu``.
        copied_bytes: Size of the tensor to copy.
        size: Rows and columns of the matrices.
    """
    flops = {name: _product_flops(name, size, device) for name in _DTYPES}
    return Rates(_copied_per_second(copied_bytes, device), flops)


def _copied_per_second(copied_bytes: int, device: str) -> float:
    """Bytes that a copy reads and writes in a second."""
    source = torch.zeros(copied_bytes // 4, device=device)
    target = torch.empty_like(source)
    return 2 * copied_bytes / _seconds(lambda: target.copy_(source), device)


def _product_flops(name: str, size: int, device: str) -> float:
    """FLOP/s of products of two square matrices in a number format."""
    matrix = torch.ones(size, size, device=device, dtype=_DTYPES[name])
    found = torch.empty_like(matrix)
    with _products_in(name):
        return 2 * size**3 / _seconds(lambda: torch.matmul(matrix, matrix, out=found), device)


@contextmanager
def _products_in(name: str) -> Iterator[None]:
    """Let products of fp32 use TF32 or not, as the format wants; others are not concerned."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if name == TF32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _seconds(work: Callable[[], object], device: str) -> float:
    """The time of some work on the device: the median of several rounds, after a warm-up."""
    work()
    found = []
    for _ in range(3):
        _wait(device)
        begin = time.perf_counter()
        for _ in range(REPEATED):
            work()
        _wait(device)
        found.append((time.perf_counter() - begin) / REPEATED)
    return median(found)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
