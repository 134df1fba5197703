"""Published measurements of training memory, each predicted and converted to what it counted."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.errors import Errors
from benchmarks.estimators import Question
from engine.core.errors import EngineError
from engine.gpus import BUILT_IN
from engine.interface.texts import Texts
from engine.interface.trial import GpuFacts, Trial
from engine.interface.workload import Workload
from engine.prediction.timing.intervals import memory_range

PUBLISHED = Path(__file__).with_name("published.toml")

AIM = 0.03
"""The largest acceptable error where the configuration is fully known."""

COUNTED = {
    "peak allocated": "peak_allocated_bytes",
    "peak reserved": "peak_reserved_bytes",
    "device used": "device_used_bytes",
}
"""Kinds of measured memory, and the field of a trial that counts the same."""

UNITS = {"GiB": 2**30, "MiB": 2**20, "GB": 10**9, "B": 1}


@dataclass(frozen=True)
class GpuMemory:
    """A GPU's memory; the GPU is in the catalogue, or only in the published measurements."""

    display_name: str
    total_bytes: int
    context_bytes: int
    compute_capability: float


@dataclass(frozen=True)
class Measurement:
    """One published number, or that a batch ran or not; ``published.toml`` explains the fields."""

    name: str
    source: str
    gpu: GpuMemory
    batch_size: int
    counted: str
    unit: str
    complete: bool
    workload: dict[str, Any] | None = None
    factory: str = ""
    published: float | None = None
    ran: bool = True
    context_bytes: int | None = None
    kept_bytes: int = 0
    left_out_bytes: int = 0
    growth_from: int | None = None
    forward_only: bool = False
    texts: dict[str, Any] | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """``ran`` or ``out of memory``."""
        return "ran" if self.ran else "out of memory"


@dataclass(frozen=True)
class Comparison:
    """A published number with its prediction.

    Attributes:
        predicted: The prediction in the measurement's unit; ``None`` if it cannot be predicted.
        error: Predicted over published, minus 1; ``None`` if either is missing.
        fits: Whether it was predicted to fit; ``None`` if it cannot be predicted.
        failure: Why it cannot be predicted.
        predicted_on: The UTC date of the prediction, as ``2026-11-20``.
        versions: Versions of the engine and of the packages that traced the step.
    """

    measurement: Measurement
    predicted: float | None = None
    error: float | None = None
    fits: bool | None = None
    failure: str = ""
    predicted_on: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Comparison:
        """Read one as JSON has it.

        Raises:
            TypeError: If it has other fields, as one has that another version of this module wrote.
        """
        measured = stored["measurement"]
        measurement = Measurement(**measured | {"gpu": GpuMemory(**measured["gpu"])})
        return cls(**{**stored, "measurement": measurement})

    @property
    def plain_error(self) -> float | None:
        """The error without the bytes added for what older software kept."""
        published = self.measurement.published
        if self.error is None or published is None or self.measurement.growth_from is not None:
            return self.error
        kept = self.measurement.kept_bytes / UNITS[self.measurement.unit]
        return self.error - kept / published


@dataclass(frozen=True)
class Summary:
    """Errors and wrong verdicts of all comparisons.

    Attributes:
        known: Errors where the configuration is fully known.
        within_aim: Number of those that stay within :data:`AIM`.
        within_range: Number of those measurements in the predicted range.
        plain: Errors as in ``known``, with nothing added for what older software kept.
        every: Errors of all comparisons.
        ran_out: Published runs that went out of memory.
        false_safe: Number of those that were predicted to fit.
        ran: Published runs that fitted.
        false_alarm: Number of those that were predicted not to fit.
    """

    known: Errors
    within_aim: int
    within_range: int
    plain: Errors
    every: Errors
    ran_out: int
    false_safe: int
    ran: int
    false_alarm: int


Predict = Callable[[Measurement, int], Trial]
"""Predicts a measurement's workload at a batch size."""


