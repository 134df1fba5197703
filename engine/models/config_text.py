"""The text of an untrusted ``config.json``, and how much of it is read.

Whoever sends 50,000 names or labels must not keep a process busy with them, so the amount is
checked before anything looks at what they say.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..core.parsing import shown

MAX_CONFIG_BYTES = 2**20

MAX_VALUE_COUNT = 5_000
"""Names and items of lists, all together, but for labels; published configs have a few hundred."""

MAX_TEXT_LENGTH = 2_000
"""Limit of a name or a text. The longest published ones name a block for each layer."""

MAX_DEPTH = 8
"""Limit of nested objects and lists; published configs have three."""

_LABELS = ("id2label", "label2id")


def read_config_file(path: Path) -> str:
    """The text of a ``config.json``, cut off just above the largest allowed size.

    Raises:
        InvalidInput: If there is no such file, or it is not text.
    """
    try:
        with path.open("rb") as file:
            return file.read(MAX_CONFIG_BYTES + 1).decode()
    except UnicodeDecodeError as error:
        raise _wrong("this is not JSON, which is UTF-8 text") from error
    except (OSError, ValueError) as error:
        raise _wrong(f"{shown(path)} cannot be read: {error}") from error


def read(given: object) -> dict[str, Any]:
    """The config as a parsed object, of bounded size and without cycles.

    Raises:
        InvalidInput: If it is too large, or no JSON object.
    """
    try:
        text = given if isinstance(given, str | bytes) else json.dumps(given)
        if len(text) > MAX_CONFIG_BYTES:
            raise _wrong(f"it is larger than {MAX_CONFIG_BYTES // 2**20} MiB")
        config = json.loads(text)
    except RecursionError:
        raise _wrong("its objects are nested too deep") from None
    except (TypeError, ValueError) as error:
        raise _wrong(f"this is not JSON: {shown(error)}") from error
    if not isinstance(config, dict):
        raise _wrong("this is not a JSON object; enter the contents of a config.json")
    return config


def bounded(config: dict[str, Any]) -> dict[str, Any]:
    """The config with counted labels, if the rest of it is of a sensible amount.

    Raises:
        InvalidInput: If there is too much of it, or its labels are odd.
    """
    config = _with_counted_labels(config)
    _check_amount(config)
    return config


def _with_counted_labels(config: dict[str, Any], depth: int = 1) -> dict[str, Any]:
    """The config with the number of its labels in place of their names, which decide nothing.

    A head for all of ImageNet names 21,841 of them, twice.
    """
    if depth > MAX_DEPTH:  # refused later
        return config
    nested = {
        name: _with_counted_labels(value, depth + 1)
        for name, value in config.items()
        if isinstance(value, dict) and name not in _LABELS
    }
    labels = config.get("id2label")
    if labels is not None and not (isinstance(labels, dict) and all(map(_is_index, labels))):
        raise _wrong('id2label names each label by its number, such as {"0": "cat", "1": "dog"}')
    counted = {"num_labels": len(labels)} if labels else {}
    left = {name: value for name, value in config.items() if name not in _LABELS}
    return left | nested | counted


def _is_index(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) < 10


def _check_amount(config: dict[str, Any]) -> None:
    count = 0
    left: list[Any] = [config]
    while left:
        part = left.pop()
        parts: list[Any] = [*part, *part.values()] if isinstance(part, dict) else part
        count += len(part)
        if count > MAX_VALUE_COUNT:
            raise _wrong(
                f"it has more than {MAX_VALUE_COUNT:,} values; leave out what does not describe "
                "the model"
            )
        if any(isinstance(one, str) and len(one) > MAX_TEXT_LENGTH for one in parts):
            raise _wrong(f"it has a text of more than {MAX_TEXT_LENGTH:,} characters")
        left += [one for one in parts if isinstance(one, dict | list)]


def _wrong(message: str) -> InvalidInput:
    return InvalidInput({"config": message})
