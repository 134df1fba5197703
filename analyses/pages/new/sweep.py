"""A sweep: an analysis for each of some models, precisions, batches, GPUs and versions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from analyses.formatting import gpu_name, model_name
from engine.versions.software import format_versions, parse

MAX_COMPARED = 24

MIN_COMPARED = 2

BATCHES = "compared_batches"

INPUTS = {
    "model": "compared_models",
    "precision": "compared_precisions",
    "current_batch_size": BATCHES,
    "gpu": "compared_gpus",
    "software": "compared_software",
}
"""The input of the values to compare, by the field that they are of."""

_NAMES = {
    "model": ("model", "models"),
    "precision": ("precision", "precisions"),
    "current_batch_size": ("batch", "batches"),
    "gpu": ("GPU", "GPUs"),
    "software": ("set of versions", "sets of versions"),
}
_BETWEEN_BATCHES = re.compile(r"[\s,;]+")


@dataclass(frozen=True)
class Sweep:
    """The analyses of a comparison.

    Attributes:
        values: The values of each field that is varied; the others are as the form has them.
    """

    values: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, typed: Mapping[str, Any]) -> Sweep:
        """The sweep that the cleaned inputs of a form describe."""
        given = {field: typed.get(name) or [] for field, name in INPUTS.items()}
        given["current_batch_size"] = batches_in(typed.get(BATCHES) or "")
        return cls({field: values for field, values in given.items() if values})

    @property
    def count(self) -> int:
        return prod(len(values) for values in self.values.values())

    @property
    def factors(self) -> str:
        """The varied settings, such as ``2 precisions × 3 GPUs``; empty if there are none."""
        several = {field: values for field, values in self.values.items() if len(values) > 1}
        return " × ".join(
            f"{len(values)} {_NAMES[field][len(values) != 1]}"
            for field, values in (several or self.values).items()
        )

    @property
    def problem(self) -> str:
        """Why it cannot be submitted, as a message of the engine is; empty if it can."""
        if self.count < MIN_COMPARED:
            return "choose two or more models, precisions, batches, GPUs or versions to compare"
        if self.count > MAX_COMPARED:
            made = f"{self.factors} make {self.count:,} analyses"
            return f"{made}; choose at most {MAX_COMPARED}"
        return ""

    def each(self) -> Iterator[dict[str, str]]:
        """The varied fields of each analysis, the last field changing fastest."""
        for values in product(*self.values.values()):
            yield dict(zip(self.values, values, strict=True))


def chosen_to_compare(values: Mapping[str, str]) -> dict[str, list[str] | str]:
    """The values that a comparison starts with: those of the form, to which others are added."""
    chosen: dict[str, list[str] | str] = {
        name: [values[field]] for field, name in INPUTS.items() if values.get(field)
    }
    return chosen | {BATCHES: values.get("current_batch_size", "")}


def words_of(changes: Mapping[str, str]) -> str:
    """The label of an analysis of a sweep, from what is varied."""
    say = {
        "model": model_name,
        "gpu": gpu_name,
        "current_batch_size": "batch {}".format,
        "software": _versions,
    }
    return " · ".join(say.get(field, str)(value) for field, value in changes.items())


def _versions(pins: str) -> str:
    return format_versions(parse(pins))


def batches_in(text: str) -> list[str]:
    """The batch sizes in a text such as ``8, 16, 32``, each once; the engine checks them."""
    return list(dict.fromkeys(word for word in _BETWEEN_BATCHES.split(text) if word))
