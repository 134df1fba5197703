"""Settings of a recipe as its framework has them: what is written, and defaults for the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.parsing import shown
from .document import Document
from .tables import Form, Key, Role

_MAX_SHOWN = 12
_ANOTHER_KEY = re.compile(r"\$\{([\w.]+)\}")
_FORMS: Mapping[Form, tuple[type, ...]] = {
    Form.SWITCH: (bool,),
    Form.WHOLE: (int,),
    Form.NUMBER: (int, float),
    Form.TEXT: (str,),
    Form.NAMES: (str, list),
    Form.MAPPING: (dict,),
    Form.ANY: (object,),
}


class Settings:
    """A recipe while it is turned into the fields of a request.

    Attributes:
        given: Fields that stand beside the recipe, which win over it.
        folder: Folder of the recipe, for files that it refers to; ``None`` for a text.
        keys: All keys that it may have.
        fields: Fields of a request, so far.
        origins: The key that set each field.
        used: Keys that were read.
        notes: Sentences about how far the answer may be off.
        errors: Messages by key.
    """

    def __init__(
        self,
        keys: Mapping[str, Key],
        release: str,
        document: Document,
        given: Mapping[str, object],
        folder: Path | None,
    ) -> None:
        self.keys = keys
        self.given = {name: value for name, value in given.items() if value not in (None, "")}
        self.folder = folder
        self.fields: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.used: set[str] = set()
        self.notes: list[str] = []
        self.errors: dict[str, str] = {}
        self._document = document
        self._release = release
        self._values = {name: self._filled_in(value) for name, value in document.values.items()}
        self._check()

    def _filled_in(self, value: Any) -> Any:
        """The value with ``${other.key}`` replaced, as torchtune's config (OmegaConf) does it."""
        if not isinstance(value, str) or (found := _ANOTHER_KEY.fullmatch(value)) is None:
            return value
        target: Any = self._document.values
        for part in found[1].split("."):
            target = target.get(part) if isinstance(target, dict) else None
        return target

    def _check(self) -> None:
        """Check each key that is written: is it known, has it the right form, is it predicted?"""
        unknown = [
            name
            for name, value in self._values.items()
            if name not in self.keys and value is not None
        ]
        for name in unknown[:_MAX_SHOWN]:
            self.refuse(
                name,
                f"{self._release} has no such key, so whether it matters to memory or speed "
                "is not known; take it out, or correct its name",
            )
        for name, value in self._values.items():
            key = self.keys.get(name)
            if key is None or value is None:
                continue
            if not _has_form(value, key.form):
                self.refuse(name, f"{shown(value)} is not {key.form.value}")
            elif key.role is Role.REFUSED and not _is_among(value, key.harmless):
                self.refuse(name, key.reason)

    @property
    def written(self) -> Mapping[str, Any]:
        """The keys that the recipe has."""
        return self._values

    def __contains__(self, name: str) -> bool:
        """Whether the recipe has a key with a value."""
        return self._values.get(name) is not None

    def value(self, name: str) -> Any:
        """The value of a key, or the release's default; the default too where it is refused."""
        key = self.keys[name]
        self.used.add(name)
        if name not in self._values or name in self.errors:
            return key.default
        return self._values[name]

    def is_on(self, name: str) -> bool:
        """Whether a switch is on."""
        return bool(self.value(name))

    def listed(self, name: str) -> list[str]:
        """Names of a list, which may be written with commas between them."""
        value = self.value(name)
        parts = value.split(",") if isinstance(value, str) else value or []
        return [str(part).strip() for part in parts if str(part).strip()]

    def part(self, name: str) -> Mapping[str, Any]:
        """A mapping in the recipe; empty where it has none."""
        found = self.value(name)
        return found if isinstance(found, dict) else {}

    def nested(self, key: str, values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        """A mapping within the value of a key; empty where there is none."""
        found = values.get(name)
        if found is not None and not isinstance(found, dict):
            self.refuse(key, f"{name} is not a mapping of keys")
        return found if isinstance(found, dict) else {}

    def whole_in(self, key: str, values: Mapping[str, Any], name: str) -> int | None:
        """A whole number within the value of a key, which may be written as 5e8."""
        found = values.get(name)
        if found is None:
            return None
        try:
            return int(float(found))
        except (TypeError, ValueError, OverflowError):
            self.refuse(key, f"{name} is {shown(found)}; write a whole number")
            return None

    def set(self, field: str, value: Any, key: str = "") -> None:
        """Set a field of the request, because of a key."""
        if value is None:
            return
        self.fields[field] = value
        if key:
            self.origins[field] = key

    def set_all(self, fields: Mapping[str, Any], key: str) -> None:
        for field, value in fields.items():
            self.set(field, value, key)

    def refuse(self, key: str, message: str) -> None:
        """Refuse the recipe for what a key says; the first reason stays."""
        self.errors.setdefault(key, self._document.at(key, message))

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def assumed(self) -> dict[str, Any]:
        """The defaults that the release takes for keys that were left out."""
        return {
            name: key.default
            for name, key in self.keys.items()
            if name in self.used and name not in self._values and _is_told(key)
        }

    def read(self) -> list[str]:
        """Keys that were written and decide about the step."""
        return [name for name in self._values if name in self.used]

    def unused(self) -> list[str]:
        """Keys that were written and change nothing; those without a value ask for nothing."""
        return [name for name in self._values if name not in self.used]

    def located(self, field: str, message: str) -> tuple[str, str]:
        """The key that set a field, and a message about the field with the key's line."""
        key = self.origins[field]
        return key, self._document.at(key, message)


def _is_told(key: Key) -> bool:
    return bool(key.default) or key.told


def _has_form(value: Any, form: Form) -> bool:
    if form is Form.ANY:
        return True
    if isinstance(value, bool):
        return form is Form.SWITCH
    return isinstance(value, _FORMS[form])


def _is_among(value: Any, harmless: tuple[Any, ...]) -> bool:
    """Whether a value is one of these; ``0`` is not ``False``, nor ``1`` ``True``."""
    empty = value in ("", [], {})
    return empty or any(value == one and type(value) is type(one) for one in harmless)
