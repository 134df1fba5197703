"""Untrusted values, checked by pydantic against the annotations of our data classes.

All input passes through here: forms, the API, the command line, and JSON from files, other
processes or the database. Errors become :class:`~engine.core.errors.InvalidInput`, with a message
per field that says what to enter. Pydantic is imported only when the first value is checked: lists,
help and training jobs work without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from .errors import InvalidInput
from .fields import Field, Interval, described_fields
from .parsing import MAX_TEXT_LENGTH, unknown_fields

if TYPE_CHECKING:
    from pydantic import BaseModel, TypeAdapter, ValidationError
    from pydantic_core import ErrorDetails

_Kind = TypeVar("_Kind")
_Model = TypeVar("_Model", bound="BaseModel")

_MAX_NAMED = 10
_PLAIN_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)


def settle(instance: object, wrong: dict[str, str], *, but: Iterable[str] = ()) -> None:
    """Check the described fields of a data class under construction, and set the parsed values.

    Args:
        instance: A data class whose values are still untrusted.
        wrong: Receives a message for each wrong field.
        but: Fields that the class checks itself.
    """
    for name, field in described_fields(type(instance)).items():
        value = getattr(instance, name)
        if name in but or (value is None and field.is_optional):
            continue
        object.__setattr__(instance, name, read(field, value, wrong))


def read(field: Field, value: object, wrong: dict[str, str], bounds: Interval | None = None) -> Any:
    """An untrusted value, parsed; if invalid, ``None`` and a message in ``wrong``.

    Numbers may be text in plain decimal notation; ``True``, ``2.5`` and ``"1e3"`` are not whole
    numbers. A switch may be ``yes``, ``on``, ``1`` or their opposites.

    Args:
        field: Sets type and bounds.
        value: Untrusted.
        wrong: Receives the message.
        bounds: Narrower than the field's own, such as a model's.
    """
    bounds = bounds or field.bounds
    from pydantic import ValidationError

    try:
        return _value_reader(field.kind, bounds).validate_python(value)
    except ValidationError:
        wrong[field.name] = _wanted(field, bounds)
        return None


def read_json(kind: type[_Kind], given: object) -> _Kind:
    """The inverse of :func:`dataclasses.asdict`, from a JSON value or its text.

    Types are strict, since our own programs wrote it. A missing field, as from an older version,
    takes its default; an unknown one is refused.

    Raises:
        InvalidInput: With a message for each wrong part, by its path.
    """
    from pydantic import ValidationError

    text = given if isinstance(given, str) else json.dumps(given)
    try:
        reader: type = kind  # mypy finds no type of a data class hashable
        found: _Kind = _json_reader(reader).validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        raise refused(error) from error
    return found


def read_body(kind: type[_Model], given: Mapping[str, object]) -> _Model:
    """A pydantic model from an untrusted JSON object. Types are strict.

    Raises:
        InvalidInput: With a message for each wrong, unknown or missing field.
    """
    from pydantic import ValidationError

    wrong = unknown_fields(given, kind.model_fields)
    known = {name: given[name] for name in kind.model_fields if name in given}
    try:
        body = kind.model_validate(known, strict=True)
    except ValidationError as error:
        raise InvalidInput(wrong | refused(error).fields) from error
    if wrong:
        raise InvalidInput(wrong)
    return body


def refused(error: ValidationError) -> InvalidInput:
    """Pydantic's errors as messages, keyed by the path of each wrong part."""
    details = error.errors(include_url=False, include_input=False)[:_MAX_NAMED]
    return InvalidInput(dict(map(_path_and_message, details)))


def _path_and_message(found: ErrorDetails) -> tuple[str, str]:
    path, message = found["loc"], found["msg"]
    if found["type"] == "value_error":  # raised by a validator of ours
        message = str(found["ctx"]["error"])
    if words := _MESSAGES.get(found["type"]):
        context = found.get("ctx", {}).items()
        message = words.format_map({name: _whole(value) for name, value in context})
    if path and isinstance(index := path[-1], int):  # in a list of plain values
        path, message = path[:-1], f"item {index + 1}: {message}"
    return ".".join(map(str, path)) or "value", message


def _whole(value: object) -> object:
    """A bound as people write it: 0 instead of 0.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_MESSAGES = {
    "missing": "is missing",
    "extra_forbidden": "unknown field",
    "bool_type": "enter true or false",
    "float_type": "enter a number",
    "string_type": "enter text",
    "string_unicode": "it has half a surrogate pair in it; remove it",
    "list_type": "send a list",
    "dict_type": "send a JSON object",
    "model_type": "send a JSON object",
    "int_type": "enter a whole number",
    "int_from_float": "enter a whole number",
    "finite_number": "enter a finite number",
    "greater_than": "enter more than {gt:,}",
    "greater_than_equal": "enter at least {ge:,}",
    "less_than": "enter less than {lt:,}",
    "less_than_equal": "enter at most {le:,}",
    "string_too_short": "enter at least {min_length:,} characters",
    "string_too_long": "enter at most {max_length:,} characters",
    "too_long": "send at most {max_length:,}",
    "literal_error": "choose one of {expected}",
    "enum": "choose one of {expected}",
    "json_invalid": "it is not JSON: {error}",
}


def _wanted(field: Field, bounds: Interval | None) -> str:
    """Advice on what to enter instead of a wrong value."""
    if field.is_switch:
        return "enter true or false"
    if field.choices:
        return f"choose one of {', '.join(value for value, _ in field.choices)}"
    if not field.is_number:
        return f"enter at most {MAX_TEXT_LENGTH} characters of text"
    number = "a whole number" if field.kind is int else "a number"
    if bounds is None:
        return f"enter {number}"
    return f"enter {number} from {bounds.ge:,} to {bounds.le:,}"


@cache
def _value_reader(kind: Any, bounds: Interval | None) -> TypeAdapter[Any]:
    from pydantic import AfterValidator, BeforeValidator, Strict, TypeAdapter
    from pydantic import Field as Bounded

    checks: list[Any] = [Bounded(ge=bounds.ge, le=bounds.le)] if bounds else []
    if kind is int:
        checks += [Strict(), BeforeValidator(_plain_number)]
    elif kind is float:
        checks += [BeforeValidator(_no_switch)]
    elif kind is bool:
        checks += [BeforeValidator(_stripped)]
    elif kind is str:
        checks += [Strict(), AfterValidator(_printable)]
    hint: Any = Annotated[kind, *checks] if checks else kind
    return TypeAdapter(hint)


@cache
def _json_reader(kind: type) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _plain_number(value: object) -> object:
    if isinstance(value, str) and _PLAIN_NUMBER.fullmatch(value.strip()):
        return int(value)
    return value


def _no_switch(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a switch is not a number")
    return value


def _stripped(value: object) -> object:
    return value.strip() if isinstance(value, str) else value


def _printable(value: str) -> str:
    if not (value.isprintable() and 0 < len(value) <= MAX_TEXT_LENGTH):
        raise ValueError("it is empty, too long or not printable")
    return value
