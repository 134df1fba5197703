"""Errors of predictions where training was measured: published numbers, in groups.

They are in ``past_errors.toml`` next to this file, which ``python -m benchmarks.results`` writes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from statistics import median, quantiles
from typing import Any

FILE = Path(__file__).with_name("past_errors.toml")

ALL = "all"

MIN_MEASURED = 5
"""Fewest measurements that give a percentile."""

_CONVOLUTIONAL = {"convnext", "convnextv2", "regnet", "resnet", "vgg"}
_BOTH = {"mobilevit"}


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a share of the values does not exceed, interpolated linearly between two.

    Args:
        values: Values in any order; one at least.
        share: A share in thousandths, between 0 and 1.
    """
    if len(values) == 1:
        return values[0]
    return quantiles(values, n=1000, method="inclusive")[round(1000 * share) - 1]


class PredictedQuantity(StrEnum):
    """Predicted quantity."""

    MEMORY = "memory"
    STEP_TIME = "step time"


@dataclass(frozen=True)
class Errors:
    """Sizes of errors, as shares of what was measured.

    Attributes:
        percentile_90: ``None`` for fewer than :data:`MIN_MEASURED`.
    """

    count: int
    median: float
    percentile_90: float | None = None

    @classmethod
    def of(cls, errors: Iterable[float]) -> Errors | None:
        """Summary of signed errors; ``None`` without any."""
        sizes = [abs(error) for error in errors]
        if not sizes:
            return None
        most = percentile(sizes, 0.9) if len(sizes) >= MIN_MEASURED else None
        return cls(len(sizes), median(sizes), most)


@dataclass(frozen=True)
class Group:
    """Published measurements that have something in common.

    Attributes:
        of: The predicted quantity.
        models: A ``model_type``, a family (:func:`family_of_type`), or :data:`ALL`.
        gpu: A name of the catalogue; empty for all GPUs.
        sources: Who measured.
    """

    of: PredictedQuantity
    models: str
    gpu: str
    errors: Errors
    sources: tuple[str, ...]

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Group:
        errors = Errors(row["count"], row["median"], row.get("percentile_90"))
        of = PredictedQuantity(row["of"])
        return cls(of, row["models"], row["gpu"], errors, tuple(row["sources"]))


def family_of_type(model_type: str) -> str:
    """The family of a ``model_type``, as :class:`~.step_time.Family` has it."""
    if model_type in _CONVOLUTIONAL or model_type.startswith("mobilenet"):
        return "convolutional"
    return "other" if model_type in _BOTH else "transformers"


def groups_like(of: PredictedQuantity, model_type: str, gpu: str) -> list[Group]:
    """The groups like a prediction, the most alike first, as far as there are any.

    Those are of the model's type and of its family, on the GPU and on all, and of all models. Its
    family on the GPU is left out where its type was measured there.

    Args:
        of: The predicted quantity.
        model_type: Empty where it is not known.
        gpu: A name of the catalogue; empty for another.
    """
    known = {(group.models, group.gpu): group for group in _groups() if group.of is of}
    family = family_of_type(model_type) if model_type else ""
    on_gpu = next((key for key in ((model_type, gpu), (family, gpu)) if gpu and key in known), None)
    wanted = [on_gpu, (model_type, ""), (family, ""), (ALL, "")]
    return [known[key] for key in wanted if key in known]


@cache
def _groups() -> list[Group]:
    return [Group.read(row) for row in tomllib.loads(FILE.read_text(encoding="utf-8"))["group"]]
