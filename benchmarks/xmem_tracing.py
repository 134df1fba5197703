"""Traces xMem's training runs with the packages of this Python.

It reads runs as JSON and writes what is predicted for them; :mod:`benchmarks.xmem` starts it in
the environment of their time.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Mapping
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.torchvision_here import load_torchvision
from benchmarks.xmem import PLACES
from engine.allocator.caching import ALLOCATE, replay
from engine.core.errors import EngineError
from engine.interface.trial import GpuFacts
from engine.tracing.trace import Category, Trace

if TYPE_CHECKING:
    from engine.traces.shared import SharedTraces

SCRIPT = Path(__file__).with_name("xmem_train.py")


@cache
def _traces(model: str, optimizer: str, zero_grad: int) -> SharedTraces:
    from engine.script.batch_sizes import trace_script_at_every_batch_size
    from engine.script.program import Program
    from engine.traces.shared import SharedTraces

    arguments = [f"--model={model}", f"--optimizer={optimizer}", f"--zero-grad={zero_grad}"]
    program = Program.of(SCRIPT, arguments, "--batch-size")
    warn = logging.getLogger(__name__).warning
    return SharedTraces(
        lambda behaviour, _: trace_script_at_every_batch_size(program, behaviour, warn)
    )


def predict(run: Mapping[str, Any]) -> dict[str, Any]:
    """The prediction for a run, as :class:`benchmarks.xmem.Prediction` has it."""
    from engine.prediction.probe import predict_memory
    from engine.tracing.lowering import cuda_behaviour

    place, total = PLACES[run["gpu"]], run["total_bytes"]
    traces = _traces(run["model"], run["optimizer"], run["zero_grad"])
    trace = traces.of(cuda_behaviour(place.compute_capability)).at(run["batch_size"])
    facts = GpuFacts(run["gpu"], total, total - place.context_bytes)
    trial = predict_memory(facts, trace, careful=True)
    low, high = trial.device_used_low_bytes, trial.device_used_high_bytes
    assert low is not None  # noqa: S101  # a prediction has all of them
    assert high is not None  # noqa: S101  # for the types
    return {
        "fits": trial.fits,
        "reserved_bytes": trial.peak_reserved_bytes,
        "low_bytes": low - place.context_bytes,
        "high_bytes": high - place.context_bytes,
        "model_bytes": model_bytes(trace),
    }


def model_bytes(trace: Trace) -> int:
    """Bytes the allocator reserves for parameters and buffers, which come first."""

    def of_the_model(event: tuple[int, int]) -> bool:
        kind, tensor = event
        return kind == ALLOCATE and trace.categories[tensor] is Category.PARAMETERS

    return replay(takewhile(of_the_model, trace.events), trace.sizes).peak_reserved_bytes


def main() -> None:
    """Predict the runs on standard input; a refusal takes the place of a prediction."""
    warnings.simplefilter("ignore")
    load_torchvision()
    found: list[dict[str, Any]] = []
    for run in json.load(sys.stdin):
        try:
            found.append({"prediction": predict(run)})
        except EngineError as refused:
            found.append({"failure": str(refused)})
        sys.stderr.write(f"\r{len(found)} ")
    sys.stderr.write("\n")
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
