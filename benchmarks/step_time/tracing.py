"""Traces the steps of published rows with the packages of this Python.

It reads jobs as JSON lines from standard input and writes the work of each to a file;
:mod:`benchmarks.step_time.work` starts it in an environment that has timm.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.step_time.models import Built, build
from benchmarks.step_time.work import FORWARD, HIGH, LOW
from engine.prediction.timing.launch_queue import places
from engine.traces.machine import fake_device
from engine.tracing.fake_models import on_fake_tensors
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.recorder import MemoryRecorder
from engine.tracing.trace import Operation

MAX_SECONDS = 300
"""Timeout of one job; the largest models take some 40 s on one core."""

_AMPERE = 8.6
_AUTOCAST = {"fp16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}


@dataclass
class _Steps:
    """The attributes that a recorder looks at.

    Attributes:
        trained: Parameters that the optimizer updates, or fp32 copies of those in half
            precision.
    """

    model: torch.nn.Module
    trained: list[torch.nn.Parameter]
    optimizer: torch.optim.Optimizer | None
    phase: str = "idle"


def operations(job: dict[str, Any], batch_size: int) -> list[Operation]:
    """The operations of one training step whose batch is on the GPU already."""
    built = build(job["trace"], job["size"])
    layout = torch.channels_last if job["channels_last"] else torch.contiguous_format
    built.model.to(memory_format=layout)  # type: ignore[call-overload]  # torch's stubs lack it
    if job["precision"] == "fp16":
        built.model.half()
    with fake_device(cuda_behaviour(_AMPERE)):
        model = on_fake_tensors(built.model)
        trained = list(model.parameters())
        if job["precision"] == "fp16":
            trained = [torch.nn.Parameter(half.detach().float()) for half in trained]
        steps = _Steps(model, trained, _optimizer(job["optimizer"], trained))
        batch = {
            name: tensor.to(memory_format=layout) if tensor.dim() == 4 else tensor
            for name, tensor in built.make_batch(batch_size).items()
        }
        recorder = MemoryRecorder(steps, batch_size)
        # Their state exists from the second step on.
        stateful = (torch.optim.Adam, torch.optim.Adadelta)
        for _ in range(2 if isinstance(steps.optimizer, stateful) else 1):
            recorder.record_step(lambda: _step(steps, built, batch, job))
        return recorder.trace.operations


def _step(steps: _Steps, built: Built, batch: dict[str, torch.Tensor], job: dict[str, Any]) -> None:
    autocast = _AUTOCAST.get(job["precision"])
    context = torch.autocast("cpu", dtype=autocast) if autocast else nullcontext()
    steps.phase = "forward"
    if job["optimizer"] == FORWARD:
        with torch.no_grad(), context:
            steps.model.eval()(*(tensor for tensor in batch.values() if tensor.dim() == 4))
        return
    with context:
        loss = built.loss(steps.model, batch)
    steps.phase = "backward"
    loss.backward()
    steps.phase = "optimizer"
    if steps.optimizer is not None:
        with _copied(list(steps.model.parameters()), steps.trained):
            steps.optimizer.step()
    steps.model.zero_grad(set_to_none=True)
    steps.phase = "idle"


@contextmanager
def _copied(
    parameters: list[torch.nn.Parameter], trained: list[torch.nn.Parameter]
) -> Iterator[None]:
    """Let fp32 copies, where they are trained, take the gradients and give their values back."""
    if trained[0] is parameters[0]:
        yield
        return
    used = [pair for pair in zip(parameters, trained, strict=True) if pair[0].grad is not None]
    for _, copy in used:
        copy.grad = torch.empty_like(copy)
    halves: list[torch.Tensor] = [half for half, _ in used]
    copies: list[torch.Tensor] = [copy for _, copy in used]
    with torch.no_grad():
        torch._foreach_copy_(_gradients(copies), _gradients(halves))
        yield
        torch._foreach_copy_(halves, copies)


def _gradients(parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def _optimizer(name: str, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer | None:
    """As published: one kernel for all parameters, or several for each."""
    if name in ("none", FORWARD):
        return None
    if name == "fused-adam":
        return torch.optim.Adam(parameters, lr=1e-3, fused=True)
    if name == "bert-adam":
        return torch.optim.Adam(parameters, lr=1e-3, weight_decay=0.01, foreach=False)
    if name == "adadelta":
        return torch.optim.Adadelta(parameters, foreach=False)
    nesterov = name == "sgd-nesterov"
    sgd = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, nesterov=nesterov, foreach=False)
    for parameter in parameters:
        sgd.state[parameter]["momentum_buffer"] = torch.empty_like(parameter)
    return sgd


def work_of(job: dict[str, Any]) -> list[list[Any]]:
    """The operations of a step at every batch size, equal ones once.

    Returns:
        Name, number format, phase, layout, whether it is unrolled, whether the host waits, and
        count, then the numbers at :data:`LOW` and :data:`HIGH`
        (:attr:`~engine.tracing.trace.Operation.numbers`), in the order of the parts of a phase.
    """
    low, high = (operations(job, size) for size in (LOW, HIGH))
    counted = Counter(
        (a.name, a.dtype, a.phase, a.channels_last, a.unrolled, a.waits, a.numbers, b.numbers, part)
        for a, b, part in zip(low, high, places(low, 1), strict=True)
        if a.name == b.name
    )
    if counted.total() != len(low):
        raise ValueError("the step is not alike at two batch sizes")
    return [[*kind, times, *numbers] for (*kind, times), numbers in _split(counted)]


def _split(counted: Counter[Any]) -> list[tuple[list[Any], list[tuple[int, ...]]]]:
    return [([*key[:6], times], [key[6], key[7]]) for key, times in counted.items()]


def _write(job: dict[str, Any]) -> None:
    began = time.monotonic()
    work = work_of(job)
    path = Path(job["file"])
    text = json.dumps({"job": job, "seconds": time.monotonic() - began, "operations": work})
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(gzip.compress(text.encode(), mtime=0))
    unfinished.rename(path)


def main() -> None:
    """Trace the jobs, each in a fork with a time limit of its own."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    import timm  # noqa: F401  # once, for all forks
    import transformers  # noqa: F401  # the same

    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.alarm(MAX_SECONDS)
            try:
                _write(job)
            except BaseException as error:  # the row is reported as not traced
                sys.stderr.write(f"{job['trace']}: {type(error).__name__}: {error}\n")
                os._exit(1)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
