"""Intervals of predictions: ranges from known residuals.

A residual is a measured value next to its prediction. Those of memory on real GPUs are in
``calibration.toml`` next to this file; ``memorymark validate prediction --gpu local --write`` adds
those of your own GPU to a second file, which counts as well.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from ...core.errors import EngineError
from ...core.process import calibration_file
from .speed_model import speed_model

PUBLISHED = Path(__file__).with_name("calibration.toml")

MIN_MEMORY_SHARE = 0.02
"""The least width of a memory range to each side, whatever the residuals say."""

_FARTHEST = 10.0  # a value further off is a mistake in the file, such as a wrong unit


class Counted(StrEnum):
    """Quantity that a value measures; only values of the same kind are comparable."""

    PEAK_ALLOCATED = "peak_allocated_bytes"
    PEAK_RESERVED = "peak_reserved_bytes"
    DEVICE_USED = "device_used_bytes"
    LIVE = "live_bytes"
    STEP_SECONDS = "step_seconds"


_GPU_MEMORY = (Counted.PEAK_ALLOCATED, Counted.PEAK_RESERVED, Counted.DEVICE_USED)
# Live bytes are the CPU's and predicted exactly, which says nothing about CUDA's kernels.


@dataclass(frozen=True)
class Residual:
    """One value, measured and predicted.

    Attributes:
        gpu: A catalogue name, or the driver's name of the device.
        workload: The fields of the workload that are not at their defaults.
        batch_size: Samples per step.
        counted: The quantity, in bytes or seconds.
        predicted: ``None`` for a step that depends on a host of which nothing was known.
        source: Person, date and tool of the measurement.
        forward_only: Whether only the forward pass ran.
        predictor: For a step time, its predictor, as
            :func:`~engine.prediction.timing.speed_model.step_predictor` names it.
    """

    gpu: str
    workload: Mapping[str, Any]
    batch_size: int
    counted: Counted
    measured: float
    predicted: float | None
    source: str
    forward_only: bool = field(default=False, kw_only=True)
    predictor: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counted", Counted(self.counted))
        if not (self.measured > 0 and (self.predicted is None or self.predicted > 0)):
            raise ValueError("a residual needs two positive values")

    @property
    def ratio(self) -> float:
        """Measured over predicted: above 1 the prediction was too low."""
        if self.predicted is None:
            raise ValueError("nothing was predicted")
        return self.measured / self.predicted

    @property
    def configuration(self) -> tuple[str, str]:
        """The GPU and the model: residuals of one configuration resemble one another."""
        return self.gpu, str(self.workload.get("model", ""))


@dataclass(frozen=True)
class RelativeRange:
    """Range of the true value, as shares of the predicted one: ``low <= 1 <= high``."""

    low: float
    high: float

    def low_bytes(self, predicted: int) -> int:
        return int(predicted * self.low)

    def high_bytes(self, predicted: int) -> int:
        """Rounded up."""
        return -int(-predicted * self.high // 1)

    def __str__(self) -> str:
        """Such as ``-6% to +6%``, with a proper minus sign."""
        text = f"{100 * (self.low - 1):+.0f}% to {100 * (self.high - 1):+.0f}%"
        return text.replace("-", "\N{MINUS SIGN}")


ASSUMED_MEMORY = RelativeRange(0.85, 1.15)
"""Default without any residuals."""

WITH_WORKSPACES = RelativeRange(0.90, 1.15)
"""Range for a step with convolutions: how the allocator packs tensors around cuDNN's workspaces
depends on their exact sizes. Of our own runs on an H100 a ConvNeXt took most, 9% more, and a ResNet
least, 2% less; of published runs, predicted without workspaces, MobileNetV2 took 15% more."""


def range_of(
    residuals: Iterable[Residual], least_share: float, assumed: RelativeRange
) -> RelativeRange:
    """The range of a new prediction, given known residuals.

    Each side is as wide as the largest residual on that side, at least ``least_share``, times
    ``1 + 2 / n`` for residuals of ``n`` configurations (a model on a GPU): three times as wide with
    one configuration, 1.2 times with ten. Residuals of one configuration resemble one another, so
    they count as one.

    Args:
        residuals: Residuals of the kind that is predicted.
        least_share: The least width of a side before that factor.
        assumed: The range without residuals.
    """
    known = list(residuals)
    if not known:
        return assumed
    ratios = [residual.ratio for residual in known]
    factor = 1 + 2 / len({residual.configuration for residual in known})
    under = max(least_share, 1 - min(ratios)) * factor
    over = max(least_share, max(ratios) - 1) * factor
    return RelativeRange(max(1 - under, 0.0), 1 + over)


def device_used_interval(
    used_bytes: int,
    total_bytes: int,
    *,
    jumps: Iterable[int] = (),
    convolves: bool = False,
    unsure: tuple[int, int] = (0, 0),
) -> tuple[int, int]:
    """Interval of the device memory that a batch really uses.

    Args:
        used_bytes: The predicted value.
        total_bytes: Memory of the GPU. cuDNN takes smaller workspaces where memory is short, so
            they alone do not exceed it.
        jumps: Bytes that the allocator would hold unused at batch sizes nearby in addition, or
            fewer below 0. Where it does, small differences decide how it packs.
        convolves: Whether the step has convolutions.
        unsure: Bytes fewer and more that the CUDA context may take.
    """
    span, packings = memory_range(), (0, *jumps)
    low = span.low_bytes(used_bytes + min(packings))
    high = span.high_bytes(used_bytes + max(packings))
    if convolves:
        low = min(low, WITH_WORKSPACES.low_bytes(used_bytes))
        high = max(high, min(WITH_WORKSPACES.high_bytes(used_bytes), total_bytes))
    return max(0, low - unsure[0]), high + unsure[1]


def step_time_range(family: str, has_rows: bool, launch_limited: bool) -> RelativeRange:
    """The range of predicted step times that nothing measured has corrected, from known steps.

    Args:
        family: Family of the step (:class:`~engine.prediction.timing.step_time.Family`).
        has_rows: Whether published steps of the GPU are among those that were fitted.
        launch_limited: Whether the GPU waits for its host, whose launch time is known.
    """
    return RelativeRange(*speed_model().ranges[family, has_rows, launch_limited])


def memory_range() -> RelativeRange:
    """The range of predicted GPU memory, from all residuals on this machine."""
    known = [*_residuals(PUBLISHED), *_residuals(calibration_file())]
    memory = [residual for residual in known if residual.counted in _GPU_MEMORY]
    return range_of(memory, MIN_MEMORY_SHARE, ASSUMED_MEMORY)


@cache
def _residuals(path: Path) -> Sequence[Residual]:
    return read_residuals(path) if path.exists() else ()


def read_residuals(path: Path) -> list[Residual]:
    """The residuals in a calibration file.

    Raises:
        EngineError: If the file cannot be read, or a row of it is not a residual.
    """
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("residual", [])
        return [_plausible(Residual(**row)) for row in rows]
    except (OSError, ValueError, TypeError) as error:
        raise EngineError(f"the calibration file {path} is not usable: {error}") from error


def _plausible(residual: Residual) -> Residual:
    if not 1 / _FARTHEST <= residual.ratio <= _FARTHEST:
        raise ValueError(
            f"{residual.counted} of {residual.workload.get('model')} at batch "
            f"{residual.batch_size} was measured at {residual.ratio:.3g} times the prediction: "
            "that must be a mistake, such as a wrong unit"
        )
    return residual


def append_residuals(path: Path, residuals: Iterable[Residual]) -> None:
    """Append rows to a calibration file, creating it if needed.

    Raises:
        EngineError: If it cannot be written, or a row is implausible.
    """
    try:
        text = "".join(as_toml(_plausible(residual)) for residual in residuals)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        raise EngineError(f"the calibration file {path} was not written: {error}") from error
    _residuals.cache_clear()


def as_toml(residual: Residual) -> str:
    """A row of a calibration file."""
    fields = ", ".join(f"{name} = {_value(value)}" for name, value in residual.workload.items())
    lines = [
        "[[residual]]",
        f"gpu = {_value(residual.gpu)}",
        f"workload = {{ {fields} }}",
        f"batch_size = {residual.batch_size}",
        *(["forward_only = true"] if residual.forward_only else []),
        f"counted = {_value(str(residual.counted))}",
        f"measured = {residual.measured!r}",
        f"predicted = {residual.predicted!r}",
        f"source = {_value(residual.source)}",
        *([f"predictor = {_value(residual.predictor)}"] if residual.predictor else []),
    ]
    return "\n" + "\n".join(lines) + "\n"


def _value(value: object) -> str:
    """A string, number or boolean in TOML, which writes those as JSON does."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
