"""A recipe as a request: the fields that it sets, and what it says besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..interface.request import FIELDS, AnalysisRequest
from .accelerate import set_launch
from .document import Document, parse, read_file
from .errors import InvalidRecipe
from .framework import Framework
from .frameworks import framework_of
from .launch import LAUNCH
from .settings import Settings
from .tables import UNUSED
from .trl import LAUNCHES

_MAX_VALUE = 60


@dataclass(frozen=True)
class Recipe:
    """The training run that a framework's file describes.

    Attributes:
        framework: The framework, with the release that its keys were taken from.
        fields: Fields of an :class:`~engine.interface.request.AnalysisRequest`, not checked yet.
        read: Keys that decide about the step.
        assumed: Keys that were left out and decide too, with what the release takes for them.
        unused: Keys that change neither memory nor speed.
        notes: Sentences about how far the answer may be off.
        overridden: Fields that stand beside the recipe and win, with the key that they replace.
    """

    framework: Framework
    fields: Mapping[str, Any]
    read: tuple[str, ...]
    assumed: Mapping[str, Any]
    unused: tuple[str, ...]
    notes: tuple[str, ...]
    overridden: Mapping[str, str]
    settings: Settings

    def request(self, given: Mapping[str, object]) -> AnalysisRequest:
        """The request for what the recipe describes.

        Args:
            given: Fields beside the recipe, which win; a GPU at least.

        Raises:
            InvalidRecipe: By keys of the recipe where one of them set the field.
        """
        try:
            return AnalysisRequest.parse(self.under(given))
        except InvalidInput as error:
            raise self.located(error) from error

    def under(self, given: Mapping[str, object]) -> dict[str, object]:
        """The recipe's fields, below those that are given."""
        known = {name: value for name, value in given.items() if name in FIELDS}
        said = {name: value for name, value in known.items() if value not in (None, "")}
        empty = {name: None for name in known if FIELDS[name].takes_none and known[name] is None}
        return {**self.fields, **empty, **said}

    def located(self, error: InvalidInput) -> InvalidRecipe:
        """An error about fields, by the keys of the recipe that set them, and by flags else."""
        found = {}
        for field, message in error.fields.items():
            flag = FIELDS[field].flag if field in FIELDS else field
            key, told = self.at(field, message) or (flag, message)
            found[key] = told
        return InvalidRecipe(found)

    def at(self, field: str, message: str) -> tuple[str, str] | None:
        """The key that set a field, and a message with its line; ``None`` if none has set it."""
        if field not in self.settings.origins or field in self.settings.given:
            return None
        return self.settings.located(field, message)

    def caveats(self) -> list[str]:
        """Sentences for an answer: what was read, assumed and not used."""
        named = self.framework.named
        sentences = [f"Read as a recipe of {named} ({self.framework.source})."]
        if self.read:
            sentences.append(f"Read: {', '.join(self.read)}.")
        if self.assumed:
            listed = ", ".join(f"{name} {_text(value)}" for name, value in self.assumed.items())
            sentences.append(f"Assumed by {named}, since the recipe leaves it out: {listed}.")
        if self.overridden:
            listed = ", ".join(
                f"{_name(field)} instead of {key}" if key else _name(field)
                for field, key in self.overridden.items()
            )
            sentences.append(f"Given beside the recipe, and wins: {listed}.")
        if self.unused:
            sentences.append(
                f"Not used, since memory and speed do not depend on it: {', '.join(self.unused)}."
            )
        return [*sentences, *self.notes]

    def to_dict(self) -> dict[str, object]:
        return {
            "framework": self.framework.name,
            "release": self.framework.release,
            "source": self.framework.source,
            "read": list(self.read),
            "assumed": dict(self.assumed),
            "not_used": list(self.unused),
            "given_beside": dict(self.overridden),
            "notes": list(self.notes),
            "fields": {name: _plain(value) for name, value in self.fields.items()},
        }


def read_recipe(
    path: Path, given: Mapping[str, object] | None = None, framework: str | None = None
) -> Recipe:
    """Read a framework's file.

    Args:
        path: The file; those that it refers to are looked for beside it, and in this folder.
        given: Fields of a request that stand beside it, which win.
        framework: Its framework's name, where its keys do not tell.

    Raises:
        InvalidRecipe: With a message for each key that is unknown, wrong, or matters and is not
            predicted.
    """
    return _read(read_file(path), given or {}, framework, path.parent)


def parse_recipe(
    text: str | bytes, given: Mapping[str, object] | None = None, framework: str | None = None
) -> Recipe:
    """The same for the text of such a file, which cannot refer to others."""
    return _read(parse(text), given or {}, framework, None)


def _read(
    document: Document, given: Mapping[str, object], name: str | None, folder: Path | None
) -> Recipe:
    framework = framework_of(document, name)
    document, renamed = document.renamed(framework.former_names)
    keys = {**dict.fromkeys(framework.also(document.values), UNUSED), **framework.keys}
    settings = Settings(keys, framework.named, document, given, folder)
    for old, new in renamed.items():
        settings.note(f"{old} is read as {new}, its name in {framework.named}.")
    for key, found in settings.keys.items():
        if found.field and (key in settings or found.default):
            settings.set(found.field, settings.value(key), key)
        elif found.field:
            settings.value(key)
    if launch := settings.given.get(LAUNCH):
        set_launch(settings, str(launch), LAUNCH, LAUNCHES)
    framework.derive(settings)
    _share(settings)
    if settings.errors:
        raise InvalidRecipe(settings.errors)
    return Recipe(
        framework=framework,
        fields=settings.fields,
        read=tuple(settings.read()),
        assumed=settings.assumed(),
        unused=tuple(settings.unused()),
        notes=tuple(settings.notes),
        overridden={
            field: settings.origins.get(field, "")
            for field in settings.given
            if field in FIELDS and settings.fields.get(field) is not None
        },
        settings=settings,
    )


def _share(settings: Settings) -> None:
    """Train on the GPUs that are given beside the recipe as ``torchrun`` does: by DDP."""
    known = {**settings.fields, **settings.given}
    several = str(known.get("world_size", 1)) != "1"
    if several and "parallelism" not in known:
        settings.set("parallelism", "ddp")
    if not several:
        settings.note(
            "One GPU is assumed, as a recipe does not say how many its launcher uses; "
            "--world-size does."
        )


def _name(field: str) -> str:
    """A field as a sentence has it: its flag differs from one command to the next."""
    label = FIELDS[field].described.label
    return label[:1].lower() + label[1:] if label[1:2].islower() else label


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"


def _plain(value: object) -> object:
    return str(value) if isinstance(value, str) else value
