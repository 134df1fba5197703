"""Recipes of training frameworks that analyses were submitted with: what was read of each."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from analyses.bodies import storable
from engine.core.errors import InvalidInput
from engine.interface.request import FIELDS, AnalysisRequest
from engine.recipes import FRAMEWORKS, Recipe, parse_recipe

FRAMEWORK_LABEL = "Framework of the recipe"

_FLAG = re.compile(r"--[a-z][a-z-]*")


def stored(recipe: Recipe) -> dict[str, Any]:
    """The keys read of a recipe, as a column keeps them."""
    plain: dict[str, Any] = _storable(recipe.to_dict())
    return plain


def read_beside(
    text: str,
    fields: Mapping[str, object],
    beside: Collection[str],
    framework: str | None = None,
) -> Recipe:
    """The keys read of a recipe that has filled in a form, which may have been changed since.

    Args:
        text: The recipe.
        fields: The fields of the request that the form was sent as.
        beside: Names of those that stood beside the recipe when it was read.
        framework: As it was chosen, where the recipe's keys do not tell.

    Raises:
        InvalidInput: If the request or the recipe is wrong.
    """
    asked = AnalysisRequest.parse(fields).to_dict()
    given = {name: asked[name] for name in (*beside, "config") if asked.get(name) is not None}
    alone = parse_recipe(text, given, framework)
    corrected = _corrected(alone, {"gpu": asked["gpu"], **given}, asked)
    filled = AnalysisRequest.parse(alone.under({"gpu": asked["gpu"], **given, **corrected}))
    as_filled = {**filled.to_dict(), **dict.fromkeys(corrected)}
    changed = {name: asked[name] for name in alone.fields if asked[name] != as_filled[name]}
    return parse_recipe(text, {**given, **changed}, framework)


def _corrected(
    recipe: Recipe, given: Mapping[str, object], asked: Mapping[str, object]
) -> dict[str, object]:
    """The fields of a request that stand for what is wrong in a recipe; all, if need be."""
    corrected: dict[str, object] = {}
    for _ in recipe.fields:  # a message may hide another one
        try:
            AnalysisRequest.parse(recipe.under({**given, **corrected}))
        except InvalidInput as error:
            corrected |= {name: asked[name] for name in error.fields if name in asked}
        else:
            return corrected
    return dict(asked)


@dataclass(frozen=True)
class ReadRecipe:
    """The keys read of a recipe, for people.

    Attributes:
        framework: Name and release of the framework.
        source: Where the meaning of its keys was read.
        parts: Keys by what they did; those without any are left out.
        notes: How far the answer may be off, in sentences.
    """

    framework: str
    source: str
    parts: list[tuple[str, str]]
    notes: list[str]


def recipe_of(content: Mapping[str, Any] | None) -> ReadRecipe | None:
    """The stored content of an analysis's recipe; ``None`` if it was submitted without one."""
    if content is None:
        return None
    framework = FRAMEWORKS.get(content["framework"])
    beside = content["given_beside"]
    changed = [
        f"{FIELDS[field].label} instead of {key}" if key else FIELDS[field].label
        for field, key in beside.items()
        if field in FIELDS
    ]
    parts = [
        ("Read", content["read"]),
        ("Assumed by the release", [f"{key} {_shown(v)}" for key, v in content["assumed"].items()]),
        ("Changed in the form", changed),
        ("Not used", content["not_used"]),
    ]
    return ReadRecipe(
        framework=f"{framework.title if framework else content['framework']} {content['release']}",
        source=content["source"],
        parts=[(name, ", ".join(keys)) for name, keys in parts if keys],
        notes=[with_labels(note) for note in content["notes"]],
    )


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def with_labels(text: str) -> str:
    """A sentence about a recipe with the labels of fields in place of the flags that set them."""
    return _FLAG.sub(lambda found: _LABELS.get(found[0], found[0]), text)


_LABELS = {
    flag: f"\N{LEFT DOUBLE QUOTATION MARK}{label}\N{RIGHT DOUBLE QUOTATION MARK}"
    for flag, label in {
        **{field.flag: field.label for field in FIELDS.values()},
        "--framework": FRAMEWORK_LABEL,
    }.items()
}


def _storable(value: Any) -> Any:
    if isinstance(value, dict):
        return {storable(str(name)): _storable(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_storable(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float) else storable(str(value))