def read_measurements(text: str) -> list[Measurement]:
    """Read measurements in the form of ``published.toml``.

    Raises:
        ValueError: If one lacks a field, has an unknown one, or names an unknown GPU, unit or kind
            of number.
    """
    read = tomllib.loads(text)
    setups = read.get("setups", {})
    places = {
        gpu.name: GpuMemory(
            gpu.display_name, gpu.total_bytes, gpu.context_bytes, gpu.compute_capability
        )
        for gpu in BUILT_IN.values()
    }
    # The file's own come last: what those machines reported counts more than the catalogue.
    places |= {name: GpuMemory(**table) for name, table in read.get("gpus", {}).items()}
    return [_measurement(_whole(table, setups), places) for table in read["measurement"]]


def _whole(table: dict[str, Any], setups: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A measurement with the fields of its setup, of which it may change some."""
    if "setup" not in table:
        return table
    if table["setup"] not in setups:
        raise ValueError(f"measurement {table.get('name')}: unknown setup {table['setup']}")
    shared = setups[table["setup"]]
    own = {key: value for key, value in table.items() if key != "setup"}
    workload = shared.get("workload", {}) | table.get("workload", {})
    return shared | own | ({"workload": workload} if workload else {})


def _measurement(table: dict[str, Any], places: dict[str, GpuMemory]) -> Measurement:
    name = table.get("name", "one without a name")
    known = {field.name for field in fields(Measurement)}
    needed = {field.name for field in fields(Measurement) if field.default is MISSING}
    if odd := (table.keys() - known) | (needed - table.keys()):
        raise ValueError(f"measurement {name}: unknown or missing {', '.join(sorted(odd))}")
    for key, words in (("gpu", places), ("unit", UNITS), ("counted", COUNTED)):
        if table[key] not in words:
            raise ValueError(f"measurement {name}: unknown {key} {table[key]}")
    measurement = Measurement(**table | {"gpu": places[table["gpu"]]})
    if (measurement.workload is None) is (not measurement.factory):
        raise ValueError(f"measurement {name}: give either a workload or a factory")
    if ("published" in table) is ("ran" in table):
        raise ValueError(f"measurement {name}: give what was measured, or only whether it ran")
    return measurement


def compare(measurement: Measurement, predict: Predict) -> Comparison:
    """Predict a measurement and convert the prediction to what was counted."""
    try:
        trial = predict(measurement, measurement.batch_size)
        counted = _counted(trial, measurement)
        if measurement.growth_from is not None:
            counted -= _counted(predict(measurement, measurement.growth_from), measurement)
    except EngineError as refused:
        return Comparison(measurement, failure=str(refused))
    except Exception as broken:
        # An engine error is shown in its row; the others are still compared.
        return Comparison(measurement, failure=f"the engine failed: {broken!r}")
    predicted = counted / UNITS[measurement.unit]
    error = None if measurement.published is None else predicted / measurement.published - 1
    return Comparison(measurement, predicted, error, trial.fits)


def _counted(trial: Trial, measurement: Measurement) -> int:
    size: int | None = getattr(trial, COUNTED[measurement.counted])
    if size is None:
        raise ValueError(f"nothing was predicted for the {measurement.counted}")
    return size + measurement.kept_bytes - measurement.left_out_bytes


def question(comparison: Comparison) -> Question | None:
    """The question for other estimators; ``None`` where their arguments cannot describe it.

    They take whole steps of a model trained whole on one GPU; only those we predict are compared.
    """
    measured = comparison.measurement
    generates = measured.texts is not None
    part = measured.forward_only or generates or measured.growth_from is not None
    if part or comparison.predicted is None:
        return None
    context = measured.context_bytes or measured.gpu.context_bytes
    counted_context = context if measured.counted == "device used" else 0
    unit = UNITS[measured.unit]
    workload = Workload.parse(measured.workload) if measured.workload else None
    if set(measured.workload or ()) - _DESCRIBED:
        return None
    return Question(
        name=measured.name,
        model={"workload": measured.workload} if workload else {"module": _MODULE},
        batch_size=measured.batch_size,
        optimizer=workload.optimizer.removesuffix("-foreach") if workload else "adam",
        precision=workload.precision if workload else _PRECISIONS[measured.factory],
        sequence_length=workload.sequence_length if workload else None,
        image_size=workload.image_size if workload else 224,
        checkpointing=bool(workload and workload.gradient_checkpointing),
        total_bytes=measured.gpu.total_bytes - context,
        measured_bytes=(
            None if measured.published is None else int(measured.published * unit) - counted_context
        ),
        left_out_bytes=measured.left_out_bytes,
        ran=measured.ran,
        ours_bytes=int(comparison.predicted * unit) - counted_context,
    )


_DESCRIBED = {
    "model", "config", "sequence_length", "image_size", "mode", "attention", "optimizer",
    "precision", "gradient_accumulation", "gradient_checkpointing",
}  # fmt: skip
"""Fields of a workload that other estimators take, or that do not matter to them."""

_MODULE = "benchmarks.vision_transformer:VisionTransformer"
_PRECISIONS = {
    f"benchmarks.vision_transformer:{factory}": precision
    for factory, precision in (
        *(("fp32", "fp32"), ("fp32_with_fabric", "fp32")),
        *(("bf16_true", "bf16-true"), ("fp16_mixed", "fp16-mixed")),
    )
}
"""Precisions of the factories, all of which train one model with Adam."""


def predictor() -> Predict:
    """Trace measurements to predict them; each step is traced once."""
    # torch takes seconds to load; --help and mistakes in the file must not wait for it.
    from engine.parallel.interconnect import nccl_bytes
    from engine.prediction.probe import predict_memory
    from engine.prediction.texts.generation import generation_traces
    from engine.script.factory import Factory
    from engine.script.trace import trace_script
    from engine.traces.source import TraceSource
    from engine.traces.tracer import trace
    from engine.traces.workloads import trace_workload
    from engine.tracing.lowering import cuda_behaviour
    from engine.tracing.trace import Trace

    @cache
    def traces(fields: str, capability: float) -> TraceSource:
        workload = Workload.parse(json.loads(fields))
        return trace_workload(workload, cuda_behaviour(capability), lambda event: None)

    def step_of(measurement: Measurement, batch_size: int) -> Trace:
        capability = measurement.gpu.compute_capability
        if measurement.factory:
            return trace_script(
                Factory.of(measurement.factory), batch_size, cuda_behaviour(capability)
            )
        if measurement.texts is not None:
            workload, texts = Workload.parse(measurement.workload or {}), Texts(**measurement.texts)
            behaviour = cuda_behaviour(capability)
            return generation_traces(workload, texts, behaviour, alone=True).at(batch_size)
        if measurement.forward_only:
            workload = Workload.parse(measurement.workload or {})
            return trace(workload, batch_size, cuda_behaviour(capability), forward_only=True)
        return traces(json.dumps(measurement.workload), capability).at(batch_size)

    def predict(measurement: Measurement, batch_size: int) -> Trial:
        place = measurement.gpu
        context = measurement.context_bytes or place.context_bytes
        gpus = (measurement.workload or {}).get("world_size", 1)
        usable = place.total_bytes - context - nccl_bytes(gpus)
        facts = GpuFacts(place.display_name, place.total_bytes, usable)
        step = step_of(measurement, batch_size)
        trial = predict_memory(facts, step)
        if measurement.kept_bytes:
            room = replace(facts, usable_bytes=usable - measurement.kept_bytes)
            trial = replace(trial, fits=predict_memory(room, step).fits)
        return trial

    return predict


def summarize(comparisons: Sequence[Comparison]) -> Summary:
    known = [c for c in comparisons if c.measurement.complete]
    held = memory_range()
    ran_out = [c for c in comparisons if not c.measurement.ran and c.fits is not None]
    ran = [c for c in comparisons if c.measurement.ran and c.fits is not None]
    return Summary(
        known=Errors.of(c.error for c in known),
        within_aim=sum(c.error is not None and abs(c.error) <= AIM for c in known),
        within_range=sum(
            c.error is not None and held.low <= 1 / (1 + c.error) <= held.high for c in known
        ),
        plain=Errors.of(c.plain_error for c in known),
        every=Errors.of(c.error for c in comparisons),
        ran_out=len(ran_out),
        false_safe=sum(c.fits is True for c in ran_out),
        ran=len(ran),
        false_alarm=sum(c.fits is False for c in ran),
    )
