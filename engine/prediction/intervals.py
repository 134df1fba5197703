"""How far a prediction may be off: ranges from the residuals seen so far.

A residual is a measured figure beside the predicted one. Those of memory on real GPUs stand in
``calibration.toml`` beside this file; ``python -m engine validate prediction --gpu local --write``
adds the ones of one's own GPU to a second file, which counts as well.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from engine.errors import EngineError

PUBLISHED = Path(__file__).with_name("calibration.toml")
OWN = Path(__file__).parents[2] / "var" / "calibration.toml"
OWN_FILE_VARIABLE = "ENGINE_CALIBRATION"
"""Environment variable that names another file for one's own residuals than :data:`OWN`."""

LEAST_MEMORY_SHARE = 0.02
"""A range of memory is never narrower than so much to each side, whatever the residuals say."""
LEAST_TIME_SHARE = 0.10
"""The same for step times: clocks, temperature and drivers alone make so much difference."""

_FARTHEST = 10.0
# A figure more than ten times off is a mistake in the file (such as another unit), no residual.


class Counted(StrEnum):
    """What a figure counts; a measured and a predicted one are comparable only if alike."""

    PEAK_ALLOCATED = "peak_allocated_bytes"
    PEAK_RESERVED = "peak_reserved_bytes"
    DEVICE_USED = "device_used_bytes"
    LIVE = "live_bytes"
    STEP_SECONDS = "step_seconds"


_GPU_MEMORY = (Counted.PEAK_ALLOCATED, Counted.PEAK_RESERVED, Counted.DEVICE_USED)
# Live bytes are those of the CPU, predicted exactly: they say nothing of CUDA's kernels.


@dataclass(frozen=True)
class Residual:
    """One figure, measured and predicted.

    Attributes:
        gpu: A name of the catalogue, or the device as its driver names it.
        workload: The fields of the workload that are not at their defaults.
        batch_size: Samples per step.
        counted: What was counted; bytes, or seconds.
        measured: What was found.
        predicted: What was predicted for it.
        source: Who measured it, when, with what.
        forward_only: Whether the forward pass ran alone.
    """

    gpu: str
    workload: Mapping[str, Any]
    batch_size: int
    counted: Counted
    measured: float
    predicted: float
    source: str
    forward_only: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counted", Counted(self.counted))
        if not (self.measured > 0 and self.predicted > 0):
            raise ValueError("a residual needs two positive figures")

    @property
    def ratio(self) -> float:
        """Measured over predicted: above 1 the prediction was too low."""
        return self.measured / self.predicted

    @property
    def configuration(self) -> tuple[str, str]:
        """The GPU and the model: residuals of one configuration resemble one another."""
        return self.gpu, str(self.workload.get("model", ""))


@dataclass(frozen=True)
class RelativeRange:
    """Where the true figure lies, as shares of the predicted one: ``low <= 1 <= high``."""

    low: float
    high: float

    def low_bytes(self, predicted: int) -> int:
        """The low end for a predicted number of bytes."""
        return int(predicted * self.low)

    def high_bytes(self, predicted: int) -> int:
        """The high end for a predicted number of bytes, rounded up."""
        return -int(-predicted * self.high // 1)

    def in_words(self) -> str:
        """Such as ``-6 % to +6 %``."""
        return f"{100 * (self.low - 1):+.0f} % to {100 * (self.high - 1):+.0f} %"


ASSUMED_MEMORY = RelativeRange(0.85, 1.15)
"""Assumed where no residual is known."""
ASSUMED_STEP_TIME = RelativeRange(2 / 3, 3 / 2)
"""Assumed until step times were calibrated: the 60 % of the peak compute that is taken for granted
is 40 % in a poor case and 90 % in the best one."""


def range_of(
    residuals: Iterable[Residual], least_share: float, assumed: RelativeRange
) -> RelativeRange:
    """The range that residuals give to a new prediction.

    Each side reaches as far as the widest residual on that side, ``least_share`` at least, times
    ``1 + 2 / n`` for ``n`` configurations (a model on a GPU) seen: three times as far if all that
    is known is one configuration, and 1.2 times with ten. Residuals of one configuration resemble
    one another, so they count as one.

    Args:
        residuals: Of the kind that is predicted.
        least_share: The narrowest a side may be before that factor.
        assumed: Taken if there are no residuals.
    """
    known = list(residuals)
    if not known:
        return assumed
    ratios = [residual.ratio for residual in known]
    factor = 1 + 2 / len({residual.configuration for residual in known})
    under = max(least_share, 1 - min(ratios)) * factor
    over = max(least_share, max(ratios) - 1) * factor
    return RelativeRange(max(1 - under, 0.0), 1 + over)


def memory_range() -> RelativeRange:
    """The range of predicted GPU memory, from every residual known on this machine."""
    return _ranges(PUBLISHED, own_file())[0]


def step_time_range() -> RelativeRange:
    """The range of predicted step times, from every residual known on this machine."""
    return _ranges(PUBLISHED, own_file())[1]


def own_file() -> Path:
    """The file of one's own residuals; it need not exist."""
    return Path(os.environ.get(OWN_FILE_VARIABLE) or OWN)


@cache
def _ranges(*files: Path) -> tuple[RelativeRange, RelativeRange]:
    known = [residual for path in files if path.exists() for residual in read_residuals(path)]
    memory = [residual for residual in known if residual.counted in _GPU_MEMORY]
    times = [residual for residual in known if residual.counted is Counted.STEP_SECONDS]
    return (
        range_of(memory, LEAST_MEMORY_SHARE, ASSUMED_MEMORY),
        range_of(times, LEAST_TIME_SHARE, ASSUMED_STEP_TIME),
    )


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
            f"{residual.batch_size} measured is {residual.ratio:.3g} times predicted, which is no "
            "residual but a mistake, such as another unit"
        )
    return residual


def append_residuals(path: Path, residuals: Iterable[Residual]) -> None:
    """Add rows to a calibration file, which is made if there is none.

    Raises:
        EngineError: If it cannot be written, or a row is too far off to be taken for a residual.
    """
    try:
        text = "".join(as_toml(_plausible(residual)) for residual in residuals)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        raise EngineError(f"the calibration file {path} is not written: {error}") from error
    _ranges.cache_clear()


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
    ]
    return "\n" + "\n".join(lines) + "\n"


def _value(value: object) -> str:
    """A text, number or truth value in TOML, which writes those as JSON does."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
