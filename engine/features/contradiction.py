"""Two or more settings that cannot stand together, and the values that they concern."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.choices import Batching, CrossEntropy, Method, Quantization

Settings = Any
"""A workload, or :class:`engine.interface.texts.Texts`: their modules import these rules."""


@dataclass(frozen=True)
class Values:
    """Some values of a field, or all but some."""

    named: tuple[object, ...]
    are_excluded: bool = False

    def __contains__(self, value: object) -> bool:
        return (value in self.named) is not self.are_excluded


def one_of(*values: object) -> Values:
    return Values(values)


def other_than(*values: object) -> Values:
    return Values(values, are_excluded=True)


@dataclass(frozen=True)
class Contradiction:
    """Settings that cannot stand together.

    Attributes:
        settings: Values of fields, by their names; the first is the field to change.
        message: The advice. Only with ``model_is`` may it name the workload's fields, in braces.
        model_is: A further condition, which the fields alone do not show.
    """

    settings: Mapping[str, Values]
    message: str
    model_is: Callable[[Settings], bool] | None = None

    @property
    def field(self) -> str:
        """The field to change."""
        return next(iter(self.settings))

    def holds(self, workload: Settings, texts: Settings | None = None) -> bool:
        """Whether a workload, with the texts that it generates, has all of these settings."""
        return all(
            getattr(workload if hasattr(workload, name) else texts, name) in values
            for name, values in self.settings.items()
        ) and (self.model_is is None or self.model_is(workload))


def is_of_a_package(workload: Settings) -> bool:
    return bool(workload.preset.package)


GIVEN = other_than(None)
NOT_GIVEN = one_of(None)
ANY = other_than()
NAMED = other_than(None, "")
ON = one_of(True)
OFF = one_of(False)
OF_ANSWERS = other_than(Method.SFT)
VARIES = other_than(Batching.FIXED)
IN_PARTS = other_than(CrossEntropy.MODEL)
QUANTIZED = other_than(Quantization.NONE)

DEGREES = ("tensor_parallel", "pipeline_parallel")
"""Fields that divide a model into parts on several GPUs."""
NOT_IN_PARTS: tuple[tuple[str, Values], ...] = (
    ("lora_rank", GIVEN),
    ("method", other_than(Method.SFT)),
    ("batching", VARIES),
    ("cross_entropy", IN_PARTS),
    ("activation_offload", ON),
    ("eval_batch_size", GIVEN),
    ("cpu_offload", ON),
    ("use_cache", ON),
    ("compile", ON),
    ("optimizer_in_backward", ON),
)
"""Settings that are not predicted where GPUs have parts of a model."""
