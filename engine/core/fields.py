"""The fields of a request, each described once, next to its type.

A field of :class:`engine.interface.workload.Workload`, :class:`engine.interface.request.Request` or
:class:`engine.interface.assumptions.Assumptions` carries a :class:`Described` in its annotation.
The command line, the form, the API's schema, the settings shown with a result, the command that
repeats it and the columns of the history are derived from these, so a new field is added in one
place.

Nothing here imports pydantic, which training jobs and the command without its extra do not have.
:mod:`engine.core.border` checks untrusted values against them.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from enum import StrEnum
from functools import cache
from typing import Any

NONE = "none"
"""The word for ``None`` on a command line, where a field takes it beside its default."""


class Choice(StrEnum):
    """One of a few values, with the label that forms show."""

    _value_: str
    label: str

    def __new__(cls, value: str, label: str = "") -> Choice:
        """A member. The default label is the value with spaces for hyphens."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.label = label or value.replace("-", " ")
        return member


class Group(Choice):
    """Sections of the form, in the order of the page."""

    MODEL = "model", "Model"
    GPU = "gpu", "GPU and batch"
    TEXTS = "texts", "Generated texts"
    LIMIT = "limit", "Memory limit and allocator"
    TRAINING = "training", "Training"
    LENGTHS = "lengths", "Lengths of samples"
    METHOD = "method", "Training method"
    OPTIONS = "options", "Training options"
    SAVERS = "savers", "Memory savers"
    ADAPTERS = "adapters", "Adapters and quantization"
    PHASES = "phases", "Evaluation and generation"
    SEVERAL = "several", "Multi-GPU"
    TASK = "task", "Task and labels"
    COST = "cost", "Annual cost"

    @property
    def is_rare(self) -> bool:
        """Whether its fields are rarely changed: folded on the form, listed only if changed."""
        return self not in (Group.MODEL, Group.GPU, Group.TRAINING, Group.COST)


@dataclass(frozen=True)
class Interval:
    """Inclusive bounds of a number field; stands in its annotation."""

    ge: int
    le: int


@dataclass(frozen=True)
class Described:
    """Presentation of a field.

    Attributes:
        label: Its name on pages.
        help: One or two sentences, for the form, the API and the command line.
        group: Its section of the form.
        unit: Unit of its value, as in ``128 tokens``.
        empty: Meaning of an empty value, such as ``the model's own``; else the default is shown.
        flag: Flag on the command line; derived from the name if empty.
        metavar: Placeholder of the value on the command line; derived from the type if empty.
        is_column: Whether the history has a column for it.
        chip: A few words beside the model's name where the value is not the usual one: a format
            of the stored value, or its function. Empty where the field decides too little. A
            lambda in an annotation sees no names of its module.
    """

    label: str
    help: str
    group: Group
    unit: str = ""
    empty: str = ""
    flag: str = ""
    metavar: str = ""
    is_column: bool = False
    chip: str | Callable[[Any], str] = ""


@dataclass(frozen=True)
class Field:
    """A field as its class declares it.

    Attributes:
        kind: The type without ``None``.
        is_optional: Whether ``None`` is allowed.
        default: ``None`` if there is none.
    """

    name: str
    kind: Any
    is_optional: bool
    bounds: Interval | None
    default: Any
    described: Described

    @property
    def label(self) -> str:
        return self.described.label

    @property
    def label_with_unit(self) -> str:
        """Label for forms, which show no unit after the value; it may have the unit already."""
        unit = self.described.unit
        has_it = not unit or unit.lower() in self.label.lower().split()
        return self.label if has_it else f"{self.label} ({unit})"

    def unit_of(self, value: object) -> str:
        """The unit after a value: in the singular after one, such as ``image per sample``."""
        counted, _, rest = self.described.unit.partition(" ")
        if value == 1 and len(counted) > len("µs"):
            counted = counted.removesuffix("es" if counted.endswith("ches") else "s")
        return f"{counted} {rest}".strip()

    @property
    def group(self) -> Group:
        return self.described.group

    @property
    def is_switch(self) -> bool:
        return self.kind is bool

    @property
    def is_number(self) -> bool:
        return self.kind in (int, float)

    @property
    def choices(self) -> list[tuple[str, str]]:
        """Values and labels of an enum, or of a switch that may be left empty."""
        if self.is_switch and self.is_optional:
            return [("true", "on"), ("false", "off")]
        if not self._is_enum:
            return []
        return [(str(one), getattr(one, "label", one.replace("-", " "))) for one in self.kind]

    @property
    def flag(self) -> str:
        return self.described.flag or f"--{self.name.replace('_', '-')}"

    def chip_of(self, value: Any) -> str:
        """The words that stand for a stored value; empty where it has none."""
        chip = self.described.chip
        return chip.format(value) if isinstance(chip, str) else chip(value)

    @property
    def metavar(self) -> str:
        if self.is_switch:
            return "true|false"
        return self.described.metavar or ("NAME" if self._is_enum else "N")

    @property
    def takes_none(self) -> bool:
        """Whether ``None`` says something else than leaving the field out does.

        JSON says it with ``null``, a command line with ``none``.
        """
        return self.is_optional and self.default is not None

    @property
    def usage(self) -> str:
        """The help of the flag, with choices and default."""
        values = f" One of {', '.join(self.kind)}." if self._is_enum else ""
        values += f" Write {NONE} for {self.described.empty}." if self.takes_none else ""
        empty = "" if self.takes_none else self.described.empty
        default = empty or self.default_text
        return f"{self.described.help}{values}" + (f" Default: {default}." if default else "")

    @property
    def default_text(self) -> str:
        """The default as a user would write it; empty if there is none."""
        if self.default is None:
            return ""
        if self.is_switch:
            return str(self.default).lower()
        return f"{self.default:.10g}" if self.kind is float else str(self.default)

    @property
    def _is_enum(self) -> bool:
        return isinstance(self.kind, type) and issubclass(self.kind, StrEnum)


def described_fields(kind: type) -> dict[str, Field]:
    """The described fields of a data class by name, in its order."""
    return _described_fields(kind)


@cache
def _described_fields(kind: type) -> dict[str, Field]:
    hints = typing.get_type_hints(kind, include_extras=True)
    found = (_field(field, hints[field.name]) for field in dataclasses.fields(kind))
    return {field.name: field for field in found if field is not None}


def _field(declared: dataclasses.Field[Any], hint: Any) -> Field | None:
    base, *metadata = typing.get_args(hint) if _is_annotated(hint) else [hint]
    described = next((one for one in metadata if isinstance(one, Described)), None)
    if described is None:
        return None
    members = typing.get_args(base) if isinstance(base, types.UnionType) else (base,)
    (kind,) = (member for member in members if member is not types.NoneType)
    return Field(
        name=declared.name,
        kind=kind,
        is_optional=types.NoneType in members,
        bounds=next((one for one in metadata if isinstance(one, Interval)), None),
        default=None if declared.default is MISSING else declared.default,
        described=described,
    )


def _is_annotated(hint: Any) -> bool:
    return typing.get_origin(hint) is typing.Annotated
