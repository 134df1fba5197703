"""Text of a recipe: YAML or JSON of bounded size, with the line of each key.

A recipe comes from anywhere, the site's API among others. So it is plain data, read by PyYAML's
safe loader after :mod:`.yaml_text` has counted what it would become.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.parsing import shown
from .errors import InvalidRecipe, wrong

MAX_BYTES = 256 * 1024
"""Upper bound of a recipe; those that the frameworks publish have at most 13 KiB."""


@dataclass(frozen=True)
class Document:
    """A recipe as it was written.

    Attributes:
        values: Its keys.
        lines: The line of each key, from 1.
    """

    values: Mapping[str, Any]
    lines: Mapping[str, int]

    def at(self, key: str, message: str) -> str:
        """A message about a key, with its line."""
        line = self.lines.get(key)
        return message if line is None else f"line {line}: {message}"

    def renamed(self, names: Mapping[str, str]) -> tuple[Document, dict[str, str]]:
        """The recipe with other names for some keys, and those that were renamed.

        A key whose other name the recipe has too stays as it is.
        """
        found = {
            old: new for old, new in names.items() if old in self.values and new not in self.values
        }
        values = {found.get(name, name): value for name, value in self.values.items()}
        lines = {found.get(name, name): line for name, line in self.lines.items()}
        return Document(values, lines), found


def read_file(path: Path) -> Document:
    """The recipe in a file.

    Raises:
        InvalidRecipe: If it cannot be read, or is not a recipe.
    """
    try:
        with path.open("rb") as file:
            return parse(file.read(MAX_BYTES + 1))
    except (OSError, ValueError) as error:
        raise wrong(f"{shown(path)} cannot be read: {error}") from error


def parse(text: str | bytes) -> Document:
    """The keys of a recipe.

    Args:
        text: YAML, or JSON.

    Raises:
        InvalidRecipe: For :data:`FIELD`, or for a key that is written twice.
    """
    if len(text) > MAX_BYTES:
        raise wrong(f"it is larger than {MAX_BYTES // 1024} KiB; pass the recipe of one run")
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise wrong("this is not text in UTF-8") from error
    if decoded.lstrip().startswith("{"):
        return _of_json(decoded)
    return _of_yaml(decoded)


def _of_json(text: str) -> Document:
    try:
        values = json.loads(text, object_pairs_hook=_without_twins)
    except RecursionError as error:
        raise wrong("it is nested too deep") from error
    except ValueError as error:
        raise wrong(f"this is not JSON: {_short(error)}") from error
    lines = {
        key: 1 + text.count("\n", 0, found.start())
        for key in values
        if (found := re.search(rf'"{re.escape(key)}"\s*:', text)) is not None
    }
    return Document(values, lines)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRecipe({twice: "it is written twice; leave one of the two out"})
    return made


def _of_yaml(text: str) -> Document:
    from .yaml_text import read_yaml  # of the extra engine: the base has the command too

    try:
        values, lines = read_yaml(text)
    except RecursionError as error:
        raise wrong("it is nested too deep") from error
    except ValueError as error:
        raise wrong(f"this is not YAML: {_short(error)}") from error
    if not all(isinstance(key, str) for key in values):
        odd = next(key for key in values if not isinstance(key, str))
        raise wrong(f"the key {shown(odd)} is not text; put it in quotes")
    return Document(values, lines)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
