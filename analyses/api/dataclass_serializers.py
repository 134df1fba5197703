"""Serializers made from the engine's data classes, so that the two never differ."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from rest_framework import serializers

Field = serializers.Field[Any, Any, Any, Any]

_PLAIN: Mapping[Any, type[Field]] = {
    bool: serializers.BooleanField,
    int: serializers.IntegerField,
    float: serializers.FloatField,
    str: serializers.CharField,
}


STORED = "Stored"
"""Stands before the name of what may lack fields: another version may have stored it."""


def serializer_of(
    kind: type, *, required: bool = True, name: str = ""
) -> type[serializers.Serializer[Any]]:
    """A serializer with the fields of a data class, and what its docstring says of each.

    It writes whatever has these attributes or keys, so a row of the database too.

    Args:
        kind: The data class.
        required: Whether each field is always there.
        name: What the schema calls it; the data class's name if empty.
    """
    return _made(kind, required, name or f"{'' if required else STORED}{kind.__name__}")


@cache
def _made(kind: type, required: bool, name: str) -> type[serializers.Serializer[Any]]:
    """One for each name: the schema has a name once."""
    body: dict[str, Any] = {"__doc__": (inspect.getdoc(kind) or "").split("\n")[0]}
    body |= fields_of(kind, required=required)
    return type(f"{name}Serializer", (serializers.Serializer,), body)


def fields_of(kind: type, *, required: bool) -> dict[str, Field]:
    """A serializer's field for each of a data class."""
    meant, hints = meanings(kind), typing.get_type_hints(kind)
    return {
        field.name: _field(hints[field.name], required, meant.get(field.name, ""))
        for field in fields(kind)
    }


def meanings(kind: type) -> dict[str, str]:
    """What the docstrings of a data class and of its bases say of each attribute."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if is_dataclass(base):
            found |= dict(_described(inspect.getdoc(base) or ""))
    return found


def _described(docstring: str) -> Iterator[tuple[str, str]]:
    _, _, listed = docstring.partition("Attributes:\n")
    section = re.split(r"\n(?=\S)", listed)[0]
    for entry in re.split(r"\n(?= {4}\S)", section):
        names, _, text = entry.strip().partition(":")
        said = " ".join(text.replace("``", "").split())
        yield from ((name.strip(), said) for name in names.split(",") if said)


def _field(hint: Any, required: bool, meaning: str) -> Field:
    options: dict[str, Any] = {"required": required, "help_text": meaning}
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
        options["allow_null"] = True
    if hint in _PLAIN:
        return _PLAIN[hint](**options)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return serializers.ChoiceField([(one.value, one.name) for one in hint], **options)
    if is_dataclass(hint) and isinstance(hint, type):
        return serializer_of(hint, required=required)(**options)
    return _collection(typing.get_origin(hint), typing.get_args(hint), options)


def _collection(origin: Any, inside: tuple[Any, ...], options: dict[str, Any]) -> Field:
    if origin is dict:
        if inside[1] is Any:
            return serializers.DictField(**options)
        return serializers.DictField(child=_field(inside[1], True, ""), **options)
    if is_dataclass(inside[0]) and isinstance(inside[0], type):
        return serializer_of(inside[0], required=options["required"])(many=True, **options)
    return serializers.ListField(child=_field(inside[0], True, ""), **options)
